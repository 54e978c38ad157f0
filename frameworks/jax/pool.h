/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h - threads for work that may block, as many as are needed at once. */
#ifndef BYTEPS_JAX_POOL_H
#define BYTEPS_JAX_POOL_H

/* One piece of work; the caller's memory until it runs. */
struct work {
    void (*run)(struct work *work);
    struct work *next;
};

/* Runs the work on a thread of the pool, soon; thread-safe. */
void pool_run(struct work *work);

#endif
