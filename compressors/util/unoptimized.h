/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unoptimized.h - included first in kernels that a sanitizer watches: optimized, what it adds to them takes a minute to
 * compile, for each of them and each instruction set. CFLAGS, which the builder chooses, would come after an -O0.
 */
#ifdef __clang__
#pragma clang optimize off
#else
#pragma GCC optimize("O0")
#endif
