/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c - a file in a folder that all processes of the job see, which BYTEPS_MEETING_FILE names, for launchers that
 * tell ranks and nothing else. Worker 0 puts each note whole and readable by its user alone, and removes it with the
 * job.
 */
#include "meeting/meeting.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/report.h"
#include "conf/value.h"

#define VARIABLE   "BYTEPS_MEETING_FILE"
#define LOOK_EVERY (100 * BPS_MS)

static struct {
    char path[PATH_MAX]; /* "": none */
    ino_t number;        /* another attempt may have left another one in its place since */
} left;

static bool is_here(void)
{
    return bps_variable(VARIABLE) != NULL;
}

static bps_status path_of(const char *key, const char *suffix, char path[PATH_MAX], struct bps_report *report)
{
    int length = snprintf(path, PATH_MAX, "%s.%s%s", getenv(VARIABLE), key, suffix);
    return length < PATH_MAX ? BPS_OK
                             : bps_fail(report, BPS_ERR_CONF, VARIABLE ": a path of %d letters is too long", length);
}

static bps_status cannot(const char *what, const char *path, struct bps_report *report)
{
    return bps_fail(report, BPS_ERR_CONF,
                    VARIABLE ": cannot %s %s: %s; expected a file in a folder that all processes of the job see and "
                             "may write to",
                    what, path, strerror(errno));
}

/* ---- worker 0 ---- */

static bool write_whole(int fd, const char *note)
{
    struct stat is;
    size_t length = strlen(note);
    bool written = write(fd, note, length) == (ssize_t)length && fsync(fd) == 0 && fstat(fd, &is) == 0;
    left.number = written ? is.st_ino : 0;
    return written;
}

static bps_status leave(const char *key, const char *note, uint64_t until, struct bps_report *report)
{
    char path[PATH_MAX], draft[PATH_MAX];
    (void)until;
    bps_status status = path_of(key, "", path, report);
    if (status == BPS_OK) {
        status = path_of(key, ".XXXXXX", draft, report);
    }
    int fd = status == BPS_OK ? mkostemp(draft, O_CLOEXEC) : -1; /* mode 0600 */
    if (fd < 0) {
        return status != BPS_OK ? status : cannot("make", draft, report);
    }
    bool written = write_whole(fd, note);
    if (close(fd) != 0 || !written || rename(draft, path) != 0) {
        status = cannot("write", path, report);
        unlink(draft);
        return status;
    }
    snprintf(left.path, sizeof left.path, "%s", path);
    return BPS_OK;
}

static void end(void)
{
    struct stat is;
    if (left.path[0] != '\0' && stat(left.path, &is) == 0 && is.st_ino == left.number) {
        unlink(left.path);
    }
    left.path[0] = '\0';
}

/* ---- the others ---- */

/* A client of NFS remembers for long that a file is not there, unless its folder is opened anew. */
static void look_into_folder(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    DIR *opened = opendir(dirname(folder));
    if (opened != NULL) {
        closedir(opened);
    }
}

/* Reads a file that only this user can have written. */
static bps_status read_note(int fd, const char *path, char note[BPS_NOTE_LIMIT], struct bps_report *report)
{
    struct stat is;
    if (fstat(fd, &is) != 0) {
        return cannot("read", path, report);
    }
    if (!S_ISREG(is.st_mode) || is.st_uid != geteuid() || (is.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return bps_fail(report, BPS_ERR_CONF,
                        VARIABLE ": %s has not been left by worker 0: expected a file of user %u that nobody else may "
                                 "write; choose a folder of your own",
                        path, (unsigned)geteuid());
    }
    ssize_t length = read(fd, note, BPS_NOTE_LIMIT - 1);
    if (length < 0) {
        return cannot("read", path, report);
    }
    note[length] = '\0';
    return BPS_OK;
}

static bps_status find(const char *key, char note[BPS_NOTE_LIMIT], uint64_t until, struct bps_report *report)
{
    static const struct timespec pause = {.tv_nsec = LOOK_EVERY};
    char path[PATH_MAX];
    int fd;
    bps_status status = path_of(key, "", path, report);
    if (status != BPS_OK) {
        return status;
    }
    while ((fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) < 0) {
        if (errno != ENOENT) {
            return cannot("read", path, report);
        }
        if (bps_now() >= until) {
            return bps_fail(report, BPS_ERR_TIMEOUT, VARIABLE ": %s is not there yet", path);
        }
        nanosleep(&pause, NULL);
        look_into_folder(path);
    }
    status = read_note(fd, path, note, report);
    close(fd);
    return status;
}

const struct bps_meeting_place bps_meeting_file = {
    .name = VARIABLE,
    .is_here = is_here,
    .leave = leave,
    .end = end,
    .find = find,
};
