/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame.h - the fixed header in front of everything that travels between members of a job.
 *
 * docs/wire.md describes the layout and every message.
 */
#ifndef BPS_WIRE_FRAME_H
#define BPS_WIRE_FRAME_H

#include <byteps/transport.h>

#include "base/tensor.h"

#define BPS_WIRE_VERSION 18u

/* Types of frames. Messages are small and handed over whole; a slice's payload goes through a sink. */
enum bps_frame_type {
    /* handshake of every channel */
    BPS_FRAME_CHALLENGE = 1, /* acceptor to dialler: version, nonce */
    BPS_FRAME_HELLO,         /* dialler to acceptor: who I am, and a proof of it */
    BPS_FRAME_WELCOME,       /* acceptor to dialler: come in, and a proof */
    BPS_FRAME_REFUSE,        /* acceptor to dialler: why not */
    BPS_FRAME_PING,          /* sign of life */
    BPS_FRAME_LEAVE,         /* a worker ends in order */
    /* member and scheduler */
    BPS_FRAME_ASSIGN,    /* to a member: your rank; serve? */
    BPS_FRAME_ENDPOINTS, /* to the scheduler: my shards listen here */
    BPS_FRAME_BOOK,      /* to a member: everybody, and all shards */
    BPS_FRAME_DECLARE,   /* to the scheduler: names and sizes */
    BPS_FRAME_DECLARED,  /* to a member: ids and placement */
    BPS_FRAME_WAITING,   /* to a member: who is missing */
    BPS_FRAME_LEFT,      /* to a worker: you may go; to a server: all workers have gone */
    BPS_FRAME_LOST,      /* to a member: the job has failed, and why */
    BPS_FRAME_END,       /* to a server: the job is over */
    BPS_FRAME_CHANGE,    /* to the scheduler: what I pushed in a round in which a tensor has another form */
    BPS_FRAME_CHANGED,   /* to a member: the new form, or who pushed what, or who is waited for */
    BPS_FRAME_FORGET,    /* to the scheduler: tensors that this worker has forgotten */
    BPS_FRAME_JOIN,      /* to the scheduler, first of all: who this member is, and what it must agree on */
    BPS_FRAME_RATES,     /* to the scheduler: what the channels of this member have delivered lately */
    BPS_FRAME_MOVE,      /* to a worker: tensors are about to move: which rounds have begun? None begins until MOVED */
    BPS_FRAME_BEGUN,     /* to the scheduler: these */
    BPS_FRAME_MOVED,     /* to a worker: from which round on tensors are placed otherwise, and how */
    BPS_FRAME_CLOCK,     /* to the scheduler: what time is it? And back */
    BPS_FRAME_LATENESS,  /* to the scheduler: who was late since the last one; to a worker: since the beginning */
    /* both ends of any link with checksums */
    BPS_FRAME_SPOILT, /* a frame does not come as it was sent: which one. The last frame */
    /* member and scheduler, after the loss of one */
    BPS_FRAME_RETURN, /* to the scheduler, first of all: a member of a job that runs; back: what it is to do */
    BPS_FRAME_KNOWN,  /* to the scheduler: what this worker knows of tensors */
    /* both ends of any link with checksums */
    BPS_FRAME_ACK, /* how many frames have come as they were sent, and whether others are to be sent again */
    /* member and scheduler, besides those */
    BPS_FRAME_SUSPECT,   /* to the scheduler: this worker has lost a server: which member, and why */
    BPS_FRAME_NEWCOMERS, /* to a worker of an elastic job: so many wait for the next reform */
    /* worker and server */
    BPS_FRAME_PUSH = 32, /* a slice of a contribution */
    BPS_FRAME_RESULT,    /* a slice of a result */
    BPS_FRAME_POISON,    /* this worker cannot contribute to this round of a partition: text */
    BPS_FRAME_FAILED,    /* this round of a partition has failed: text */
    BPS_FRAME_STALLED,   /* this round of a partition waits for: text */
    /* worker and worker of one host, besides those */
    BPS_FRAME_RETURNED, /* gives a loan of a failed round back */
    BPS_FRAME_READY,    /* to the coordinator: this worker has begun a round; its device, or none */
    BPS_FRAME_HOST,     /* from the coordinator: this round goes through the host */
    BPS_FRAME_FORM,     /* from the coordinator: the name of the group of devices */
    BPS_FRAME_JOINED,   /* to the coordinator: the device has joined, or why not: text */
    BPS_FRAME_ORDER,    /* from the coordinator: the next batch of the devices */
    BPS_FRAME_FETCHED,  /* to the coordinator: the leader's device has the result of a partition */
    BPS_FRAME_SEPARATE, /* either way: no group of devices from now on: text */
    /* worker to server, besides those */
    BPS_FRAME_CODING,   /* what the next number of a coding stands for on this lane: text */
    BPS_FRAME_FEEDBACK, /* what has the shard lost of a partition? And back: bytes of that */
    BPS_FRAME_HELD,     /* to an heir: this worker has slices of the result of a round: a bit for each; none: all */
    BPS_FRAME_WANT,     /* to a worker: others have not, send me this one */
    BPS_FRAME_FINAL,    /* to a server: this one: bytes of it */
    BPS_FRAME_GROUP, /* on each lane, before all else of a process group: its members; or it has ended for this one */
};

/*
 * The status of a POISON and of the FAILED that follows, if the sender has another form of the tensor than the job
 * knows: whoever gets it tells the scheduler what it has pushed itself. One below those of operations (types.h).
 */
#define BPS_WIRE_CHANGED (-16)

/* CHANGED: in place of a status; no answer yet, but which workers it waits for. */
#define BPS_WIRE_WAITING 255u

/* PUSH: stands for the whole partition and has no payload (a receiver of a broadcast). */
#define BPS_FLAG_EMPTY 1u
/* POISON: the sender wants FAILED as well, since another worker's reason may have come first. */
#define BPS_FLAG_ANSWER 1u
/* GROUP: the sender has ended all that it had in the group. */
#define BPS_FLAG_ENDS 1u
/* PUSH, POISON: stands for all ranks of the sender's group, who are on one host and whose sum it carries. */
#define BPS_FLAG_GROUP 2u
/* PUSH, POISON, FAILED: of a tensor that all workers of a host send to all others; no answer is wanted. */
#define BPS_FLAG_EXCHANGE 4u

/* FAILED, within a host: of a stage behind the network, which has summed the partition; what coding left moves on. */
#define BPS_FLAG_SUMMED 8u

/* PUSH that is coded: it brings what coding the sums of this slice has lost at the shard, which forgets that. */
#define BPS_FLAG_BRINGS 8u

/* PUSH, of the worker that speaks for rank 0: the next round of the partition is to be coded. RESULT: it is, by all. */
#define BPS_FLAG_CODES 16u
/* PUSH that is coded: its round loses nothing, and its elements are as they are, of the type that is coded. */
#define BPS_FLAG_EXACT 32u
/*
 * PUSH that is not: some rows, of so many bytes as `slice` says, or `root` with BPS_FLAG_KEEPS, and not all of the
 * partition: base/rows.h.
 */
#define BPS_FLAG_ROWS 32u
/*
 * PUSH that is coded, FEEDBACK to a shard: the sender's last round of the partition did not count, and if all say so,
 * neither does what coding has lost of its sum.
 */
#define BPS_FLAG_DROPPED 64u
/* PUSH, POISON, FAILED, HELD, WANT, FINAL: of a tensor whose shards keep a value, to which each push is added. */
#define BPS_FLAG_KEEPS 128u
/* PUSH with BPS_FLAG_KEEPS: the answers are to have tails, of what is in them. */
#define BPS_FLAG_COUNTS 16u

/* The fields in the order in which they travel, each at a multiple of its size. */
struct bps_header {
    uint32_t length; /* of the payload, bytes */
    uint8_t type, flags, dtype, op;
    uint32_t epoch;
    uint32_t tensor;
    uint64_t bytes;     /* of the whole tensor; FAILED: the largest of all contributions */
    uint32_t partition; /* index */
    uint32_t round;
    uint32_t offset; /* of the slice in the partition, bytes */
    uint32_t root;
    double prescale; /* of a coded PUSH the learning rate: it has been scaled before */
    double postscale;
    int32_t priority;
    uint16_t coding; /* of a PUSH: the number of the CODING that it is coded by; 0: it is not */
    uint16_t shape;  /* of a PUSH or READY of a tensor without a name: bps_form_mark() */
    uint32_t size;   /* of the partition, bytes */
    uint32_t slice;  /* of a PUSH that is not coded: bytes of slices but the last; 0: as configured. Of rows: of one */
    uint32_t step;   /* of a PUSH that is recorded, its trace id: the training's step, counted from 1; 0: it is not */
    uint16_t last;   /* of a PUSH for a group: the rank that came last to its sum; */
    uint16_t late;   /* and how late, a bucket of base/lateness.h + 1; 0: that is not told */
    uint32_t view;   /* of a PUSH or POISON: the view that its round is placed by, the same on all workers; 0: none. */
                     /* With BPS_FLAG_KEEPS, of a PUSH or HELD: the newest one in which a server was lost; 0: none */
    uint32_t group;  /* the process group of the operation, whose tensors have no names; 0: all workers */
    uint64_t checksum; /* over header and payload: the link's, which puts it there and takes it away; else 0 */
};

void bps_header_encode(const struct bps_header *header, uint8_t out[BPS_HEADER_BYTES]);
/* BPS_ERR_PROTOCOL: not a header of this version. Checks only what holds for every type. */
bps_status bps_header_decode(const uint8_t in[BPS_HEADER_BYTES], struct bps_header *out);

/* Frames that tell of an error carry its status, without the sign, in `root`. */
static inline bps_status bps_wire_status(uint32_t root)
{
    return root >= 1 && root <= -BPS_WIRE_CHANGED ? -(bps_status)root : BPS_ERR_FAILED;
}

#endif
