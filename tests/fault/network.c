/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network.c - a network that changes bits, or where somebody reads along: what this process sends over TCP arrives
 * otherwise, or is written down.
 *
 * Of some frames of one type (of slices, those with 1 KiB and more) the first bit of the payload is another one. This
 * stands in for sendmsg() of the library, in whatever is linked with it. What is sent again counts again.
 */
#include "network.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define HEADER 96
#define PUSH   32
#define LEAST  1024u
#define PIECES 128u

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *message, int flags);

static _Atomic unsigned flipped, first_flip, flips;

void flip_frames(unsigned type, unsigned first, unsigned count)
{
    flipped = type;
    first_flip = first;
    flips = count;
}

static _Atomic int recording = -1;

bool record_frames(const char *path)
{
    recording = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    return recording >= 0;
}

static void record(const struct msghdr *message, ssize_t sent)
{
    for (size_t i = 0; i < message->msg_iovlen && sent > 0; i++) {
        size_t bytes = message->msg_iov[i].iov_len < (size_t)sent ? message->msg_iov[i].iov_len : (size_t)sent;
        if (write(recording, message->msg_iov[i].iov_base, bytes) != (ssize_t)bytes) {
            abort();
        }
        sent -= (ssize_t)bytes;
    }
}

static int is_meant(const struct iovec *header, const struct iovec *payload)
{
    return header->iov_len == HEADER && ((const uint8_t *)header->iov_base)[4] == flipped &&
           payload->iov_len >= (flipped < PUSH ? 1 : LEAST);
}

/* The place of the first such payload among the pieces; 0: there is none. *before: bytes in front of it. */
static size_t find_frame(const struct msghdr *message, size_t *before)
{
    *before = 0;
    for (size_t i = 1; i < message->msg_iovlen; i++) {
        *before += message->msg_iov[i - 1].iov_len;
        if (is_meant(&message->msg_iov[i - 1], &message->msg_iov[i])) {
            return i;
        }
    }
    return 0;
}

/* Several threads send: one at a time, so that none of the frames is passed over. */
static ssize_t flip(ssize_t (*real)(int, const struct msghdr *, int), int fd, struct msghdr changed, int flags,
                    size_t at, size_t before)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static unsigned seen;
    struct iovec pieces[PIECES];
    uint8_t *copy = NULL;
    pthread_mutex_lock(&lock);
    memcpy(pieces, changed.msg_iov, changed.msg_iovlen * sizeof *pieces);
    changed.msg_iov = pieces;
    if (seen + 1 >= first_flip && seen + 1 - first_flip < flips && (copy = malloc(pieces[at].iov_len)) != NULL) {
        memcpy(copy, pieces[at].iov_base, pieces[at].iov_len);
        copy[0] ^= 1;
        pieces[at].iov_base = copy;
    }
    ssize_t sent = real(fd, &changed, flags);
    seen += sent > (ssize_t)before; /* else its first byte is yet to be sent */
    pthread_mutex_unlock(&lock);
    free(copy);
    return sent;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    ssize_t (*real)(int, const struct msghdr *, int);
    size_t before, at = flips > 0 && message->msg_iovlen < PIECES ? find_frame(message, &before) : 0;
    *(void **)&real = dlsym(RTLD_NEXT, "sendmsg");
    ssize_t sent = at > 0 ? flip(real, fd, *message, flags, at, before) : real(fd, message, flags);
    if (recording >= 0) {
        record(message, sent);
    }
    return sent;
}
