/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reducer_oracle.h - what the kernels of a reducer must give, computed one element at a time.
 *
 * Slow and plain on purpose, and without anything of the kernels: formats of 8 and 16 bits are read and
 * rounded by their definition; float32 is computed in double and rounded once more (which is exact, as 53 >=
 * 2 * 24 + 2).
 */
#ifndef BPS_TOOLS_CHECK_REDUCER_ORACLE_H
#define BPS_TOOLS_CHECK_REDUCER_ORACLE_H

#include <byteps/reducer.h>

size_t oracle_size(uint32_t dtype);
uint32_t oracle_accumulator(uint32_t dtype);
bool oracle_is_float(uint32_t dtype);

/* The same as the kernels of (op, dtype), for buffers of any alignment that do not overlap. */
void oracle_first(uint32_t dtype, void *acc, const void *src, size_t count, double scale);
void oracle_fold(uint32_t op, uint32_t dtype, void *acc, const void *src, size_t count, double scale);
void oracle_finish(uint32_t dtype, void *dst, const void *acc, size_t count, double scale, uint64_t divisor);
/* `reduce` of an average of n integers. */
void oracle_average(uint32_t dtype, void *dst, const void *const *src, unsigned n, size_t count);

#endif
