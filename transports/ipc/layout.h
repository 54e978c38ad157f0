/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - what two processes share: the rings of a channel, and the messages on its socket.
 *
 * The dialler makes one sealed memfd for each channel: a page of indices, then a ring for each direction. A
 * ring is bytes with two ever growing indices; records are contiguous, multiples of a line, and never cross
 * the end. Each side writes its own indices, keeps a copy of them to itself, and believes nothing that it
 * reads of the other's.
 */
#ifndef IPC_LAYOUT_H
#define IPC_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

#include <byteps/transport.h>

#define IPC_LINE 64u  /* of the cache; alignment of records, and of the payload of IPC_MORE behind them */
#define IPC_HEAD 192u /* a record with the header of a frame, up to the next line: a payload begins with one */
#define IPC_PAGE 4096u

/* ---- the rings ---- */

struct ipc_side {
    _Alignas(128) _Atomic uint64_t tail;     /* what it has written to its ring */
    _Alignas(128) _Atomic uint64_t head;     /* what it has taken from the other ring */
    _Alignas(128) _Atomic uint32_t sleeping; /* set by it, taken back by whoever signals: announce records */
    _Atomic uint32_t waiting;                /* while it sleeps, progress of the other's head as well */
    _Alignas(128) _Atomic uint32_t ended;    /* its channel has ended: do not touch its memory any more */
    _Atomic uint32_t writing;                /* it writes to the other's memory: the end waits for that */
};

struct ipc_shared {
    _Alignas(IPC_PAGE) struct ipc_side side[2]; /* 0: the dialler */
};
_Static_assert(sizeof(struct ipc_shared) == IPC_PAGE, "the rings begin at the second page");

/* Kinds of records; those marked + have the header of a frame behind the record. */
#define IPC_PAD    1u /* nothing until the end of the ring */
#define IPC_INLINE 2u /* + and the payload behind that */
#define IPC_STREAM 3u /* + the payload follows in IPC_MORE */
#define IPC_MORE   4u /* a piece of it; multiples of BPS_SINK_GRAIN but for the last */
#define IPC_MAPPED 5u /* + the payload lies in a region */
#define IPC_REMOTE 6u /* + the payload lies at an address of the sender */
#define IPC_RETURN 7u /* + a loan comes back */

#define IPC_LENDABLE   1u /* flag: the receiver may keep the payload, and write its answer, until the return */
#define IPC_UNANSWERED 2u /* flag, with that one: there is no place for an answer */

/* What became of a payload that could have been lent. */
#define IPC_TAKEN 1u
#define IPC_LENT  2u

struct ipc_record {
    uint32_t size; /* of the record with all that belongs to it, a multiple of IPC_LINE */
    uint16_t kind, flags;
    uint32_t bytes;                 /* inline, more: of payload in this record */
    uint32_t ticket, serial;        /* lendable, return: which loan */
    uint32_t region, answer_region; /* mapped */
    uint32_t verdict;               /* lendable: written by the receiver before it moves its head */
    uint64_t at, answer;            /* offsets in the regions (mapped) or addresses (remote) */
};
_Static_assert(sizeof(struct ipc_record) + BPS_HEADER_BYTES <= IPC_HEAD && IPC_HEAD % IPC_LINE == 0, "both have room");

/* ---- the socket ---- */

#define IPC_MAGIC   0x49535042u /* "BPSI" */
#define IPC_VERSION 4u

/* Types of messages, with the descriptors that come along. */
#define IPC_HELLO   1u /* dialler: memfd, eventfd */
#define IPC_WELCOME 2u /* acceptor: eventfd */
#define IPC_READY   3u /* dialler: none; frames may come */
#define IPC_REGION  4u /* memfd: frames may point into it; numbers only grow */
#define IPC_FORGET  5u /* none: they do not any more */

#define IPC_FDS_MAX 2u

struct ipc_message {
    uint32_t magic, version, type;
    uint32_t ring;            /* hello: bytes of each ring */
    uint32_t region;          /* region, forget */
    uint32_t reach;           /* welcome, ready: 0, or why the other's memory was not read: an errno */
    uint64_t bytes, offset;   /* region */
    uint64_t nonce, nonce_at; /* hello, welcome: 8 bytes and where they lie, for a trial */
    uint8_t unused[8];
};
_Static_assert(sizeof(struct ipc_message) == 64, "as on the socket");

#endif
