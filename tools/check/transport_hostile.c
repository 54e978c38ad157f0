/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport_hostile.c - peers that are none: bytes of strangers, halves of frames, and headers that the core refuses.
 * Their channel ends, and no other.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/check/transport_tests.h"
#include "tools/check/values.h"

static const struct bps_stream some = {120, 6, 50000, NULL, 0, 0};

static bool is_closed(void *arg)
{
    const struct bps_end *end = arg;
    return end->closed > 0;
}

/* A channel beside the one that ends, with frames under way. */
static void begin_beside(struct bps_pair *beside, struct bps_side sides[2])
{
    const struct bps_stream stream = {121, 40, 100000, NULL, 0, 0};
    bps_pair_begin(beside, &sides[0], &sides[1], &stream);
    beside->dials.open_for = 20;
    bps_pair_connect(beside, 0);
}

static void end_beside(struct bps_pair *beside)
{
    bps_check_at(beside->dials.check, "another channel, after one with a stranger");
    beside->dials.open_for = UINT32_MAX;
    bps_end_kick(&beside->dials);
    bps_pairs_wait(beside, 1);
    bps_pairs_finish(beside, 1);
    bps_pair_free(beside);
}

/* ---- headers that the core refuses ---- */

void bps_check_transport_header(struct bps_check *check)
{
    struct bps_side sides[2];
    struct bps_pair beside, pair;
    bps_sides_open(check, sides);
    begin_beside(&beside, sides);
    for (unsigned i = 0; i < 2; i++) {
        bps_pair_begin(&pair, &sides[0], &sides[1], &some);
        struct bps_end *end = i == 0 ? &pair.listens : &pair.dials, *other = i == 0 ? &pair.dials : &pair.listens;
        bps_check_at(check, "header returns BPS_ERR_MISMATCH for frame 3");
        end->refuse_header = 4;
        end->may_close = other->may_close = true;
        bps_pair_connect(&pair, 0);
        bps_sides_wait(check, is_closed, end, end, 1);
        bps_sides_wait(check, is_closed, other, other, 1);
        BPS_CHECK(check, end->status == BPS_ERR_MISMATCH, "closed is called with %d (%s); expected %d", end->status,
                  bps_strerror(end->status), BPS_ERR_MISMATCH);
        bps_pair_free(&pair);
    }
    end_beside(&beside);
    bps_sides_close(sides);
}

/* ---- bytes of strangers ---- */

/* A socket that is connected to where the side listens; -1: that is no address of IPv4. */
static int connect_to(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    const char *colon = strrchr(address, ':');
    char host[64] = "";
    if (colon == NULL || (size_t)(colon - address) >= sizeof host) {
        return -1;
    }
    memcpy(host, address, (size_t)(colon - address));
    to.sin_port = htons((uint16_t)atoi(colon + 1));
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1) {
        return -1;
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Random bytes; in every other message they begin as a frame does, whose end does not come. */
static size_t make_bytes(struct bps_check *check, unsigned round, uint8_t *bytes, size_t most)
{
    uint64_t random = 122 + round;
    size_t n = 1 + bps_check_random(&random) % most;
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)bps_check_random(&random);
    }
    if (round % 2 == 0) {
        uint8_t header[BPS_HEADER_BYTES];
        bps_stream_header(&some, 0, BPS_STREAM_FRAME, header);
        memcpy(bytes, header, n < sizeof header ? n : sizeof header);
        if (n > sizeof header) {
            size_t whole = bps_stream_bytes(&some, 0), rest = n - sizeof header < whole ? n - sizeof header : whole / 2;
            memcpy(bytes + sizeof header, bps_stream_payload(check, &some, 0), rest);
            n = sizeof header + rest;
        }
    }
    return n;
}

static bool stranger_is_gone(void *arg)
{
    const struct bps_end *end = arg;
    return end->closed > 0 || end->side->refused > 0;
}

static bool stranger_has_come(void *arg)
{
    return ((const struct bps_end *)arg)->channel != NULL || stranger_is_gone(arg);
}

static void write_bytes(struct bps_side *side, unsigned round)
{
    struct bps_end end = {.side = side, .name = "the end that has accepted a stranger", .out = some, .in = some};
    uint8_t bytes[3000];
    int fd = connect_to(side->address);
    BPS_CHECK(side->check, fd >= 0, "nobody listens on %s", side->address);
    size_t n = make_bytes(side->check, round, bytes, sizeof bytes);
    bps_check_at(side->check, "%zu bytes of a stranger, %s", n, round % 2 == 0 ? "half a frame" : "random ones");
    bps_end_begin(&end);
    end.may_close = end.mistrusts = true;
    side->next = &end;
    side->refused = 0;
    BPS_CHECK(side->check, send(fd, bytes, n, MSG_NOSIGNAL) >= 0, "the bytes cannot be sent");
    if (round % 3 != 0) {
        shutdown(fd, SHUT_WR);
    }
    bps_sides_drive(side->check, stranger_has_come, &end, 1000); /* before the next one does */
    bps_sides_drive(side->check, stranger_is_gone, &end, 5);
    close(fd);
    if (end.channel != NULL) {
        bps_sides_wait(side->check, is_closed, &end, &end, 1);
        BPS_CHECK(side->check, end.status < 0, "closed is called with status %d; expected is an error", end.status);
    }
    side->next = NULL;
    bps_end_free(&end);
}

void bps_check_transport_strangers(struct bps_check *check)
{
    struct bps_side sides[2];
    struct bps_pair beside;
    bps_sides_open(check, sides);
    int fd = sides[1].attr.local ? -1 : connect_to(sides[1].address);
    if (fd < 0) {
        bps_check_skip(check, "it does not listen on an address of a socket");
    }
    close(fd);
    bps_sides_drive(check, stranger_is_gone, &(struct bps_end){.side = &sides[1]}, 20);
    begin_beside(&beside, sides);
    for (unsigned i = 0; i < 60; i++) {
        write_bytes(&sides[1], i);
    }
    end_beside(&beside);
    bps_sides_close(sides);
}
