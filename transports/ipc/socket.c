/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socket.c - Unix sockets with abstract names: messages of one size, with descriptors.
 *
 * An abstract name stands in no file system and is gone with its socket. Everybody in the network namespace
 * can connect to it, so that the kernel is asked who did.
 */
#include "ipc.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool ipc_address_parse(const char *text, struct sockaddr_un *address, socklen_t *length)
{
    size_t n = strlen(text);
    if (text[0] != '@' || n < 2 || n >= sizeof address->sun_path) {
        return false;
    }
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path + 1, text + 1, n - 1);
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    return true;
}

bool ipc_address_make(char *text, size_t n)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != sizeof random) {
        return false;
    }
    snprintf(text, n, "@byteps-%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    return true;
}

int ipc_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

bool ipc_credentials(int fd, pid_t *pid, uid_t *uid)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
        *pid = 0;
        *uid = (uid_t)-1;
        return false;
    }
    *pid = peer.pid;
    *uid = peer.uid;
    return peer.uid == geteuid() || peer.uid == 0;
}

/* ---- messages ---- */

union control {
    char bytes[CMSG_SPACE(IPC_FDS_MAX * sizeof(int))];
    struct cmsghdr align;
};

int ipc_message_send(int fd, const struct ipc_message *message, const int *fds, unsigned nfds)
{
    struct ipc_message copy = *message;
    struct iovec iov = {&copy, sizeof copy};
    union control control;
    struct msghdr out = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;
    copy.magic = IPC_MAGIC;
    copy.version = IPC_VERSION;
    if (nfds > 0) {
        memset(&control, 0, sizeof control);
        out.msg_control = control.bytes;
        out.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&out);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(nfds * sizeof(int));
        memcpy(CMSG_DATA(head), fds, nfds * sizeof(int));
    }
    do {
        n = sendmsg(fd, &out, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? errno : 0;
}

/* The descriptors of a message, and how many; the kernel drops those that do not fit into the buffer. */
static unsigned collect_fds(struct msghdr *in, int fds[IPC_FDS_MAX])
{
    unsigned have = 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(in); head != NULL; head = CMSG_NXTHDR(in, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t n = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n && have < IPC_FDS_MAX; i++) {
            memcpy(&fds[have++], CMSG_DATA(head) + i * sizeof(int), sizeof(int));
        }
    }
    return have;
}

static void close_fds(int fds[IPC_FDS_MAX])
{
    for (unsigned i = 0; i < IPC_FDS_MAX; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
            fds[i] = -1;
        }
    }
}

bps_status ipc_message_receive(int fd, struct ipc_message *message, int fds[IPC_FDS_MAX])
{
    struct iovec iov = {message, sizeof *message};
    union control control;
    struct msghdr in = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof control.bytes,
    };
    ssize_t n;
    for (unsigned i = 0; i < IPC_FDS_MAX; i++) {
        fds[i] = -1;
    }
    do {
        n = recvmsg(fd, &in, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        /* A peer that closes with messages unread causes ECONNRESET, once; what it sent is still there. */
    } while (n < 0 && (errno == EINTR || errno == ECONNRESET));
    if (n < 0) {
        return errno == EAGAIN ? BPS_AGAIN : BPS_ERR_IO;
    }
    unsigned have = collect_fds(&in, fds);
    if (n == 0 && have == 0) {
        return BPS_ERR_IO;
    }
    if ((in.msg_flags & MSG_CTRUNC) != 0 && have < IPC_FDS_MAX) {
        close_fds(fds);
        return BPS_ERR_NOMEM;
    }
    if ((size_t)n != sizeof *message || (in.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || message->magic != IPC_MAGIC ||
        message->version != IPC_VERSION) {
        close_fds(fds);
        return BPS_ERR_PROTOCOL;
    }
    return BPS_OK;
}
