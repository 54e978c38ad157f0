/* SPDX-License-Identifier: Apache-2.0 */
/* run_address.c - where the scheduler of a job over several hosts listens: on the way to the first other. */
#include "tools/run.h"

#include <string.h>

#include "base/route.h"

char *bps_run_choose_address(const struct bps_run_options *options)
{
    char address[128];
    bool ourselves;
    for (size_t i = 0; i < options->nhosts; i++) {
        const char *name = options->hosts[i].name, *at = strrchr(name, '@');
        /* A name that only ssh knows says nothing; then the default route is the best guess. */
        if (!bps_route_source(at != NULL ? at + 1 : name, address, sizeof address, &ourselves) &&
            !bps_route_source(BPS_ROUTE_OUTSIDE, address, sizeof address, &ourselves)) {
            break;
        }
        if (!ourselves) {
            return bps_cmd_print("%s:0", address);
        }
    }
    return bps_cmd_print("127.0.0.1:0");
}
