/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.h - what a member says of itself to the scheduler when it joins.
 */
#ifndef BPS_NODE_JOIN_H
#define BPS_NODE_JOIN_H

#include <byteps/types.h>

#include "wire/message.h"
#include "wire/proof.h"

#define BPS_IS_NEW      (-1)
#define BPS_JOINS_AGAIN (-2) /* it is new, and has waited at a scheduler that was lost */
#define BPS_COMES_IN    (-3) /* a server that comes into a job that runs */

struct bps_join {
    uint32_t role;
    int32_t rank, local_rank, local_size; /* wanted; -1: any */
    int32_t before;                       /* its rank in the last generation of an elastic job; or one of these: */
    uint64_t host_id;                     /* equal on the same host */
    uint32_t pid;
    uint32_t bandwidth; /* server.bandwidth in thousandths; 0: it is not told */
    uint32_t speed;     /* Mbit/s of the network device; 0: it does not say */
    char host[64];
    char job[128];
    char local[128]; /* where other workers of its host can dial it; "": nowhere */
    uint8_t public_key[BPS_KEY_BYTES];
    char *agreement; /* values that must be equal on all members; owned, */
    char *loaded;    /* as bps_loaded_text(), of what it runs */
};

/* The first byte of a LEAVE message to the scheduler. */
enum bps_leave {
    BPS_LEAVE_FOR_GOOD,
    BPS_LEAVE_SOON,      /* to reform; it begins nothing any more */
    BPS_LEAVE_TO_REFORM, /* its last operation has ended */
};

void bps_join_write(const struct bps_join *join, struct bps_writer *w);
/* BPS_ERR_PROTOCOL; on success the caller frees what it owns. */
bps_status bps_join_read(struct bps_reader *r, struct bps_join *out);
void bps_join_fini(struct bps_join *join);
/* Host name and a number that is equal for processes on the same host. */
void bps_join_host(struct bps_join *join);

#endif
