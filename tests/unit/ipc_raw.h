/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_raw.h - a peer of the transport over shared memory by hand: it says and writes whatever it is told to.
 * For tests and for fuzzing; it is not watched by any loop and never blocks.
 */
#ifndef IPC_RAW_H
#define IPC_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../transports/ipc/layout.h"

struct raw {
    int fd, memory, event; /* socket, memfd, an eventfd of its own */
    struct ipc_shared *shared;
    uint8_t *out, *in; /* the rings */
    uint32_t bytes;    /* of each */
    uint64_t tail;     /* of what it has written */
    uint64_t nonce;
};

/* Connects and makes the rings. False: the system refuses. */
bool raw_open(struct raw *raw, const char *address);
void raw_close(struct raw *raw);
/* The hello of an honest peer. */
struct ipc_message raw_hello(const struct raw *raw);
/* Sends the first `size` bytes of a message. False: nobody listens any more. */
bool raw_send(const struct raw *raw, const struct ipc_message *message, size_t size, const int *fds, unsigned nfds);
/* Reads a message; its descriptors are closed. 1: there was one, 0: not now, -1: the other end is closed. */
int raw_receive(const struct raw *raw, struct ipc_message *message);
/* A file of memory; sealed against shrinking or not. */
int raw_memory(uint64_t bytes, bool sealed);
/* The next record in the ring, zeroed, with its size set. NULL: there is no room in a row. */
struct ipc_record *raw_record(struct raw *raw, uint32_t size, uint16_t kind);
/* Makes the record visible; a loop that turns sees it. */
void raw_publish(struct raw *raw, const struct ipc_record *record);

#endif
