/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_outer.c - what the variables of a job were outside of it.
 *
 * The processes of a job have variables that say what they are. A job that one of them starts is one of its own: it
 * begins with those that the outer one has found, kept under other names.
 */
#include "tools/run.h"

#include <stdio.h>
#include <stdlib.h>

#define PREFIX "BYTEPS_OUTER_"
#define MARK   "BYTEPS_OUTER" /* set in all processes of a job */

static const char *const names[] = {
    "BYTEPS_SET", "BYTEPS_CONF",     "BYTEPS_SECRET",   "BYTEPS_LOCAL_RANK", "BYTEPS_LOCAL_SIZE", "BYTEPS_GLOBAL_RANK",
    "DMLC_ROLE",  "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_PS_ROOT_URI",  "DMLC_PS_ROOT_PORT", "DMLC_WORKER_ID",
};

/* Gives one variable the value of another one, or none. */
static bool copy(const char *from, const char *to)
{
    const char *value = getenv(from);
    return (value != NULL ? setenv(to, value, 1) : unsetenv(to)) == 0;
}

bool bps_run_keep_outer(void)
{
    bool kept = setenv(MARK, "1", 1) == 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char *other = bps_cmd_print(PREFIX "%s", names[i]);
        kept = copy(names[i], other) && kept;
        free(other);
    }
    return kept;
}

void bps_run_leave_outer(void)
{
    if (getenv(MARK) == NULL) {
        return;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char *other = bps_cmd_print(PREFIX "%s", names[i]);
        copy(other, names[i]);
        unsetenv(other);
        free(other);
    }
    unsetenv(MARK);
}
