/* SPDX-License-Identifier: Apache-2.0 */
/* sequence.c - see sequence.h. */
#include "base/sequence.h"

#include <stdlib.h>

#include "base/array.h"

/* So many that follow one another, at most 63, are there: those after them come to the front. */
static void shift_out(struct bps_sequence *sequence, unsigned n)
{
    uint64_t *bits = sequence->bits;
    for (size_t i = 0; i < sequence->words; i++) {
        uint64_t more = i + 1 < sequence->words ? bits[i + 1] : 0;
        bits[i] = n > 0 ? bits[i] >> n | more << (64 - n) : bits[i];
    }
    sequence->next += n;
}

bool bps_sequence_add(struct bps_sequence *sequence, uint32_t ahead)
{
    size_t word = ahead / 64, had = sequence->words;
    if (!bps_array_reserve(sequence->bits, sequence->words, word + 1)) {
        return false;
    }
    for (size_t i = had; i < sequence->words; i++) {
        sequence->bits[i] = 0;
    }
    sequence->bits[word] |= 1ull << (ahead % 64);
    while ((sequence->bits[0] & 1) != 0) {
        unsigned run = (unsigned)__builtin_ctzll(~(sequence->bits[0] & INT64_MAX));
        shift_out(sequence, run);
    }
    return true;
}

void bps_sequence_fini(struct bps_sequence *sequence)
{
    free(sequence->bits);
    *sequence = (struct bps_sequence){.next = 0};
}
