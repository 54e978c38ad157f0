/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mail.h - what two ranks of a stand-in communicator send each other: one box for each way, through which a
 * message passes in pieces. All messages of a group travel at once; those of one way in their order.
 */
#ifndef MAIL_H
#define MAIL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAIL_PIECE (64u << 10)
#define MAIL_MOST  1024 /* messages of a group */

struct mail_box {
    _Atomic uint64_t put, taken; /* pieces */
    uint64_t total;              /* bytes of the message whose piece lies here */
    unsigned char data[MAIL_PIECE];
};

struct mail {
    struct mail_box *box;
    bool sends;
    unsigned char *memory;
    size_t bytes, done;
};

/* Carries all of them. False: a message is not as long as its receiver expects, or `stop` was set. */
bool mail_carry(struct mail *mail, unsigned n, const atomic_bool *stop);

#endif
