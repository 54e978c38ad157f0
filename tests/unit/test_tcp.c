/* SPDX-License-Identifier: Apache-2.0 */
/* test_tcp.c - the TCP transport carries frames: every size, every way of taking them, many channels. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tcp_peer.h"

const struct side_kind side_kind = {"tcp", "net", "transports.net"};

/* ---- two peers that exchange streams ---- */

static struct bps_loop *shared_loop;
static struct peer *both[2];

static void stop_when_complete(struct peer *peer)
{
    (void)peer;
    for (int i = 0; i < 2; i++) {
        if (both[i]->received < both[i]->in.frames || both[i]->handed < both[i]->out.frames) {
            return;
        }
    }
    bps_loop_stop(shared_loop);
}

static void closed_too_early(struct peer *peer)
{
    ck_abort_msg("closed after %u frames: %s", peer->received, peer->text);
}

static void exchange(const char *address, const struct stream *a, const struct stream *b, uint32_t take, bool kick_late,
                     const char *const *options)
{
    struct side left, right;
    struct peer dialler, acceptor;
    char actual[128];
    shared_loop = bps_loop_new();
    side_open(&left, shared_loop, options);
    side_open(&right, shared_loop, options);
    peer_init(&dialler, &left, a, b);
    peer_init(&acceptor, &right, b, a);
    both[0] = &dialler;
    both[1] = &acceptor;
    for (int i = 0; i < 2; i++) {
        both[i]->take = take;
        both[i]->kick_late = kick_late;
        both[i]->on_received = stop_when_complete;
        both[i]->on_closed = closed_too_early;
    }
    peer_listen(&acceptor, address, actual, sizeof actual);
    peer_dial(&dialler, actual);
    run_loop(shared_loop);
    ck_assert_uint_eq(dialler.received, b->frames);
    ck_assert_uint_eq(acceptor.received, a->frames);
    ck_assert_uint_eq(side_counter(&left, "frames_received"), b->frames);
    ck_assert_uint_eq(side_counter(&right, "bytes_received"), side_counter(&left, "bytes_sent"));
    ck_assert_uint_gt(side_counter(&left, "send_calls"), 0);
    ck_assert_uint_gt(side_counter(&left, "receive_calls"), 0);
    peer_fini(&dialler);
    peer_fini(&acceptor);
    side_close(&left);
    side_close(&right);
    bps_loop_free(shared_loop);
}

static const struct {
    const char *address;
    uint32_t take, grain;
    bool kick_late;
} exchanges[] = {
    {"127.0.0.1:0", TAKE_PLACED, 1, false}, {"127.0.0.1:0", TAKE_PLACED, 4, true},
    {"127.0.0.1:0", TAKE_COPIED, 1, true},  {"127.0.0.1:0", TAKE_COPIED, 4, false},
    {"127.0.0.1:0", TAKE_COPIED, 8, false}, {"127.0.0.1:0", TAKE_MIXED, 1, false},
    {"127.0.0.1:0", TAKE_MIXED, 8, true},   {"localhost:0", TAKE_MIXED, 4, false},
    {"[::1]:0", TAKE_MIXED, 8, false},      {"[::1]:0", TAKE_PLACED, 4, false},
};

START_TEST(frames_arrive_as_they_were_sent)
{
    struct stream a = {.seed = 17, .frames = 150, .largest = 3 << 20, .grain = exchanges[_i].grain};
    struct stream b = {.seed = 99, .frames = 90, .largest = 3 << 20, .grain = exchanges[_i].grain};
    a.seed += (uint32_t)_i;
    b.seed += (uint32_t)_i;
    exchange(exchanges[_i].address, &a, &b, exchanges[_i].take, exchanges[_i].kick_late, NULL);
}
END_TEST

START_TEST(small_frames_share_system_calls)
{
    const struct stream many = {.seed = 5, .frames = 20000, .largest = 200, .grain = 4};
    exchange("127.0.0.1:0", &many, &many, TAKE_MIXED, false, NULL);
}
END_TEST

START_TEST(options_change_nothing_for_frames)
{
    static const char *const sets[][5] = {
        {"congestion=reno", "notsent_lowat=4096", "send_buffer=16 KiB", "receive_buffer=16 KiB", NULL},
        {"congestion=", "notsent_lowat=0", "keepalive=0", "user_timeout=0", NULL},
        {"interface=lo", "streams=3", "family=ipv4", NULL},
    };
    const struct stream stream = {.seed = 77, .frames = 60, .largest = 1 << 20, .grain = 8};
    exchange("127.0.0.1:0", &stream, &stream, TAKE_MIXED, false, sets[_i]);
}
END_TEST

/* ---- two threads ---- */

struct runner {
    struct side side;
    struct peer peer;
};

static void stop_own_loop(struct peer *peer)
{
    bps_loop_stop(peer->side->loop);
}

static void *run_side(void *arg)
{
    struct runner *runner = arg;
    run_loop(runner->side.loop);
    return NULL;
}

START_TEST(two_threads_exchange_frames_and_finish)
{
    const struct stream streams[2] = {{.seed = 3, .frames = 200, .largest = 2 << 20, .grain = 8},
                                      {.seed = 4, .frames = 200, .largest = 2 << 20, .grain = 8}};
    static struct runner runners[2];
    pthread_t threads[2];
    char actual[128];
    stream_payload(&streams[0], 0); /* makes the pattern before there are threads */
    for (int i = 0; i < 2; i++) {
        struct peer *peer = &runners[i].peer;
        side_open(&runners[i].side, bps_loop_new(), NULL);
        peer_init(peer, &runners[i].side, &streams[i], &streams[1 - i]);
        peer->take = TAKE_MIXED;
        peer->finish_when_complete = true;
        peer->on_closed = stop_own_loop;
    }
    peer_listen(&runners[0].peer, "127.0.0.1:0", actual, sizeof actual);
    peer_dial(&runners[1].peer, actual);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_side, &runners[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        struct bps_loop *loop = runners[i].side.loop;
        pthread_join(threads[i], NULL);
        ck_assert_uint_eq(runners[i].peer.received, 200);
        ck_assert_uint_eq(runners[i].peer.sent, 200);
        peer_fini(&runners[i].peer);
        side_close(&runners[i].side);
        bps_loop_free(loop);
    }
}
END_TEST

/* ---- many channels ---- */

#define CHANNELS 500

static struct peer *crowd; /* CHANNELS that dial, then as many that are dialled */
static uint32_t arrived, complete;

static const struct bps_channel_events *accept_one_of_many(void *arg, struct bps_channel *channel, const char *from,
                                                           void **user, const struct bps_channel_key **key)
{
    (void)arg;
    ck_assert_uint_lt(arrived, CHANNELS);
    return peer_accept(&crowd[CHANNELS + arrived++], channel, from, user, key);
}

static void count_complete(struct peer *peer)
{
    if (peer->received == peer->in.frames && ++complete == 2 * CHANNELS) {
        bps_loop_stop(peer->side->loop);
    }
}

START_TEST(five_hundred_channels_have_their_turns)
{
    const struct stream stream = {.seed = 21, .frames = 6, .largest = 100000, .grain = 1};
    struct rlimit files;
    struct bps_report report = {""};
    struct side left, right;
    char actual[128];
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    ck_assert_msg(files.rlim_cur > 2 * CHANNELS + 50, "needs %d descriptors", 2 * CHANNELS + 50);
    struct bps_loop *loop = bps_loop_new();
    crowd = calloc(2 * CHANNELS, sizeof *crowd);
    side_open(&left, loop, NULL);
    side_open(&right, loop, NULL);
    for (int i = 0; i < 2 * CHANNELS; i++) {
        peer_init(&crowd[i], i < CHANNELS ? &left : &right, &stream, &stream);
        crowd[i].on_received = count_complete;
    }
    ck_assert_int_eq(
        right.ops->listen(right.instance->self, ":0", accept_one_of_many, NULL, actual, sizeof actual, &report),
        BPS_OK);
    for (int i = 0; i < CHANNELS; i++) {
        peer_dial(&crowd[i], actual);
    }
    run_loop(loop);
    ck_assert_uint_eq(arrived, CHANNELS);
    for (int i = 0; i < 2 * CHANNELS; i++) {
        peer_fini(&crowd[i]);
    }
    free(crowd);
    side_close(&left);
    side_close(&right);
    bps_loop_free(loop);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tcp");
    TCase *frames = tcase_create("frames");
    tcase_set_timeout(frames, 300);
    tcase_add_loop_test(frames, frames_arrive_as_they_were_sent, 0, sizeof exchanges / sizeof *exchanges);
    tcase_add_test(frames, small_frames_share_system_calls);
    tcase_add_loop_test(frames, options_change_nothing_for_frames, 0, 3);
    tcase_add_test(frames, two_threads_exchange_frames_and_finish);
    tcase_add_test(frames, five_hundred_channels_have_their_turns);
    suite_add_tcase(suite, frames);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
