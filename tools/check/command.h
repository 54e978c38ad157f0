/* SPDX-License-Identifier: Apache-2.0 */
/* command.h - `byteps plugin check`: the conformance suite for a plugin. */
#ifndef BPS_TOOLS_CHECK_COMMAND_H
#define BPS_TOOLS_CHECK_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bps_check_request {
    const char *plugin; /* a name, or the path of a file */
    uint32_t kind;      /* 0: any */
    const char *only;   /* tests whose name has this in it; NULL: all */
    double limit;       /* seconds that a test may take */
    bool json;
    const char *const *set; /* options of the plugin, "name=value" */
    size_t nset;
};

/* Returns the exit status. */
int bps_plugin_check(const struct bps_check_request *request);

#endif
