/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote.c - the ordinary memory of another process, by process_vm_readv() and process_vm_writev().
 *
 * The kernel allows it to processes of one user unless Yama (ptrace_scope), seccomp or a container says no.
 * Hence the trial: 8 bytes, whose value the peer has told, so that a process number of another namespace does
 * not deceive us.
 */
#include "ipc.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define WAITS  20000  /* of 0.1 ms, for a peer that writes to memory of ours */
#define MOMENT 100000 /* 0.1 ms */
#define DEATH  5000   /* ms, that the end of a process may take */

/* 0, or an errno. */
static int copy(pid_t pid, uint64_t address, void *memory, uint32_t bytes, bool write)
{
    while (bytes > 0) {
        const struct iovec here = {memory, bytes};
        const struct iovec there = {(void *)(uintptr_t)address, bytes};
        ssize_t n =
            write ? process_vm_writev(pid, &here, 1, &there, 1, 0) : process_vm_readv(pid, &here, 1, &there, 1, 0);
        if (n <= 0) {
            return n == 0 ? EFAULT : errno;
        }
        memory = (uint8_t *)memory + n;
        address += (uint64_t)n;
        bytes -= (uint32_t)n;
    }
    return 0;
}

uint32_t ipc_remote_try(pid_t pid, uint64_t nonce_at, uint64_t nonce)
{
    uint64_t seen = 0;
    int error = pid > 0 ? copy(pid, nonce_at, &seen, sizeof seen, false) : ESRCH;
    if (error == 0 && seen != nonce) {
        error = ESRCH;
    }
    return (uint32_t)error;
}

/*
 * What was read counts only if the peer had not ended by then: before, it does not use its memory for
 * anything else.
 */
static bps_status status_of(const struct bps_channel *channel, int error)
{
    if (atomic_load(&channel->ring.peer->ended) != 0) {
        return BPS_ERR_IO;
    }
    if (error == 0) {
        return BPS_OK;
    }
    return error == EFAULT ? BPS_ERR_PROTOCOL : BPS_ERR_IO;
}

bps_status ipc_remote_read(const struct bps_channel *channel, uint64_t address, void *to, uint32_t bytes)
{
    return status_of(channel, copy(channel->pid, address, to, bytes, false));
}

bps_status ipc_remote_write(const struct bps_channel *channel, uint64_t address, const void *from, uint32_t bytes)
{
    const struct ipc_ring *ring = &channel->ring;
    int error = EPIPE;
    /* Either we see that the peer has ended, or it sees that we write, and waits. */
    atomic_store(&ring->own->writing, 1);
    if (atomic_load(&ring->peer->ended) == 0) {
        error = copy(channel->pid, address, (void *)(uintptr_t)from, bytes, true);
    }
    atomic_store(&ring->own->writing, 0);
    return status_of(channel, error);
}

/* Whether the peer still says that it writes here, after two seconds. */
static bool keeps_writing(const struct bps_channel *channel)
{
    const struct timespec moment = {.tv_nsec = MOMENT};
    for (int i = 0; i < WAITS && !channel->eof; i++) {
        if (atomic_load(&channel->ring.peer->writing) == 0) {
            return false;
        }
        nanosleep(&moment, NULL);
    }
    return !channel->eof;
}

/* Whether the process has come to its end; its number may be another one's by now, which does not know our peer's. */
static bool end_process(const struct bps_channel *channel)
{
    int fd = pidfd_open(channel->pid, 0);
    struct pollfd end = {.fd = fd, .events = POLLIN};
    bool is_peer = ipc_remote_try(channel->pid, channel->nonce_at, channel->nonce) == 0;
    bool ended = !is_peer || (fd >= 0 && pidfd_send_signal(fd, SIGKILL, NULL, 0) == 0 && poll(&end, 1, DEATH) == 1);
    if (fd >= 0) {
        close(fd);
    }
    return ended;
}

/*
 * The memory is our user's again when the channel has ended. A peer that was stopped in the middle of writing would go
 * on with that later, whatever the memory is used for by then; there is no other way to stop it for good.
 */
void ipc_remote_end(const struct bps_channel *channel)
{
    const struct bps_host *host = channel->ipc->host;
    atomic_store(&channel->ring.own->ended, 1);
    while (keeps_writing(channel)) {
        bool ours = channel->pid == getpid();
        if (!ours && end_process(channel)) {
            host->log(host, BPS_LOG_WARN, "%s was killed: it was stopped for seconds while it wrote to memory here",
                      channel->peer);
            return;
        }
        host->log(host, BPS_LOG_WARN, "waiting for %s, which is stopped while it writes to memory here", channel->peer);
    }
}

void ipc_remote_describe(char *text, size_t n)
{
    static const char *const scopes[] = {"", ", only as far as ptracer allows it (Yama's ptrace_scope is 1)",
                                         ", only for privileged processes (Yama's ptrace_scope is 2)", NULL};
    uint64_t here = 1, there = 2;
    int error = copy(getpid(), (uintptr_t)&there, &here, sizeof here, false);
    char line[16];
    bps_util_read_line("/proc/sys/kernel/yama/ptrace_scope", line, sizeof line);
    int scope = line[0] != '\0' ? line[0] - '0' : 0;
    if (error != 0) {
        snprintf(text, n, "process_vm_readv forbidden (%s)", strerror(error));
    } else if (scope >= 3) {
        snprintf(text, n, "process_vm_readv forbidden (Yama's ptrace_scope is %d)", scope);
    } else {
        snprintf(text, n, "process_vm_readv allowed%s", scope > 0 ? scopes[scope] : "");
    }
}
