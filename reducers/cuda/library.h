/* SPDX-License-Identifier: Apache-2.0 */
/* library.h - functions of a library that is looked for at run time, so that the plugin works without it. */
#ifndef CUDA_LIBRARY_H
#define CUDA_LIBRARY_H

#include <byteps/plugin.h>

struct cuda_library {
    const char *name;
    const char *missing, *old; /* what to do if it is not there; what to install if it is too old */
    struct cuda_function {
        const char *symbol;
        size_t offset; /* in the table */
        bool optional; /* where it is missing, the table has NULL */
    } const *functions;
    size_t count;
};

/* Fills in the table. The library stays loaded: it keeps threads and has destructors. */
bps_status cuda_library_load(const struct cuda_library *library, void *table, struct bps_report *report);

#endif
