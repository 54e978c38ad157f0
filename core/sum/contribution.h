/* SPDX-License-Identifier: Apache-2.0 */
/* contribution.h - the words between those who sum and their owners: what a worker pushes, and what it is told. */
#ifndef BPS_SUM_CONTRIBUTION_H
#define BPS_SUM_CONTRIBUTION_H

#include <stdbool.h>

#include "base/roles.h"
#include "base/tensor.h"
#include "coding/coding.h"

/* How the contributions to a partition meet. The same partition may have been of another kind before. */
enum bps_key_kind {
    BPS_KEY_ROUNDS,   /* each round is summed here, for all */
    BPS_KEY_EXCHANGE, /* everybody sums for himself: exchange.h */
    BPS_KEY_VALUE,    /* a value stays, to which each push is added: value.h */
};
#define BPS_KEY_KINDS 4u /* that there is room for */

/* A round of a partition. Of an unnamed tensor there is only round 0. */
struct bps_round_id {
    uint32_t tensor, partition, round;
    uint32_t kind; /* enum bps_key_kind */
};

/* What all contributions to a round must agree on. */
struct bps_spec {
    uint64_t bytes; /* of the tensor */
    struct bps_roles roles;
    uint8_t dtype, op, kind; /* op: the reduction, or that bytes are moved; kind: of the operation */
    uint16_t shape;          /* tells shapes apart where the tensor has no name; 0: not told, and not compared */
    uint32_t row;            /* bytes of a row, some of which are sent: base/rows.h; 0: all of it is */
    double postscale;
    const struct bps_coding *coding; /* of its slices; NULL: they are as they are */
    bool exact;                      /* the round loses nothing by that */
};

/* To a slice, from `offset` of the partition. */
struct bps_contribution {
    struct bps_round_id id;
    struct bps_spec spec;
    double prescale; /* 1 if it is coded: its sender has scaled it */
    double rate;     /* of a coded one: the learning rate; 0: not told */
    int32_t priority;
    uint32_t size;   /* of the partition, bytes */
    uint32_t slice;  /* bytes of all slices but the last, if it is not coded; 0: as configured */
    uint32_t offset; /* in the partition, bytes of the tensor */
    uint32_t length; /* of what is sent */
    uint32_t step;   /* of the training, counted from 1, if it is recorded; else 0 */
    uint16_t last;   /* of one for a group: the rank that came last to its sum; */
    uint16_t late;   /* and how late, a bucket + 1; 0: that is not told */
    uint32_t mark;   /* of one without a name: the first call of its kind that has not ended for its sender */
    uint32_t
        view; /* to a value: its sender knows of a server that was lost in this view, but of none later; 0: of none */
    bool for_group; /* it stands for all ranks of its sender's group, whose sum it is */
    bool brings;    /* a coded one: what coding this slice has lost here is in it */
    bool dropped;   /* a coded one: its sender's last round of the partition did not count */
    bool codes;     /* the next round of the partition is to be coded, which results tell */
    bool counts;    /* to a value: the answer is to have a tail (value.h) */
    bool empty;     /* it stands for the whole partition and has no payload: a receiver's to a broadcast */
};

/* A worker has slices of the result of a round, from a shard that is lost. */
struct bps_held {
    struct bps_round_id id;
    uint64_t bytes;      /* of the tensor */
    uint32_t size, grid; /* of the partition, and of all slices but the last */
    const uint8_t *bits; /* of the slices that it has, the first in the lowest; NULL: all of them */
    bool for_group;      /* it stands for all ranks of its sender's group */
};

enum bps_notice_kind {
    BPS_NOTICE_POISON,  /* a worker cannot go on with the round */
    BPS_NOTICE_FAILED,  /* it has failed */
    BPS_NOTICE_STALLED, /* it waits for somebody */
};

struct bps_notice {
    enum bps_notice_kind kind;
    struct bps_round_id id;
    uint64_t bytes;         /* of the tensor; FAILED: of the largest one that was pushed */
    uint32_t size;          /* POISON: of the partition, bytes */
    struct bps_roles roles; /* POISON: likewise */
    bps_status status;      /* POISON, FAILED */
    const char *text;
    bool summed;    /* FAILED: the network has summed it before */
    bool for_group; /* POISON: it stands for all ranks of its sender's group */
    bool answer;    /* POISON: its sender wants FAILED as well: another worker's reason may have come first */
};

#endif
