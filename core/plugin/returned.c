/* SPDX-License-Identifier: Apache-2.0 */
/* returned.c - see returned.h. */
#include "plugin/returned.h"

#include <stdarg.h>

#include "base/log.h"
#include "base/report.h"
#include "plugin/kinds.h"

#define LOG "plugin"

bps_status bps_blame(const struct bps_instance *plugin, const char *callback, struct bps_report *report,
                     const char *format, ...)
{
    const struct bps_plugin *descriptor = plugin->loaded->plugin;
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    struct bps_report here;
    struct bps_report *out = report != NULL ? report : &here;
    BPS_REPORT(out, "%s %s (%s), %s: %s", bps_kind_name(descriptor->kind), descriptor->name, plugin->host->instance,
               callback, what);
    if (report == NULL) {
        bps_error(LOG, "%s", here.text);
    }
    return BPS_ERR_PLUGIN;
}

bps_status bps_returned_wrong(const struct bps_instance *plugin, const char *callback, bps_status also,
                              bps_status status, struct bps_report *report)
{
    const char *more = also == BPS_INPROGRESS ? ", BPS_INPROGRESS" : also == BPS_AGAIN ? ", BPS_AGAIN" : "";
    return bps_blame(plugin, callback, report, "returned %d; allowed are BPS_OK%s and BPS_ERR_*", status, more);
}

bps_status bps_returned_told(const struct bps_instance *plugin, const char *callback, bps_status status,
                             struct bps_report *report)
{
    bps_status checked = bps_returned(plugin, callback, BPS_OK, status, report);
    if (checked != BPS_OK && checked == status && report != NULL && report->text[0] == '\0') {
        (void)bps_blame(plugin, callback, report, "%s; the plugin gives no reason", bps_strerror(status));
    }
    return checked;
}

bps_status bps_returned_pointer(const struct bps_instance *plugin, const char *callback, bps_status status,
                                const char *what, const void *pointer, struct bps_report *report)
{
    bps_status checked = bps_returned_told(plugin, callback, status, report);
    return checked == BPS_OK && pointer == NULL
               ? bps_blame(plugin, callback, report, "returned BPS_OK and left %s NULL", what)
               : checked;
}

bps_status bps_answered(const struct bps_instance *plugin, const char *callback, bps_status status, const char **text,
                        struct bps_report *report)
{
    bps_status checked = bps_returned(plugin, callback, BPS_OK, status, report);
    if (checked != status) {
        *text = report->text;
    } else if (*text == NULL || (*text)[0] == '\0') {
        *text = bps_strerror(status);
    }
    return checked;
}
