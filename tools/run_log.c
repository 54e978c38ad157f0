/* SPDX-License-Identifier: Apache-2.0 */
/* run_log.c - the files of `byteps run --log-dir`: one for each part, on the machine where it runs. */
#include "tools/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool bps_run_log_make(const char *dir)
{
    return mkdir(dir, 0777) == 0 || errno == EEXIST;
}

/* "worker 0" -> DIR/worker-0.log. What a restarted job or scheduler says stands behind what was there. */
bool bps_run_log_open(struct bps_run *run, struct bps_run_child *child)
{
    const char *dir = run->options->log_dir;
    if (!dir || child->role == BPS_RUN_HOST) {
        return true;
    }
    char *path = bps_cmd_print("%s/%s.log", dir, child->label), *blank = strchr(path + strlen(dir), ' ');
    if (blank) {
        *blank = '-';
    }
    int again = run->options->restart > 0 || run->gathered || child->place.failures > 0 ? O_APPEND : O_TRUNC;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | again, 0666);
    int error = errno;
    free(path);
    errno = error;
    if (fd < 0) {
        return false;
    }
    bps_run_sink_init(&child->log, fd);
    child->log.owned = true;
    return true;
}
