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

/* At the end of a launcher's file: its module, of these operations, and the variable without which it is not there. */
#define LAUNCHER_MODULE(name_, variable_, summary_, ops_)                                                              \
    static const struct bps_plugin launcher_plugin = {                                                                 \
        .size = sizeof launcher_plugin,                                                                                \
        .kind = BPS_KIND_LAUNCHER,                                                                                     \
        .name = (name_),                                                                                               \
        .summary = (summary_),                                                                                         \
        .ops = &(ops_),                                                                                                \
        .format = 1,                                                                                                   \
    };                                                                                                                 \
    static const struct bps_plugin *const launcher_plugins[] = {&launcher_plugin};                                     \
    static const struct bps_module launcher_module = {                                                                 \
        .magic = BPS_PLUGIN_MAGIC,                                                                                     \
        .size = sizeof launcher_module,                                                                                \
        .abi_major = BPS_ABI_MAJOR,                                                                                    \
        .abi_minor = BPS_ABI_MINOR,                                                                                    \
        .name = (name_),                                                                                               \
        .version = PLUGIN_VERSION,                                                                                     \
        .license = "Apache-2.0",                                                                                       \
        .nplugins = 1,                                                                                                 \
        .plugins = launcher_plugins,                                                                                   \
    };                                                                                                                 \
    BPS_PLUGIN_NOTE(BPS_KIND_LAUNCHER, name_, PLUGIN_VERSION);                                                         \
    BPS_LAUNCHER_NOTE(variable_);                                                                                      \
    const struct bps_module *BPS_PLUGIN_ENTRY(void)                                                                    \
    {                                                                                                                  \
        return &launcher_module;                                                                                       \
    }

#endif
