/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay.c - a switch that is far away: it forwards frames between interfaces by their addresses, each after the same
 * delay, and drops some at random. For kernels without netem; needs root.
 *
 * relay DELAY LOSS SEED INTERFACE...    in microseconds; of 1,000,000 frames; says "ready", and goes on until its input
 *                                       ends
 *
 * Interfaces should hand over single frames (gso_max_segs 1): what comes as one is lost as one.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "round.h"

#define MAX_PORTS 64
#define BATCH     64
#define BUFFER    (64 << 20)
#define HEADER    10u     /* of struct virtio_net_hdr: checksums that are not made yet stay so */
#define FRAME     2048u   /* with the header */
#define FRAMES    262144u /* on the way, at most: 150 ms of ten full links of 1 Gbit/s */

struct frame {
    uint64_t due; /* ns */
    uint32_t bytes, from;
};

struct relay {
    struct pollfd port[MAX_PORTS + 1]; /* the last is the input */
    unsigned ports, addresses;
    struct {
        uint8_t address[ETH_ALEN];
        unsigned port;
    } known[MAX_PORTS];
    uint64_t delay, loss, random, first, count;
    uint8_t *memory; /* FRAMES of FRAME bytes */
    struct frame *frame;
};

static int open_port(const char *name)
{
    int yes = 1, size = BUFFER, fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, htons(ETH_P_ALL));
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    address.sll_ifindex = (int)if_nametoindex(name);
    bool works = fd >= 0 && address.sll_ifindex > 0 &&
                 setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof yes) == 0 &&
                 setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes) == 0 &&
                 setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size) == 0 &&
                 setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size) == 0 &&
                 bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (!works) {
        bench_fail("%s: %m", name);
    }
    return fd;
}

/* The port where frames from that address come from; `ports`: none yet. */
static unsigned find(const struct relay *r, const uint8_t *address)
{
    for (unsigned i = 0; i < r->addresses; i++) {
        if (memcmp(r->known[i].address, address, ETH_ALEN) == 0) {
            return r->known[i].port;
        }
    }
    return r->ports;
}

static void learn(struct relay *r, const uint8_t *address, unsigned port)
{
    if (find(r, address) == r->ports && r->addresses < MAX_PORTS) {
        memcpy(r->known[r->addresses].address, address, ETH_ALEN);
        r->known[r->addresses++].port = port;
    }
}

/* xorshift: the same frames of the same traffic are lost with the same seed. */
static bool is_lost(struct relay *r)
{
    r->random ^= r->random << 13;
    r->random ^= r->random >> 7;
    r->random ^= r->random << 17;
    return r->random % 1000000 < r->loss;
}

static uint8_t *memory_of(const struct relay *r, uint64_t number)
{
    return r->memory + number % FRAMES * FRAME;
}

/* Takes what a port has; the frames that stay move together. */
static void take(struct relay *r, unsigned port)
{
    struct mmsghdr message[BATCH] = {0};
    struct iovec iov[BATCH];
    unsigned room = FRAMES - r->count < BATCH ? (unsigned)(FRAMES - r->count) : BATCH;
    for (unsigned i = 0; i < room; i++) {
        iov[i] = (struct iovec){memory_of(r, r->first + r->count + i), FRAME};
        message[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
    }
    int got = recvmmsg(r->port[port].fd, message, room, 0, NULL);
    uint64_t due = bench_now() + r->delay;
    for (int i = 0; i < got; i++) {
        learn(r, (uint8_t *)iov[i].iov_base + HEADER + ETH_ALEN, port);
        if (!is_lost(r)) {
            uint64_t number = r->first + r->count++;
            if (memory_of(r, number) != iov[i].iov_base) {
                memcpy(memory_of(r, number), iov[i].iov_base, message[i].msg_len);
            }
            r->frame[number % FRAMES] = (struct frame){due, message[i].msg_len, port};
        }
    }
}

/* What a port has no room for is lost, as in a switch. */
static void give(struct relay *r)
{
    for (uint64_t now = bench_now(); r->count > 0 && r->frame[r->first % FRAMES].due <= now; r->first++, r->count--) {
        const struct frame *frame = &r->frame[r->first % FRAMES];
        uint8_t *memory = memory_of(r, r->first);
        unsigned to = find(r, memory + HEADER);
        for (unsigned i = 0; i < r->ports; i++) {
            if (i == to || (to == r->ports && i != frame->from)) {
                (void)!write(r->port[i].fd, memory, frame->bytes);
            }
        }
    }
}

static void wait_for_work(struct relay *r)
{
    struct timespec rest = {1, 0};
    if (r->count > 0) {
        uint64_t due = r->frame[r->first % FRAMES].due, now = bench_now();
        rest = (struct timespec){0, due > now ? (long)(due - now) : 0};
    }
    if (ppoll(r->port, r->ports + 1, &rest, NULL) < 0 && errno != EINTR) {
        bench_fail("ppoll: %m");
    }
}

int main(int argc, char **argv)
{
    static struct relay r;
    r.ports = argc > 4 ? (unsigned)argc - 4 : 0;
    if (r.ports < 1 || r.ports > MAX_PORTS) {
        bench_fail("usage: relay DELAY LOSS SEED INTERFACE...");
    }
    r.delay = strtoull(argv[1], NULL, 10) * 1000;
    r.loss = strtoull(argv[2], NULL, 10);
    r.random = strtoull(argv[3], NULL, 10) * 0x9e3779b97f4a7c15u + 1;
    r.memory = calloc(FRAMES, FRAME);
    r.frame = calloc(FRAMES, sizeof *r.frame);
    if (r.memory == NULL || r.frame == NULL) {
        bench_fail("out of memory");
    }
    for (unsigned i = 0; i < r.ports; i++) {
        r.port[i] = (struct pollfd){open_port(argv[4 + i]), POLLIN, 0};
    }
    r.port[r.ports] = (struct pollfd){STDIN_FILENO, POLLIN, 0};
    (void)prctl(PR_SET_TIMERSLACK, 1ul);
    (void)setpriority(PRIO_PROCESS, 0, -20);
    (void)!write(STDOUT_FILENO, "ready\n", 6);
    while ((r.port[r.ports].revents & (POLLHUP | POLLIN)) == 0) {
        wait_for_work(&r);
        for (unsigned i = 0; i < r.ports; i++) {
            if ((r.port[i].revents & POLLIN) != 0) {
                take(&r, i);
            }
        }
        give(&r);
    }
    return 0;
}
