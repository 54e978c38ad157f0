/* SPDX-License-Identifier: Apache-2.0 */
/* weigh.h - the hosts of a book, and what the shares of hosts mean for the shards on them. */
#ifndef BPS_WEIGH_H
#define BPS_WEIGH_H

#include "node/book.h"
#include "scheduler/share.h"

struct bps_hosts {
    uint32_t count;
    uint32_t *of;            /* by member */
    struct bps_share *share; /* of each host */
    uint32_t *servers;       /* on each */
};

/* Who is where, who sends and who serves; links are equal, and shares are those that the book's weights give. */
bps_status bps_hosts_init(struct bps_hosts *hosts, const struct bps_book *book);
void bps_hosts_fini(struct bps_hosts *hosts);
/* Gives the shards of the book the shares of their hosts. BPS_ERR_FAILED: those make no sense. */
bps_status bps_hosts_weigh(const struct bps_hosts *hosts, struct bps_book *book);

#endif
