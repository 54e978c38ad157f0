/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - the kernels of one instruction set.
 *
 * kernels.c is compiled once for each instruction set; each time it defines one of these tables. isa.c knows
 * which of them this build has and which this CPU can run.
 */
#ifndef BPS_CPU_KERNELS_H
#define BPS_CPU_KERNELS_H

#include <byteps/reducer.h>

struct cpu_table {
    struct bps_kernels of[BPS_OPS][BPS_DTYPES]; /* [operation][type]; none for BPS_AVERAGE */
};

extern const struct cpu_table bps_cpu_table_baseline;
extern const struct cpu_table bps_cpu_table_avx2;
extern const struct cpu_table bps_cpu_table_avx512;
extern const struct cpu_table bps_cpu_table_avx512bf16;

#endif
