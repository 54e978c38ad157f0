/* SPDX-License-Identifier: Apache-2.0 */
/* hosting.c - see hosting.h. */
#include "worker/hosting.h"

#include <stdlib.h>

#include "base/container.h"
#include "base/route.h"
#include "base/thread.h"
#include "scheduler/ops.h"

struct bps_hosting {
    struct bps_loop *loop;
    const struct bps_scheduler_ops *ops;
    struct bps_scheduler *scheduler;
    pthread_t thread;
    struct bps_post end;
    const char *why;
};

static void hosting_on_finished(void *arg, bps_status status)
{
    struct bps_hosting *hosting = arg;
    (void)status; /* the workers have been told, this process's as well */
    bps_loop_stop(hosting->loop);
}

static void hosting_on_news(void *arg, const char *line)
{
    (void)arg;
    (void)line;
}

static void *hosting_run(void *arg)
{
    bps_loop_run(((struct bps_hosting *)arg)->loop);
    return NULL;
}

static void hosting_release(struct bps_hosting *hosting)
{
    if (hosting->scheduler != NULL) {
        hosting->ops->free(hosting->scheduler);
    }
    bps_loop_free(hosting->loop);
    free(hosting);
}

static bps_status open_scheduler(struct bps_hosting *hosting, struct bps_conf *conf, const char *const *listen,
                                 char *address, size_t n, struct bps_report *report)
{
    bps_status status = bps_scheduler_open(&hosting->ops, report);
    if (status != BPS_OK) {
        return status;
    }
    do {
        hosting->ops->free(hosting->scheduler);
        hosting->scheduler = NULL;
        status = bps_conf_put_cluster(conf, "scheduler", *listen, "own choice", report);
        if (status == BPS_OK) {
            status = hosting->ops->new(conf, hosting->loop, hosting_on_finished, hosting_on_news, hosting, address, n,
                                       &hosting->scheduler, report);
        }
    } while (status == BPS_OK && *++listen != NULL && bps_route_is_loopback(address));
    return status;
}

bps_status bps_hosting_begin(struct bps_conf *conf, const char *const *listen, struct bps_hosting **out, char *address,
                             size_t n, struct bps_report *report)
{
    struct bps_hosting *hosting = calloc(1, sizeof *hosting);
    if (hosting == NULL) {
        return BPS_ERR_NOMEM;
    }
    hosting->loop = bps_loop_new();
    bps_status status = hosting->loop == NULL ? BPS_ERR_IO : open_scheduler(hosting, conf, listen, address, n, report);
    if (status == BPS_OK) {
        status = bps_thread_start(&hosting->thread, "bps-scheduler", hosting_run, hosting, report);
    }
    if (status != BPS_OK) {
        hosting_release(hosting);
        return status;
    }
    *out = hosting;
    return BPS_OK;
}

static void end_now(struct bps_post *post)
{
    struct bps_hosting *hosting = bps_container(post, struct bps_hosting, end);
    hosting->ops->end(hosting->scheduler, hosting->why);
}

static void wait_and_release(struct bps_hosting *hosting)
{
    pthread_join(hosting->thread, NULL);
    hosting_release(hosting);
}

void bps_hosting_stop(struct bps_hosting *hosting)
{
    hosting->end.fn = end_now;
    bps_loop_post(hosting->loop, &hosting->end);
    wait_and_release(hosting);
}

void bps_hosting_end(struct bps_hosting *hosting, const char *why)
{
    if (hosting == NULL) {
        return;
    }
    hosting->why = why;
    if (why != NULL) {
        bps_hosting_stop(hosting);
    } else {
        wait_and_release(hosting);
    }
}
