/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c - the other parts of a job within a program that starts them itself: the scheduler, a server. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "server/server.h"
#include "worker/hosting.h"
#include "worker/options.h"

struct bps_hosted {
    struct bps_conf *conf;
    struct bps_hosting *hosting;
    pid_t process; /* a forked child has no thread of it */
};

static bps_status parts_begin(struct bps_hosted *hosted, const struct bps_init_options *options, char *address,
                              size_t n, struct bps_report *report)
{
    char listen[300];
    const char *const at[] = {listen, NULL};
    bps_status status = bps_options_load(options, "cluster.role=scheduler", &hosted->conf, report);
    if (status != BPS_OK) {
        return status;
    }
    snprintf(listen, sizeof listen, "%s", hosted->conf->cluster.scheduler);
    return bps_hosting_begin(hosted->conf, at, &hosted->hosting, address, n, report);
}

bps_status bps_host_scheduler(const struct bps_init_options *options, struct bps_hosted **out, char *address, size_t n,
                              struct bps_report *report)
{
    struct bps_hosted *hosted = calloc(1, sizeof *hosted);
    if (hosted == NULL) {
        return BPS_ERR_NOMEM;
    }
    hosted->process = getpid();
    bps_status status = parts_begin(hosted, options, address, n, report);
    if (status != BPS_OK) {
        bps_conf_free(hosted->conf);
        free(hosted);
        return status;
    }
    *out = hosted;
    return BPS_OK;
}

void bps_stop_scheduler(struct bps_hosted *hosted)
{
    if (hosted == NULL || hosted->process != getpid()) {
        return;
    }
    bps_hosting_stop(hosted->hosting);
    bps_conf_free(hosted->conf);
    free(hosted);
}

bps_status bps_serve(const struct bps_init_options *options, struct bps_report *report)
{
    struct bps_conf *conf = NULL;
    bps_status status = bps_options_load(options, "cluster.role=server", &conf, report);
    if (status == BPS_OK) {
        status = bps_server_run(conf, false, -1, report);
        bps_log_set_identity("");
    }
    bps_conf_free(conf);
    return status;
}
