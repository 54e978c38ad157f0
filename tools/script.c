/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script.c - what the program does in Python. The scripts are found in the directories of $BYTEPS_SCRIPT_PATH or in the
 * installed one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/place.h"
#include "tools/cmd.h"

char *bps_cmd_find_script(const char *script)
{
    const char *path = getenv("BYTEPS_SCRIPT_PATH");
    while (path != NULL && *path != '\0') {
        size_t n = strcspn(path, ":");
        char *file = bps_cmd_print("%.*s/%s", (int)n, path, script);
        if (access(file, R_OK) == 0) {
            return file;
        }
        free(file);
        path += n + (path[n] == ':');
    }
    return bps_cmd_print("%s/%s", bps_place(BPS_PLACE_SCRIPTS), script);
}

int bps_cmd_become_script(const char *command, const char *python, const char *script, char *const *words)
{
    size_t n = 0;
    while (words[n] != NULL) {
        n++;
    }
    char *file = bps_cmd_find_script(script);
    const char **all = bps_cmd_alloc(n + 4, sizeof *all);
    all[0] = python;
    all[1] = "-B"; /* leaves nothing in the folder of the scripts */
    all[2] = file;
    memcpy(all + 3, words, n * sizeof *all);
    const char *what = file;
    if (access(file, R_OK) == 0) {
        execvp(all[0], (char *const *)all);
        what = all[0];
    }
    int result = bps_cmd_failure(command, "cannot start %s: %s", what, strerror(errno));
    free(all);
    free(file);
    return result;
}
