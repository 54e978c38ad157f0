/* SPDX-License-Identifier: Apache-2.0 */
/* isa.c - chooses an instruction set by what the compiler could make and what CPU and system support. */
#include "isa.h"

#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "kernels.h"

static bool runs_baseline(void)
{
    return true;
}

#ifdef __x86_64__

/* __builtin_cpu_supports also asks whether the system saves the registers. Not every compiler knows F16C. */
static bool runs_avx2(void)
{
    unsigned a, b, c, d;

    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool runs_avx512(void)
{
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool runs_avx512bf16(void)
{
    return runs_avx512() && __builtin_cpu_supports("avx512bf16");
}

#else

static bool runs_never(void)
{
    return false;
}

#define runs_avx2       runs_never
#define runs_avx512     runs_never
#define runs_avx512bf16 runs_never

#endif

#ifdef HAVE_AVX2
#define TABLE_AVX2 &bps_cpu_table_avx2
#else
#define TABLE_AVX2 NULL
#endif

#ifdef HAVE_AVX512
#define TABLE_AVX512 &bps_cpu_table_avx512
#else
#define TABLE_AVX512 NULL
#endif

#ifdef HAVE_AVX512BF16
#define TABLE_AVX512BF16 &bps_cpu_table_avx512bf16
#else
#define TABLE_AVX512BF16 NULL
#endif

/* In the order of CPU_ISA_WORDS, without auto: each one is faster than those before it. */
static const struct cpu_isa isas[] = {
    {"baseline", "nothing", &bps_cpu_table_baseline, runs_baseline},
    {"avx2", "AVX2 and F16C", TABLE_AVX2, runs_avx2},
    {"avx512", "AVX-512 F, BW, DQ and VL", TABLE_AVX512, runs_avx512},
    {"avx512bf16", "AVX-512 F, BW, DQ, VL and BF16", TABLE_AVX512BF16, runs_avx512bf16},
};

#define ISAS (sizeof(isas) / sizeof(isas[0]))

/* Writes "baseline, avx2" into text: what can be used here. */
static void list_usable(char *text, size_t n)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < ISAS; i++) {
        if (isas[i].table && isas[i].runs()) {
            snprintf(text + used, n - used, "%s%s", used ? ", " : "", isas[i].name);
            used = strlen(text);
        }
    }
}

const struct cpu_isa *bps_cpu_isa_choose(uint32_t word, struct bps_report *report)
{
    const struct cpu_isa *best = NULL;
    char usable[128];

    if (word > ISAS) {
        BPS_REPORT(report, "isa: %u is not an instruction set; expected 0 (auto) to %zu", word, ISAS);
        return NULL;
    }
    for (size_t i = 0; i < ISAS; i++) {
        if ((word == 0 || word == i + 1) && isas[i].table && isas[i].runs()) {
            best = &isas[i];
        }
    }
    if (!best) {
        list_usable(usable, sizeof usable);
        if (isas[word - 1].table) {
            BPS_REPORT(report,
                       "isa = \"%s\": this CPU does not have %s; it can run: %s. "
                       "Choose one of them or \"auto\"",
                       isas[word - 1].name, isas[word - 1].needs, usable);
        } else {
            BPS_REPORT(report,
                       "isa = \"%s\": this build has no kernels for it; usable here: %s. "
                       "Choose one of them or \"auto\", or build with a compiler that knows %s",
                       isas[word - 1].name, usable, isas[word - 1].needs);
        }
    }
    return best;
}
