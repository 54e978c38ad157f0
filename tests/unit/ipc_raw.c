/* SPDX-License-Identifier: Apache-2.0 */
/* ipc_raw.c - a peer of the transport over shared memory by hand. */
#include "ipc_raw.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define RING (16u << 10)

int raw_memory(uint64_t bytes, bool sealed)
{
    int fd = memfd_create("raw", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && (ftruncate(fd, (off_t)bytes) != 0 || (sealed && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0))) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool map_rings(struct raw *raw)
{
    uint64_t bytes = sizeof(struct ipc_shared) + 2ull * RING;
    raw->memory = raw_memory(bytes, true);
    void *memory =
        raw->memory >= 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, raw->memory, 0) : MAP_FAILED;
    if (memory == MAP_FAILED) {
        return false;
    }
    raw->shared = memory;
    raw->bytes = RING;
    raw->out = (uint8_t *)memory + sizeof(struct ipc_shared);
    raw->in = raw->out + RING;
    return true;
}

bool raw_open(struct raw *raw, const char *address)
{
    struct sockaddr_un peer = {.sun_family = AF_UNIX};
    size_t n = strlen(address);
    *raw = (struct raw){.memory = -1, .nonce = 0x1234567890abcdef};
    raw->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    raw->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    memcpy(peer.sun_path + 1, address + 1, n - 1);
    if (raw->event < 0 || raw->fd < 0 || !map_rings(raw) ||
        connect(raw->fd, (struct sockaddr *)&peer, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) != 0) {
        raw_close(raw);
        return false;
    }
    return true;
}

void raw_close(struct raw *raw)
{
    if (raw->shared != NULL) {
        munmap(raw->shared, sizeof(struct ipc_shared) + 2ull * RING);
    }
    for (int i = 0; i < 3; i++) {
        int *fd = i == 0 ? &raw->fd : i == 1 ? &raw->event : &raw->memory;
        if (*fd >= 0) {
            close(*fd);
        }
        *fd = -1;
    }
    raw->shared = NULL;
}

struct ipc_message raw_hello(const struct raw *raw)
{
    return (struct ipc_message){.magic = IPC_MAGIC,
                                .version = IPC_VERSION,
                                .type = IPC_HELLO,
                                .ring = RING,
                                .nonce = raw->nonce,
                                .nonce_at = (uintptr_t)&raw->nonce};
}

bool raw_send(const struct raw *raw, const struct ipc_message *message, size_t size, const int *fds, unsigned nfds)
{
    union {
        char bytes[CMSG_SPACE(8 * sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec iov = {(void *)(uintptr_t)message, size};
    struct msghdr out = {.msg_iov = &iov, .msg_iovlen = 1};
    if (nfds > 0) {
        out.msg_control = control.bytes;
        out.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&out);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(nfds * sizeof(int));
        memcpy(CMSG_DATA(head), fds, nfds * sizeof(int));
    }
    return sendmsg(raw->fd, &out, MSG_NOSIGNAL) == (ssize_t)size;
}

int raw_receive(const struct raw *raw, struct ipc_message *message)
{
    /* Without room for descriptors the kernel closes them. */
    struct iovec iov = {message, sizeof *message};
    struct msghdr in = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n = recvmsg(raw->fd, &in, MSG_CMSG_CLOEXEC);
    if (n == (ssize_t)sizeof *message) {
        return 1;
    }
    return n < 0 && errno == EAGAIN ? 0 : -1;
}

struct ipc_record *raw_record(struct raw *raw, uint32_t size, uint16_t kind)
{
    uint32_t at = (uint32_t)(raw->tail % raw->bytes);
    if (size > raw->bytes - at) {
        return NULL;
    }
    memset(raw->out + at, 0, size);
    struct ipc_record *record = (struct ipc_record *)(raw->out + at);
    record->size = size;
    record->kind = kind;
    return record;
}

void raw_publish(struct raw *raw, const struct ipc_record *record)
{
    raw->tail += record->size;
    atomic_store(&raw->shared->side[0].tail, raw->tail);
}
