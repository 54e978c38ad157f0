/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_verbs.c - the transport over RDMA carries frames: every size, from registered memory and from other,
 * with much and with little room; and its channels end in order. Needs a device.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tcp_peer.h"

const struct side_kind side_kind = {"verbs", "net", "transports.net"};

static const struct stream some = {.seed = 8, .frames = 12, .largest = 100000, .grain = 4};
static const struct stream others = {.seed = 9, .frames = 9, .largest = 100000, .grain = 4};

static struct bps_loop *loop;
static struct side left, right;
static struct peer dialler, acceptor;
static char actual[128];

static void open_sides(const char *const *options)
{
    loop = bps_loop_new();
    side_open(&left, loop, options);
    side_open(&right, loop, options);
}

static void close_sides(void)
{
    peer_fini(&dialler);
    peer_fini(&acceptor);
    side_close(&left);
    side_close(&right);
    bps_loop_free(loop);
}

static void connect_peers(const struct stream *a, const struct stream *b)
{
    peer_init(&dialler, &left, a, b);
    peer_init(&acceptor, &right, b, a);
    peer_listen(&acceptor, ":0", actual, sizeof actual);
    peer_dial(&dialler, actual);
}

/* ---- frames ---- */

static void stop_when_complete(struct peer *peer)
{
    (void)peer;
    if (dialler.received == dialler.in.frames && dialler.handed == dialler.out.frames &&
        acceptor.received == acceptor.in.frames && acceptor.handed == acceptor.out.frames) {
        bps_loop_stop(loop);
    }
}

static void closed_too_early(struct peer *peer)
{
    ck_abort_msg("closed after %u frames: %s", peer->received, peer->text);
}

/* All frames of both. */
static void complete(void)
{
    dialler.on_received = acceptor.on_received = stop_when_complete;
    dialler.on_closed = acceptor.on_closed = closed_too_early;
    run_loop(loop);
    ck_assert_uint_eq(side_counter(&left, "frames_received"), dialler.in.frames);
    ck_assert_uint_eq(side_counter(&right, "bytes_received"), side_counter(&left, "bytes_sent"));
    dialler.on_closed = acceptor.on_closed = NULL;
}

static void exchange(const struct stream *a, const struct stream *b)
{
    connect_peers(a, b);
    complete();
}

static const char *const settings[][6] = {
    {NULL},
    {"eager=0", "block=4096", "arena=65536", "credits=4", NULL},
    {"eager=65536", "credits=64", NULL},
    {"block=1 MiB", "window=64 KiB", "arena=2 MiB", NULL},
    {"block=4096", "arena=65536", "window=1 MiB", "credits=32", NULL},
    {"service_level=3", "traffic_class=96", "ack_timeout=20", "retry_count=3", NULL},
};

START_TEST(frames_arrive_as_they_were_sent)
{
    const struct stream a = {.seed = 17 + (uint32_t)_i, .frames = 60, .largest = 1 << 20, .grain = 1u << _i % 4};
    const struct stream b = {.seed = 99 + (uint32_t)_i, .frames = 40, .largest = 1 << 20, .grain = 1u << _i % 4};
    open_sides(settings[_i]);
    exchange(&a, &b);
    ck_assert_uint_eq(side_counter(&left, "bytes_in_place"), 0);
    ck_assert_uint_le(side_counter(&left, "doorbells"), side_counter(&left, "work_requests"));
    close_sides();
}
END_TEST

START_TEST(frames_leave_from_registered_memory)
{
    const struct stream stream = {.seed = 5, .frames = 60, .largest = 1 << 20, .grain = 4};
    struct bps_report report = {""};
    const struct bps_region region = {.memory = (void *)stream_pattern(), .bytes = PATTERN_BYTES, .fd = -1};
    open_sides(NULL);
    ck_assert_int_eq(left.ops->attach(left.instance->self, &region, &report), BPS_OK);
    exchange(&stream, &stream);
    ck_assert_uint_eq(side_counter(&left, "bytes_copied"), 0);
    ck_assert_uint_gt(side_counter(&left, "bytes_in_place"), 0);
    ck_assert_uint_eq(side_counter(&right, "bytes_in_place"), 0);
    left.ops->detach(left.instance->self, &region);
    close_sides();
}
END_TEST

START_TEST(what_the_peer_has_read_is_delivered)
{
    const struct stream stream = {.seed = 6, .frames = 60, .largest = 1 << 20, .grain = 4};
    uint64_t before = bps_now(), bytes = 0, busy = 0;
    open_sides(NULL);
    exchange(&stream, &stream);
    ck_assert(left.ops->delivered(dialler.channel, &bytes, &busy));
    /* What travelled with its header does not count, and of the last pieces it may not have heard yet. */
    uint64_t pieces = side_counter(&left, "bytes_copied");
    ck_assert_uint_gt(bytes, pieces / 2);
    ck_assert_uint_le(bytes, pieces);
    ck_assert_uint_gt(busy, 0);
    ck_assert_uint_le(busy, bps_now() - before);
    ck_assert_uint_eq(left.ops->speed(dialler.channel), 0); /* of a device in software */
    close_sides();
}
END_TEST

/* 0: the places lie in other memory, 1: in registered memory. */
START_TEST(frames_come_straight_to_their_places)
{
    const struct stream stream = {.seed = 5, .frames = 60, .largest = 1 << 20, .grain = 4};
    struct bps_report report = {""};
    open_sides(NULL);
    connect_peers(&stream, &stream);
    acceptor.take = TAKE_OPENED;
    if (_i == 1) {
        ck_assert_int_eq(right.ops->attach(right.instance->self, &acceptor.room, &report), BPS_OK);
    }
    complete();
    /* As much was sent in pieces; the rest travelled with its headers. */
    uint64_t pieces = side_counter(&left, "bytes_copied");
    ck_assert_uint_gt(pieces, 0);
    ck_assert_uint_eq(side_counter(&right, "bytes_placed"), _i == 1 ? pieces : 0);
    ck_assert_uint_eq(side_counter(&left, "bytes_placed"), 0);
    peer_drop(&acceptor);
    right.ops->detach(right.instance->self, &acceptor.room);
    close_sides();
}
END_TEST

START_TEST(small_frames_share_doorbells)
{
    const struct stream many = {.seed = 5, .frames = 4000, .largest = 200, .grain = 4};
    open_sides(NULL);
    exchange(&many, &many);
    ck_assert_uint_lt(side_counter(&left, "doorbells"), side_counter(&left, "work_requests"));
    close_sides();
}
END_TEST

/* ---- ends ---- */

static unsigned ended;

static void count_end(struct peer *peer)
{
    (void)peer;
    if (++ended == 2) {
        bps_loop_stop(loop);
    }
}

/* One side drops or finishes the channel in callback k; false: it had fewer. */
static bool end_at(uint32_t k, bool by_dialler, bool drop, bool places)
{
    struct peer *actor = by_dialler ? &dialler : &acceptor;
    struct bps_report report = {""};
    ended = 0;
    connect_peers(&some, &others);
    if (places) {
        dialler.take = acceptor.take = TAKE_OPENED;
        ck_assert_int_eq(left.ops->attach(left.instance->self, &dialler.room, &report), BPS_OK);
        ck_assert_int_eq(right.ops->attach(right.instance->self, &acceptor.room, &report), BPS_OK);
    }
    dialler.on_closed = acceptor.on_closed = count_end;
    dialler.finish_when_complete = acceptor.finish_when_complete = true;
    actor->drop_at = drop ? k : 0;
    actor->finish_at = drop ? 0 : k;
    run_loop(loop);
    bool reached = actor->callbacks >= k;
    if (!drop && reached) {
        const struct peer *listener = by_dialler ? &acceptor : &dialler;
        ck_assert_uint_eq(listener->received, actor->out.frames);
        ck_assert_msg(actor->status == BPS_OK, "%s", actor->text);
    }
    peer_drop(&dialler);
    peer_drop(&acceptor);
    left.ops->detach(left.instance->self, &dialler.room);
    right.ops->detach(right.instance->self, &acceptor.room);
    peer_fini(&dialler);
    peer_fini(&acceptor);
    return reached;
}

START_TEST(channels_can_end_in_every_callback)
{
    uint32_t k = 1;
    open_sides(NULL);
    while (end_at(k, (_i & 1) != 0, (_i & 2) != 0, (_i & 4) != 0)) {
        k += 3;
    }
    ck_assert_uint_gt(k, some.frames);
    side_close(&left);
    side_close(&right);
    bps_loop_free(loop);
}
END_TEST

static void stop(struct peer *peer)
{
    (void)peer;
    bps_loop_stop(loop);
}

START_TEST(a_refused_connection_is_told_later)
{
    open_sides(NULL);
    peer_init(&acceptor, &right, &some, &others);
    peer_listen(&acceptor, ":0", actual, sizeof actual);
    side_close(&right); /* and with it the listener */
    side_open(&right, loop, NULL);
    peer_init(&dialler, &left, &some, &others);
    dialler.on_closed = stop;
    peer_dial(&dialler, actual);
    ck_assert_uint_eq(dialler.closed, 0);
    run_loop(loop);
    ck_assert_uint_eq(dialler.closed, 1);
    ck_assert_msg(strstr(dialler.text, "connection refused") != NULL, "%s", dialler.text);
    close_sides();
}
END_TEST

START_TEST(unknown_devices_are_refused)
{
    static const char *const options[] = {"device=nosuch", NULL};
    struct bps_report report = {""};
    loop = bps_loop_new();
    ck_assert_int_eq(side_try(&left, loop, options, &report), BPS_ERR_CONF);
    ck_assert_msg(strstr(report.text, "'nosuch': there is no such RDMA device; this host has") != NULL, "%s",
                  report.text);
    bps_loop_free(loop);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("verbs");
    TCase *frames = tcase_create("frames");
    tcase_set_timeout(frames, 300);
    tcase_add_loop_test(frames, frames_arrive_as_they_were_sent, 0, sizeof settings / sizeof *settings);
    tcase_add_test(frames, frames_leave_from_registered_memory);
    tcase_add_test(frames, what_the_peer_has_read_is_delivered);
    tcase_add_loop_test(frames, frames_come_straight_to_their_places, 0, 2);
    tcase_add_test(frames, small_frames_share_doorbells);
    tcase_add_loop_test(frames, channels_can_end_in_every_callback, 0, 8);
    tcase_add_test(frames, a_refused_connection_is_told_later);
    tcase_add_test(frames, unknown_devices_are_refused);
    suite_add_tcase(suite, frames);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
