/* SPDX-License-Identifier: Apache-2.0 */
/* usage.c - what the process of a test has, so that it is seen what the plugin has not given back. */
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

#include "tools/check/check.h"

static unsigned entries(const char *folder)
{
    unsigned count = 0;
    DIR *dir = opendir(folder);
    while (dir != NULL && readdir(dir) != NULL) {
        count++;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

/* A sanitizer maps memory of its own as it pleases, and keeps what is freed: none is counted then. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define COUNTS_MAPPED false
#else
#define COUNTS_MAPPED true
#endif

static uint64_t mapped_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = COUNTS_MAPPED ? fopen("/proc/self/statm", "re") : NULL;
    if (file != NULL) {
        if (fscanf(file, "%lu", &pages) != 1) {
            pages = 0;
        }
        fclose(file);
    }
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

struct bps_check_usage bps_check_usage_now(void)
{
    struct mallinfo2 heap = mallinfo2();
    return (struct bps_check_usage){
        .allocated = heap.uordblks + heap.hblkhd,
        .mapped = mapped_bytes(),
        .descriptors = entries("/proc/self/fd"),
        .threads = entries("/proc/self/task"),
    };
}

static void compare(struct bps_check *check, const char *what, uint64_t before, uint64_t now, uint64_t least,
                    unsigned rounds)
{
    BPS_CHECK(check, now < before + least * rounds + (least == 1 ? 0 : 4096), "leaks %s: %llu more after %u rounds",
              what, (unsigned long long)(now - before), rounds);
}

void bps_check_usage_same(struct bps_check *check, const struct bps_check_usage *before, unsigned rounds)
{
    struct bps_check_usage now = bps_check_usage_now();
    compare(check, "bytes of memory", before->allocated, now.allocated, 16, rounds); /* malloc()'s least */
    compare(check, "mapped bytes", before->mapped, now.mapped, (uint64_t)sysconf(_SC_PAGESIZE), rounds);
    compare(check, "descriptors", before->descriptors, now.descriptors, 1, rounds);
    compare(check, "threads", before->threads, now.threads, 1, rounds);
}
