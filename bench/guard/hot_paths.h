/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hot_paths.h - what the cases share. A case is one operation of a hot path, the same each time: fixed input,
 * one thread, no decision that rests on the clock. So the number of its instructions depends on code alone.
 */
#ifndef BPS_BENCH_HOT_PATHS_H
#define BPS_BENCH_HOT_PATHS_H

#include "plugin/instance.h"

struct hot_path {
    const char *name;           /* NULL ends a list */
    unsigned times;             /* that the operation is counted */
    void (*open)(const void *); /* makes what the operation needs; the end of the process frees it */
    void (*run)(void);          /* the operation */
    const void *arg;            /* of open */
};

extern const struct hot_path hot_paths_core[], hot_paths_job[], hot_paths_reducer[], hot_paths_sum[],
    hot_paths_transport[];

/* Ends the program with this text unless it holds. */
void hot_path_need(bool holds, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The reducer cpu with the kernels that run on every processor. */
struct bps_instance *hot_path_reducer(void);

#endif
