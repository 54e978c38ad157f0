/* SPDX-License-Identifier: Apache-2.0 */
/* files.c - the soft limit is there for programs that can handle low descriptors only (select); it may be raised. */
#include "base/files.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

#define OTHERS      32u  /* a few: libraries, the log, loops */
#define COMFORTABLE 512u /* with strangers who come to see who listens */

bps_status bps_files_expect(uint64_t count, struct bps_report *report)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count + COMFORTABLE) {
        return BPS_OK;
    }
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max >= count + OTHERS) {
        return BPS_OK;
    }
    BPS_REPORT(report,
               "this process needs %" PRIu64 " open files, but its limit is %" PRIu64 "; raise the hard limit, with "
               "`ulimit -Hn` as root, limits.conf(5), or LimitNOFILE= of the service",
               count + OTHERS, (uint64_t)limit.rlim_max);
    return BPS_ERR_IO;
}

void bps_first_line(const char *path, char *text, size_t n)
{
    FILE *file = fopen(path, "re");
    if (file == NULL || fgets(text, (int)n, file) == NULL) {
        text[0] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
}
