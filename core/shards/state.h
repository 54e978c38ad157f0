/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - the bytes that a state is saved as: what coding has left of a tensor's partitions. [core]
 *
 * A head: magic, version, coding, type, elements, elements of a partition. Then the parts, each with its partition,
 * elements, slices, and which arrays follow: rates of the slices, error, momentum. Several parts may be of one
 * partition, of which there is then their sum.
 */
#ifndef BPS_SHARDS_STATE_H
#define BPS_SHARDS_STATE_H

#include "shards/shards.h"

#define BPS_STATE_USED UINT32_MAX /* the partition of a part that has been taken */

struct bps_state_head {
    char coding[BPS_CODING_TEXT];
    uint32_t type;
    uint64_t count, partition; /* elements */
};

/* The arrays are where they lie in the bytes, of any alignment. */
struct bps_state_part {
    uint32_t index, slices;
    uint64_t count;
    const uint8_t *rate, *error, *momentum; /* NULL: it has none */
    const uint8_t *at;                      /* all of it */
    size_t bytes;
};

void bps_state_put_head(struct bps_writer *w, const struct bps_tensor_entry *tensor, const struct bps_coding *coding);
/* With that error; NULL: with its own. */
void bps_state_put_part(struct bps_writer *w, uint32_t partition, const struct bps_feedback *feedback,
                        const void *error);
/* False: these are no such bytes. */
bool bps_state_get_head(struct bps_reader *r, struct bps_state_head *head);
bool bps_state_get_part(struct bps_reader *r, const struct bps_state_head *head, struct bps_state_part *part);
/* to += factor * from, of any alignment. */
void bps_state_add(uint32_t type, void *to, const void *from, size_t bytes, double factor);
/* At least as much as a state of one partition has. */
uint64_t bps_state_limit(const struct bps_worker *worker);

/* Whether it is this worker that answers for what the server has lost of its partitions. */
static inline bool bps_state_speaks_for_server(const struct bps_worker *worker)
{
    return worker->job.group == 0;
}

/* Adds what is there of a tensor and has not counted yet: saved, or handed over. */
void bps_state_put_waiting(const struct bps_tensor_entry *tensor, struct bps_writer *w);

#endif
