/* SPDX-License-Identifier: Apache-2.0 */
/* role.c - beginning and ending of processes with one role. */
#include "tools/role.h"

#include <signal.h>
#include <sys/signalfd.h>

#include "base/log.h"
#include "base/log_of.h"
#include "node/transport.h"
#include "sum/pool.h"

struct bps_conf *bps_role_conf(const char *command, const struct bps_cmd_conf *lines)
{
    struct bps_report report = {""};
    struct bps_conf *conf = bps_cmd_conf_load(command, lines, command);
    bool met = conf && conf->cluster.scheduler[0] != '\0'; /* else those who tell of it have the secret, too */
    if (met && (bps_transport_check_secret(conf, &report) != BPS_OK ||
                bps_transport_check_host(conf, conf->cluster.scheduler, &report) != BPS_OK)) {
        bps_cmd_failure(command, "%s", report.text);
        bps_conf_free(conf);
        conf = NULL;
    }
    return conf;
}

void bps_role_begin(const struct bps_conf *conf, const char *identity)
{
    bps_log_read_environment();
    bps_log_set_level(conf->log.level + 1);
    bps_log_hide_time(conf->log.hide_time);
    bps_log_of_set(&conf->log.levels, &conf->log.calls);
    bps_pools_guard(conf->plugins.guard);
    bps_log_set_identity(identity);
    signal(SIGPIPE, SIG_IGN);
}

int bps_role_stop_fd(void)
{
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    sigaddset(&stop, SIGHUP);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    return signalfd(-1, &stop, SFD_NONBLOCK | SFD_CLOEXEC);
}
