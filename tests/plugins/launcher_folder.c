/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launcher_folder.c - the launcher of a test: the processes of FOLDER_OF_JOB meet in that folder. Worker 0 keeps the
 * note open, which a forked child does not. ORDER is what it says of its place among others; RETURNS, if it is there,
 * is what leave and find return.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <byteps/launcher.h>

#define VARIABLE "FOLDER_OF_JOB"

#ifndef ORDER
#define ORDER 1000
#endif
#ifndef PLACE
#define PLACE "the folder"
#endif

struct folder {
    const struct bps_host *host;
    char path[PATH_MAX]; /* of what was left; "": nothing */
    int fd;
};

static bps_status folder_open(const struct bps_host *host, const void *options, void **instance_out,
                              struct bps_report *report)
{
    struct folder *folder = calloc(1, sizeof *folder);
    (void)options;
    (void)report;
    if (folder == NULL) {
        return BPS_ERR_NOMEM;
    }
    folder->host = host;
    folder->fd = -1;
    *instance_out = folder;
    return BPS_OK;
}

static void folder_close(void *instance)
{
    struct folder *folder = instance;
    if (folder->fd >= 0) {
        folder->host->log(folder->host, BPS_LOG_DEBUG, "the folder is empty again");
        unlink(folder->path);
        close(folder->fd);
    }
    free(folder);
}

static bool folder_recognise(void)
{
    return getenv(VARIABLE) != NULL && getenv(VARIABLE)[0] == '/';
}

static bps_status folder_leave(void *instance, const char *key, const char *note, uint64_t until,
                               struct bps_report *report)
{
    struct folder *folder = instance;
    char draft[PATH_MAX];
    (void)until;
#ifdef RETURNS
    return RETURNS;
#endif
    snprintf(folder->path, sizeof folder->path, "%s/%s", getenv(VARIABLE), key);
    snprintf(draft, sizeof draft, "%s/draft", getenv(VARIABLE));
    folder->fd = open(draft, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (folder->fd < 0 || write(folder->fd, note, strlen(note)) < 0 || rename(draft, folder->path) != 0) {
        BPS_REPORT(report, VARIABLE ": %s: %s", draft, strerror(errno));
        return BPS_ERR_IO;
    }
    return BPS_OK;
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bps_status folder_find(void *instance, const char *key, char *note, uint64_t until, struct bps_report *report)
{
    char path[PATH_MAX];
    int fd;
    (void)instance;
#ifdef RETURNS
    return RETURNS;
#endif
    snprintf(path, sizeof path, "%s/%s", getenv(VARIABLE), key);
    while ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) {
        if (now() >= until) {
            BPS_REPORT(report, VARIABLE ": %s does not exist yet", path);
            return BPS_ERR_TIMEOUT;
        }
        poll(NULL, 0, 20);
    }
    ssize_t n = read(fd, note, BPS_LAUNCHER_NOTE_BYTES - 1);
    close(fd);
    note[n > 0 ? n : 0] = '\0';
    return BPS_OK;
}

static void folder_in_child(void *instance)
{
    struct folder *folder = instance;
    close(folder->fd);
    folder->fd = -1;
}

static const struct bps_launcher_ops folder_ops = {
    .size = sizeof folder_ops,
    .open = folder_open,
    .close = folder_close,
    .order = ORDER,
    .place = PLACE,
    .recognise = folder_recognise,
    .leave = folder_leave,
    .find = folder_find,
    .in_child = folder_in_child,
};

BPS_LAUNCHER_NOTE(VARIABLE);
BPS_PLUGIN_MODULE(BPS_KIND_LAUNCHER, "folder", "1", "Apache-2.0", .summary = "a folder of the job", .ops = &folder_ops);
