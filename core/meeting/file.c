/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c - a file in a folder that all processes of the job see, which BYTEPS_MEETING_FILE names, for launchers that
 * tell ranks and nothing else. Worker 0 puts each note whole and readable by its user alone, holds a lock on it while
 * the job lives, and removes it with the job. So a note with a lock is another job's, and one without has been left by
 * a job that was killed.
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
#define GIVE_UP    (5 * BPS_S) /* for a job before this one whose worker 0 is just ending */

static struct {
    char path[PATH_MAX]; /* "": none */
    int fd;              /* of the note; its lock goes with it, or with the process */
} left;

static const struct timespec pause_between = {.tv_nsec = LOOK_EVERY};

static bool meeting_file_is_here(void)
{
    return bps_variable(VARIABLE) != NULL;
}

static bps_status path_of(const char *key, const char *suffix, char path[PATH_MAX], struct bps_report *report)
{
    int length = snprintf(path, PATH_MAX, "%s.%s%s", getenv(VARIABLE), key, suffix);
    return length < PATH_MAX ? BPS_OK
                             : bps_fail(report, BPS_ERR_CONF, VARIABLE ": a path of %d characters is too long", length);
}

static bps_status cannot(const char *what, const char *path, struct bps_report *report)
{
    return bps_fail(report, BPS_ERR_CONF,
                    VARIABLE ": cannot %s %s: %s; expected a file in a folder that all processes can read and write",
                    what, path, strerror(errno));
}

/* ---- worker 0 ---- */

static bool write_whole(int fd, const char *note)
{
    size_t length = strlen(note);
    return write(fd, note, length) == (ssize_t)length && fsync(fd) == 0;
}

/* Whether nobody else has it; some file systems have no locks, and then nobody is known to have it. */
static bool meeting_file_lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_SETLK, &whole) == 0 || (errno != EAGAIN && errno != EACCES);
}

/* Whether two names are of one file. */
static bool is_at(int fd, const char *path)
{
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && stat(path, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

/* Puts the draft in the place of a note that nobody holds. BPS_ERR_BUSY: somebody does. */
static bps_status replace(const char *draft, const char *path, struct bps_report *report)
{
    bps_status status = BPS_ERR_BUSY;
    int old = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (old < 0) {
        return errno == ENOENT ? BPS_ERR_BUSY : cannot("replace", path, report);
    }
    if (meeting_file_lock(old) && is_at(old, path)) { /* and as long as we have this lock, nobody else replaces it */
        status = rename(draft, path) == 0 ? BPS_OK : cannot("write", path, report);
    }
    close(old);
    return status;
}

static bps_status meeting_file_put(const char *draft, const char *path, struct bps_report *report)
{
    if (link(draft, path) == 0) {
        unlink(draft);
        return BPS_OK;
    }
    if (errno == EEXIST) {
        return replace(draft, path, report);
    }
    return rename(draft, path) == 0 ? BPS_OK : cannot("write", path, report); /* a file system without links */
}

static bps_status put_before(uint64_t until, const char *draft, const char *path, struct bps_report *report)
{
    bps_status status;
    while ((status = meeting_file_put(draft, path, report)) == BPS_ERR_BUSY && bps_now() < until) {
        nanosleep(&pause_between, NULL);
    }
    return status != BPS_ERR_BUSY
               ? status
               : bps_fail(report, BPS_ERR_CONF,
                          VARIABLE
                          ": worker 0 of another job uses %s; give each job its own file, or end the other job first",
                          path);
}

static bps_status meeting_file_leave(const char *key, const char *note, uint64_t until, struct bps_report *report)
{
    char path[PATH_MAX], draft[PATH_MAX];
    uint64_t soon = bps_now() + GIVE_UP;
    bps_status status = path_of(key, "", path, report);
    if (status == BPS_OK) {
        status = path_of(key, ".XXXXXX", draft, report);
    }
    int fd = status == BPS_OK ? mkostemp(draft, O_CLOEXEC) : -1; /* mode 0600 */
    if (fd < 0) {
        return status != BPS_OK ? status : cannot("make", draft, report);
    }
    status = write_whole(fd, note) && meeting_file_lock(fd)
                 ? put_before(soon < until ? soon : until, draft, path, report)
                 : cannot("write", path, report);
    if (status != BPS_OK) {
        unlink(draft);
        close(fd);
        return status;
    }
    snprintf(left.path, sizeof left.path, "%s", path);
    left.fd = fd;
    return BPS_OK;
}

static void meeting_file_end(void)
{
    if (left.path[0] == '\0') {
        return;
    }
    if (is_at(left.fd, left.path)) { /* without locks another attempt may have put its own there */
        unlink(left.path);
    }
    close(left.fd);
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

/* Reads a file that only this user can have written, and read. */
static bps_status read_note(int fd, const char *path, char note[BPS_NOTE_LIMIT], struct bps_report *report)
{
    struct stat is;
    if (fstat(fd, &is) != 0) {
        return cannot("read", path, report);
    }
    if (!S_ISREG(is.st_mode) || is.st_uid != geteuid() || (is.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return bps_fail(report, BPS_ERR_CONF,
                        VARIABLE ": %s was not written by worker 0: expected a file of user %u that no other user can "
                                 "read or write (mode 0600); choose a private folder",
                        path, (unsigned)geteuid());
    }
    ssize_t length = read(fd, note, BPS_NOTE_LIMIT - 1);
    if (length < 0) {
        return cannot("read", path, report);
    }
    note[length] = '\0';
    return BPS_OK;
}

static bps_status meeting_file_find(const char *key, char note[BPS_NOTE_LIMIT], uint64_t until,
                                    struct bps_report *report)
{
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
            return bps_fail(report, BPS_ERR_TIMEOUT, VARIABLE ": %s does not exist yet", path);
        }
        nanosleep(&pause_between, NULL);
        look_into_folder(path);
    }
    status = read_note(fd, path, note, report);
    close(fd);
    return status;
}

const struct bps_meeting_place bps_meeting_file = {
    .name = VARIABLE,
    .is_here = meeting_file_is_here,
    .leave = meeting_file_leave,
    .end = meeting_file_end,
    .find = meeting_file_find,
};
