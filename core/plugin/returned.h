/* SPDX-License-Identifier: Apache-2.0 */
/*
 * returned.h - what callbacks of plugins return passes here, so that only what their contract allows goes on.
 *
 * A callback is named as in the operations of its kind. Its status is 0 or an error of types.h; of few callbacks it may
 * be BPS_INPROGRESS or BPS_AGAIN, too. Anything else is the plugin's fault: BPS_ERR_PLUGIN, and whose fault it is
 * stands in the report or, where there is none, in the log. [any thread]
 */
#ifndef BPS_PLUGIN_RETURNED_H
#define BPS_PLUGIN_RETURNED_H

#include "plugin/instance.h"

/* "KIND PLUGIN (WHERE), CALLBACK: ...": what it has done that it may not. */
bps_status bps_blame(const struct bps_instance *plugin, const char *callback, struct bps_report *report,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));

bps_status bps_returned_wrong(const struct bps_instance *plugin, const char *callback, bps_status also,
                              bps_status status, struct bps_report *report);

/* The status that a callback has returned; `also` is what it may return besides 0 and errors, or BPS_OK. */
static inline bps_status bps_returned(const struct bps_instance *plugin, const char *callback, bps_status also,
                                      bps_status status, struct bps_report *report)
{
    if (plugin->names.timed) {
        bps_plugin_call_status(status);
    }
    bool allowed = status == BPS_OK || status == also || (status < 0 && status >= BPS_ERR_FAILED /* the last one */);
    return allowed ? status : bps_returned_wrong(plugin, callback, also, status, report);
}

/* The same of a callback that says in its report why it fails: that is not empty behind this. */
bps_status bps_returned_told(const struct bps_instance *plugin, const char *callback, bps_status status,
                             struct bps_report *report);

/* The same, of a callback that puts something into `what` when all is well: it is there behind this. */
bps_status bps_returned_pointer(const struct bps_instance *plugin, const char *callback, bps_status status,
                                const char *what, const void *pointer, struct bps_report *report);

/*
 * The status that a plugin has given to a `done`, which is 0 or an error, with its text: of an error *text is not empty
 * behind this. It may lie in the report.
 */
bps_status bps_answered(const struct bps_instance *plugin, const char *callback, bps_status status, const char **text,
                        struct bps_report *report);

/* How many bytes encode says that it has written of at least one element: 1 to its bound. */
static inline bps_status bps_returned_bytes(const struct bps_instance *plugin, const char *callback, size_t bytes,
                                            size_t bound, struct bps_report *report)
{
    return bytes - 1 < bound ? BPS_OK
                             : bps_blame(plugin, callback, report, "returned %zu bytes, its bound is %zu%s", bytes,
                                         bound, bytes == 0 ? "; there must be one at least" : "");
}

#endif
