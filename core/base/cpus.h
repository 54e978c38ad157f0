/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpus.h - sets of cores, as large as any kernel's, and their text in the kernel's notation: "0-3,8".
 *
 * A core here is what the kernel calls a CPU: one hardware thread.
 */
#ifndef BPS_BASE_CPUS_H
#define BPS_BASE_CPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <byteps/plugin.h>

#define BPS_CPUS_LIMIT 8192u
#define BPS_CPUS_WORD  (8u * (unsigned)sizeof(unsigned long))
#define BPS_CPUS_WORDS (BPS_CPUS_LIMIT / BPS_CPUS_WORD)

/* Laid out as a cpu_set_t of that size. */
struct bps_cpus {
    unsigned long bits[BPS_CPUS_WORDS];
};

static inline void bps_cpus_clear(struct bps_cpus *cpus)
{
    memset(cpus, 0, sizeof *cpus);
}

static inline void bps_cpus_add(struct bps_cpus *cpus, unsigned cpu)
{
    cpus->bits[cpu / BPS_CPUS_WORD] |= 1ul << (cpu % BPS_CPUS_WORD);
}

static inline bool bps_cpus_has(const struct bps_cpus *cpus, unsigned cpu)
{
    return cpu < BPS_CPUS_LIMIT && (cpus->bits[cpu / BPS_CPUS_WORD] >> (cpu % BPS_CPUS_WORD) & 1) != 0;
}

static inline bool bps_cpus_equal(const struct bps_cpus *a, const struct bps_cpus *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

unsigned bps_cpus_count(const struct bps_cpus *cpus);
static inline bool bps_cpus_empty(const struct bps_cpus *cpus)
{
    return bps_cpus_count(cpus) == 0;
}
/* The lowest member from `cpu` on; BPS_CPUS_LIMIT: none. */
unsigned bps_cpus_next(const struct bps_cpus *cpus, unsigned cpu);
/* `out` may be one of the operands. */
void bps_cpus_and(const struct bps_cpus *a, const struct bps_cpus *b, struct bps_cpus *out);
void bps_cpus_without(const struct bps_cpus *a, const struct bps_cpus *b, struct bps_cpus *out);
void bps_cpus_or(const struct bps_cpus *a, const struct bps_cpus *b, struct bps_cpus *out);

/*
 * Numbers and ranges separated by commas, blanks allowed around them; an empty text is the empty set. The
 * report says what is wrong and what is expected, without the text. `out` is set only on success.
 */
bps_status bps_cpus_parse(const char *text, struct bps_cpus *out, struct bps_report *report);
/* "0-3,8"; "none" for the empty set; cut if it is too long. */
void bps_cpus_format(const struct bps_cpus *cpus, char *text, size_t n);

/* Several sets in one text, separated by colons: "0-3:4-7". How many they are, 0 for an empty text. */
unsigned bps_cpus_lists(const char *text);
/* The set number `index`, which none of them may leave empty. */
bps_status bps_cpus_list(const char *text, unsigned index, struct bps_cpus *out, struct bps_report *report);

#endif
