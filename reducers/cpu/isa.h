/* SPDX-License-Identifier: Apache-2.0 */
/* isa.h - which instruction sets this build has kernels for, and which of them this CPU can run. */
#ifndef BPS_CPU_ISA_H
#define BPS_CPU_ISA_H

#include <byteps/plugin.h>

/* The values of the option isa. */
#define CPU_ISA_WORDS "auto|baseline|avx2|avx512|avx512bf16"

struct cpu_isa {
    const char *name;
    const char *needs;             /* features of the CPU, for messages */
    const struct cpu_table *table; /* NULL: the compiler could not make it */
    bool (*runs)(void);            /* whether CPU and system have what it needs */
};

/*
 * The instruction set for a word of CPU_ISA_WORDS, given by its index; auto is the last usable one. NULL,
 * with a report, if this build or this CPU lacks it.
 */
const struct cpu_isa *bps_cpu_isa_choose(uint32_t word, struct bps_report *report);

#endif
