/* SPDX-License-Identifier: Apache-2.0 */
/* alive.c - see alive.h. It shows that the thread turns over which all messages of a member or a scheduler go. */
#include "node/alive.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/report.h"

#define RENEW_EVERY BPS_S

static void renew(void *arg)
{
    futimens(((const struct bps_alive *)arg)->fd, NULL); /* a probe finds out where that fails */
}

bps_status bps_alive_begin(struct bps_alive *alive, struct bps_loop *loop, const struct bps_conf *conf,
                           struct bps_report *report)
{
    const char *path = conf->cluster.alive_file;
    if (path[0] == '\0') {
        return BPS_OK;
    }
    alive->fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (alive->fd < 0) {
        return bps_fail(report, BPS_ERR_CONF,
                        "%s: cluster.alive_file = \"%s\": %s; expected a file that this process may make and write",
                        bps_conf_find(conf, "cluster.alive_file")->origin, path, strerror(errno));
    }
    alive->loop = loop;
    alive->timer = bps_loop_timer(loop, RENEW_EVERY, RENEW_EVERY, renew, alive);
    if (alive->timer == NULL) {
        close(alive->fd);
        return BPS_ERR_NOMEM;
    }
    renew(alive);
    return BPS_OK;
}

void bps_alive_end(struct bps_alive *alive)
{
    if (alive->timer != NULL) {
        bps_loop_cancel(alive->loop, alive->timer);
        close(alive->fd);
    }
}
