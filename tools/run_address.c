/* SPDX-License-Identifier: Apache-2.0 */
/* run_address.c - which host is this one, and where the scheduler listens: on the way to the first other. */
#include "tools/run.h"

#include <string.h>

#include "base/route.h"

char *bps_run_choose_address(const struct bps_run_options *options)
{
    char address[128];
    bool ourselves;
    for (size_t i = 0; i < options->nhosts; i++) {
        const char *name = options->hosts[i].name, *at = name ? strrchr(name, '@') : NULL;
        if (!name) {
            continue;
        }
        /* A name that only ssh knows says nothing; then the default route is the best guess. */
        if (!bps_route_source(at != NULL ? at + 1 : name, address, sizeof address, &ourselves) &&
            !bps_route_source(BPS_ROUTE_OUTSIDE, address, sizeof address, &ourselves)) {
            break;
        }
        if (!ourselves) {
            return bps_cmd_print("%s:0", address);
        }
    }
    /* Hosts that come later may be others. */
    bool outside = options->script && bps_route_source(BPS_ROUTE_OUTSIDE, address, sizeof address, &ourselves);
    return bps_cmd_print("%s:0", outside ? address : "127.0.0.1");
}

/* As another user it is reached like any other host. */
bool bps_run_is_here(const char *host)
{
    char address[128];
    bool ourselves;
    return strchr(host, '@') == NULL && bps_route_source(host, address, sizeof address, &ourselves) && ourselves;
}
