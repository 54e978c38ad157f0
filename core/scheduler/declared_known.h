/* SPDX-License-Identifier: Apache-2.0 */
/* declared_known.h - the table of declared tensors from what workers know of it, after its scheduler was lost. */
#ifndef BPS_DECLARED_KNOWN_H
#define BPS_DECLARED_KNOWN_H

#include "scheduler/declared.h"

/* Zero at first; the rounds are the caller's to free. */
struct bps_recall {
    uint32_t *round; /* by id: the latest that workers have told who have forgotten a tensor of it */
    uint32_t n;
    size_t room;
    uint32_t last; /* the largest id that any of them knows, or knew */
};

/* Adds what a worker's KNOWN message says. BPS_ERR_PROTOCOL: it cannot be true, or not together with the others'. */
bps_status bps_declared_recall(struct bps_declared *declared, uint32_t rank, struct bps_reader *known,
                               struct bps_recall *recall);
/* All have said it: places are taken, and ids that nobody uses are free. */
bps_status bps_declared_settle(struct bps_declared *declared, const struct bps_recall *recall);
/* A worker that waits for the end of a move hears where tensors go, as others have heard it before. */
void bps_declared_end_move(const struct bps_declared *declared, uint32_t rank, bps_declared_send_fn send, void *arg);

#endif
