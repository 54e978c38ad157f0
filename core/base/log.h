/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h - one line per message on standard error: time level role/rank component: text.
 *
 * Thread-safe. The level and the identity of the process are set once, when it joins a job.
 */
#ifndef BPS_BASE_LOG_H
#define BPS_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include <byteps/plugin.h> /* BPS_LOG_* */

void bps_log_set_level(uint32_t level);
uint32_t bps_log_level(void);
/* "worker/0", "server/1", "scheduler"; "" before the process has a role. Copied. */
void bps_log_set_identity(const char *identity);
/*
 * Reads anew whether colours are wanted, and the time zone: when a process begins its part, and never while
 * it has one. Writing a line does not read the environment, which another thread may change.
 */
void bps_log_read_environment(void);
/* Only for the program byteps, where a prefix is put before every line anyway. */
void bps_log_hide_time(bool hide);

void bps_log_write(uint32_t level, const char *component, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define BPS_LOG(level, component, ...)                                                                                 \
    do {                                                                                                               \
        if ((level) <= bps_log_level()) {                                                                              \
            bps_log_write((level), (component), __VA_ARGS__);                                                          \
        }                                                                                                              \
    } while (0)

#define bps_error(component, ...) BPS_LOG(BPS_LOG_ERROR, component, __VA_ARGS__)
#define bps_warn(component, ...)  BPS_LOG(BPS_LOG_WARN, component, __VA_ARGS__)
#define bps_info(component, ...)  BPS_LOG(BPS_LOG_INFO, component, __VA_ARGS__)
#define bps_debug(component, ...) BPS_LOG(BPS_LOG_DEBUG, component, __VA_ARGS__)

#endif
