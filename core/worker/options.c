/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - see options.h. */
#include "worker/options.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/log_of.h"
#include "base/report.h"
#include "base/sized.h"
#include "sum/pool.h"

bps_status bps_options_load(const struct bps_init_options *options, const char *role, struct bps_conf **out,
                            struct bps_report *report)
{
    struct bps_init_options o = {.size = sizeof o};
    bps_status status = options != NULL ? BPS_SIZED(bps_init_options, options, &o, report) : BPS_OK;
    if (status != BPS_OK) {
        return status;
    }
    const char **set = calloc(o.nset + 1, sizeof *set);
    if (set == NULL) {
        return BPS_ERR_NOMEM;
    }
    if (o.nset > 0) {
        memcpy(set, o.set, o.nset * sizeof *set);
    }
    set[o.nset] = role;
    status = bps_conf_load(o.conf, set, o.nset + (role != NULL), out, report);
    free(set);
    if (status == BPS_OK) {
        bps_log_read_environment();
        bps_log_set_level((*out)->log.level + 1);
        bps_log_hide_time((*out)->log.hide_time);
        bps_log_of_set(&(*out)->log.levels, &(*out)->log.calls);
        bps_pools_guard((*out)->plugins.guard);
    }
    return status;
}
