/* SPDX-License-Identifier: Apache-2.0 */
/* util.h - what several launchers need in the same way. It is linked into each of them. */
#ifndef BPS_LAUNCHERS_UTIL_H
#define BPS_LAUNCHERS_UTIL_H

#include <byteps/launcher.h>

#include <time.h>

#define LAUNCHER_MS 1000000ull
#define LAUNCHER_S  1000000000ull

/* Now, on the clock of `until`. */
static inline uint64_t launcher_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * LAUNCHER_S + (uint64_t)t.tv_nsec;
}

/* Writes the report, which may be NULL, and returns the status. */
bps_status launcher_fail(struct bps_report *report, bps_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* For launchers whose state belongs to the process: an instance that is nothing. */
bps_status launcher_open_nothing(const struct bps_host *host, const void *options, void **instance_out,
                                 struct bps_report *report);
void launcher_close_nothing(void *instance);

#endif
