/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search.c - where plugins lie: directories, file names, and who may have written them.
 */
#include "base/place.h"
#include "plugin/search.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/report.h"
#include "plugin/registry.h"

const char *bps_plugin_dir(void)
{
    return bps_place(BPS_PLACE_PLUGINS);
}

/* ---- directories -------------------------------------------------------------------------------------- */

/* Empty and repeated entries are left out. */
static bool add_dir(struct bps_dirs *dirs, const char *dir, size_t n)
{
    while (n > 1 && dir[n - 1] == '/') {
        n--;
    }
    for (size_t i = 0; i < dirs->count; i++) {
        if (strncmp(dirs->items[i], dir, n) == 0 && dirs->items[i][n] == '\0') {
            return true;
        }
    }
    if (n == 0) {
        return true;
    }
    char *item = bps_array_reserve(dirs->items, dirs->room, dirs->count + 1) ? strndup(dir, n) : NULL;
    if (item) {
        dirs->items[dirs->count++] = item;
    }
    return item != NULL;
}

bps_status bps_dirs_get(struct bps_dirs *out, struct bps_report *report)
{
    /* A program that runs with more rights than its caller does not let the caller choose its code. */
    const char *path = secure_getenv("BYTEPS_PLUGIN_PATH");
    struct bps_dirs dirs = {0};
    bool ok = true;

    while (ok && path && *path) {
        size_t n = strcspn(path, ":");
        ok = add_dir(&dirs, path, n);
        path += n + (path[n] == ':');
    }
    if (!ok || !add_dir(&dirs, bps_plugin_dir(), strlen(bps_plugin_dir()))) {
        bps_dirs_release(&dirs);
        return bps_fail(report, BPS_ERR_NOMEM, "out of memory while looking for plugins");
    }
    *out = dirs;
    return BPS_OK;
}

void bps_dirs_release(struct bps_dirs *dirs)
{
    for (size_t i = 0; i < dirs->count; i++) {
        free(dirs->items[i]);
    }
    free(dirs->items);
    *dirs = (struct bps_dirs){0};
}

bool bps_dirs_find(const struct bps_dirs *dirs, const char *file, char *path, size_t n)
{
    struct stat st;

    for (size_t i = 0; i < dirs->count; i++) {
        int length = snprintf(path, n, "%s/%s", dirs->items[i], file);
        if (length > 0 && (size_t)length < n && (lstat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR))) {
            return true;
        }
    }
    return false;
}

/* ---- trust -------------------------------------------------------------------------------------------- */

/* True if code that somebody else could have written must not run in this process. */
static bool is_privileged(void)
{
    return geteuid() == 0 || getauxval(AT_SECURE) != 0;
}

/* Whoever it belongs to can write it, too. */
static bool is_owner_trusted(const struct stat *st)
{
    return st->st_uid == 0 || st->st_uid == getuid() || st->st_uid == geteuid();
}

/* The directory where the file really lies: a link to it may lie elsewhere. */
static bps_status trust_directory(const char *path, struct bps_report *report)
{
    char real[PATH_MAX];
    struct stat st;

    if (!realpath(path, real) || stat(dirname(real), &st) != 0) {
        return bps_fail(report, BPS_ERR_IO, "its directory cannot be read: %s", strerror(errno));
    }
    if ((st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX)) {
        return bps_refuse(report,
                          "its directory can be written by everyone (mode %04o), and this process is privileged; "
                          "chmod o-w %.800s",
                          (unsigned)st.st_mode & 07777, real);
    }
    if (!is_owner_trusted(&st)) {
        return bps_refuse(report,
                          "its directory belongs to user %u, neither to root nor to the user of this process, which is "
                          "privileged; chown root %.800s",
                          (unsigned)st.st_uid, real);
    }
    return BPS_OK;
}

static bps_status trust_file(int fd, const char *path, struct bps_report *report)
{
    struct stat st;

    if (fstat(fd, &st) != 0) {
        return bps_fail(report, BPS_ERR_IO, "cannot be read: %s", strerror(errno));
    }
    if (st.st_mode & S_IWOTH) {
        return bps_refuse(report,
                          "can be written by everyone (mode %04o), and this process is privileged; chmod o-w %s",
                          (unsigned)st.st_mode & 07777, path);
    }
    if (!is_owner_trusted(&st)) {
        return bps_refuse(report,
                          "belongs to user %u, neither to root nor to the user of this process, which is privileged; "
                          "chown root %s",
                          (unsigned)st.st_uid, path);
    }
    return trust_directory(path, report);
}

bps_status bps_code_open(const char *path, int *fd, struct bps_report *report)
{
    /* O_NONBLOCK: a pipe of this name must not stop us. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*fd < 0) {
        return bps_refuse(report, "cannot be opened: %s", strerror(errno));
    }
    bps_status status = is_privileged() ? trust_file(*fd, path, report) : BPS_OK;
    if (status != BPS_OK) {
        close(*fd);
    }
    return status;
}
