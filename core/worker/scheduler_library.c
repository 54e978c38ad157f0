/* SPDX-License-Identifier: Apache-2.0 */
/* scheduler_library.c - opens the library of the scheduler, which lies where plugins do. Part of libbyteps alone. */
#include <byteps/byteps.h>
#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/report.h"
#include "base/text.h"
#include "plugin/file.h"
#include "plugin/search.h"
#include "scheduler/ops.h"

#define LIBRARY "libbyteps_scheduler.so"

static bps_status report_no_library(const struct bps_dirs *dirs, struct bps_report *report)
{
    struct bps_text text = {0};
    bps_text_add(&text, "to host the scheduler, this process needs " LIBRARY ", which comes with libbyteps; "
                        "install it or name its directory in BYTEPS_PLUGIN_PATH; it is not in ");
    bps_dirs_text(dirs, &text);
    bps_fail(report, BPS_ERR_PLUGIN, "%s", text.failed ? "out of memory" : text.data);
    bps_text_free(&text);
    return BPS_ERR_PLUGIN;
}

static bps_status open_library(const char *path, const struct bps_scheduler_ops **out, struct bps_report *report)
{
    int fd;
    bps_status status = bps_code_open(path, &fd, report);
    if (status != BPS_OK) {
        return status;
    }
    close(fd);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const struct bps_scheduler_ops *ops = handle != NULL ? dlsym(handle, "bps_scheduler_ops") : NULL;
    if (ops == NULL) {
        return bps_refuse(report, "cannot be loaded: %s; it must be the one that was built with libbyteps %s",
                          bps_linker_error(path), bps_version());
    }
    if (strcmp(ops->version, bps_version()) != 0) {
        return bps_refuse(report, "is of version %s, but libbyteps of version %s; install both of one version",
                          ops->version, bps_version());
    }
    *out = ops;
    return BPS_OK;
}

bps_status bps_scheduler_open(const struct bps_scheduler_ops **out, struct bps_report *report)
{
    char path[PATH_MAX];
    struct bps_dirs dirs;
    struct bps_report why = {""};
    bps_status status = bps_dirs_get(&dirs, report);
    if (status != BPS_OK) {
        return status;
    }
    if (!bps_dirs_find(&dirs, LIBRARY, path, sizeof path)) {
        status = report_no_library(&dirs, report);
    } else {
        status = open_library(path, out, &why);
        if (status != BPS_OK) {
            bps_report_at(report, path, why.text);
        }
    }
    bps_dirs_release(&dirs);
    return status;
}
