/* SPDX-License-Identifier: Apache-2.0 */
/* sequence.h - numbers that come in any order, each once: up to which all are there. */
#ifndef BPS_BASE_SEQUENCE_H
#define BPS_BASE_SEQUENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bps_sequence {
    uint32_t next;  /* the first that is not there */
    uint64_t *bits; /* those from there on that are */
    size_t words;
};

/* The number that is so far ahead of `next` is there. False: no memory. */
bool bps_sequence_add(struct bps_sequence *sequence, uint32_t ahead);
void bps_sequence_fini(struct bps_sequence *sequence);

#endif
