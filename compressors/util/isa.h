/* SPDX-License-Identifier: Apache-2.0 */
/* isa.h - which instruction sets a compressor has kernels for, and which of them this CPU can run. */
#ifndef BPS_COMPRESSOR_ISA_H
#define BPS_COMPRESSOR_ISA_H

#include <byteps/plugin.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

/* The values of the option isa; the instruction sets themselves, each faster than those before it. */
#define ISA_WORDS "auto|baseline|avx2|avx512"
#define ISA_HELP  "Instruction set of the kernels; auto takes the best that this CPU has. All give the same results."
#define ISAS      3u

static const char *const isa_names[ISAS] = {"baseline", "avx2", "avx512"};

/* A plugin's kernels by instruction set; NULL: the compiler could not make them. */
struct isa_tables {
    const void *of[ISAS];
};

/* __builtin_cpu_supports also asks whether the system saves the registers. Not every compiler knows F16C. */
static inline bool isa_runs(uint32_t isa)
{
    if (isa == 0) {
        return true;
    }
#ifdef __x86_64__
    unsigned a, b, c, d;
    bool avx2 = __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    return avx2 && (isa == 1 || (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")));
#else
    return false;
#endif
}

/*
 * The kernels for a word of ISA_WORDS, given by its index, and the name of their instruction set; auto is the last
 * usable one. NULL, with a report, if this build or this CPU lacks it.
 */
static inline const void *isa_choose(const struct isa_tables *tables, uint32_t word, const char **name,
                                     struct bps_report *report)
{
    const void *best = NULL;
    for (uint32_t isa = 0; isa < ISAS; isa++) {
        if ((word == 0 || word == isa + 1) && tables->of[isa] != NULL && isa_runs(isa)) {
            best = tables->of[isa];
            *name = isa_names[isa];
        }
    }
    if (best == NULL) {
        BPS_REPORT(report, "isa = \"%s\": %s; \"auto\" takes what can be used here",
                   word <= ISAS ? isa_names[word - 1] : "?",
                   word <= ISAS && tables->of[word - 1] == NULL ? "this build has no kernels for it"
                                                                : "this CPU does not have it");
    }
    return best;
}

#endif
