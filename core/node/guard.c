/* SPDX-License-Identifier: Apache-2.0 */
/* guard.c - see guard.h. */
#include "node/guard.h"

#include "base/container.h"
#include "base/plugin_call.h"

static void on_post(struct bps_post *post)
{
    const struct bps_guard *guard = bps_container(post, struct bps_guard, post);
    guard->stuck(guard->arg, guard->text);
}

static void guard_on_stuck(void *arg, const char *text)
{
    struct bps_guard *guard = arg;
    snprintf(guard->text, sizeof guard->text, "%s", text);
    bps_loop_post(guard->loop, &guard->post);
}

bps_status bps_guard_begin(struct bps_guard *guard, const struct bps_conf *conf, struct bps_loop *loop,
                           void (*stuck)(void *arg, const char *text), void *arg, struct bps_report *report)
{
    const struct bps_conf_cluster *c = &conf->cluster;
    bool alone = c->role == BPS_ROLE_WORKER && c->scheduler[0] == '\0'; /* nobody waits for a sign of life */
    *guard = (struct bps_guard){
        .user = {.limits = {.warn = c->stall_warning,
                            .loop = alone ? c->stall_timeout : c->peer_timeout,
                            .call = c->stall_timeout},
                 .stuck = stuck != NULL ? guard_on_stuck : NULL,
                 .arg = guard},
        .loop = loop,
        .post = {.fn = on_post},
        .stuck = stuck,
        .arg = arg,
    };
    bps_plugin_calls_last_words();
    return bps_watchdog_begin(&guard->user, report);
}

void bps_guard_end(struct bps_guard *guard)
{
    bps_watchdog_end(&guard->user);
}
