/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_as.c - `byteps run --as`: programs written for another library find BytePS under its name. What they import lies
 * in a folder of the scripts, as/NAME, which Python searches before all others.
 */
#include "tools/run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder and its module; freed by the caller. */
static char *find(const char *name)
{
    char *script = bps_cmd_print("as/%s/%s.py", name, name);
    char *file = bps_cmd_find_script(script);
    free(script);
    return file;
}

int bps_run_as_check(const char *name)
{
    if (strcmp(name, "horovod") != 0) {
        return bps_cmd_usage(BPS_RUN_NAME, "--as: '%s' is not an API that BytePS provides; expected horovod", name);
    }
    char *file = find(name);
    int status = -1;
    if (access(file, R_OK) != 0) {
        status = bps_cmd_failure(BPS_RUN_NAME, "--as %s: there is no %s; reinstall BytePS", name, file);
    }
    free(file);
    return status;
}

void bps_run_as_environment(const char *name)
{
    const char *own = getenv("PYTHONPATH");
    char *folder = find(name);
    *strrchr(folder, '/') = '\0';
    char *path = bps_cmd_print("%s%s%s", folder, own && *own ? ":" : "", own && *own ? own : "");
    if (setenv("PYTHONPATH", path, 1) != 0) {
        _exit(BPS_EXIT_FAILURE);
    }
    free(path);
    free(folder);
}
