/* SPDX-License-Identifier: Apache-2.0 */
/* test_ipc.c - the transport over shared memory carries frames and lends payloads, in every way it has. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ipc_peer.h"
#include "watched.h"

/* ---- two peers that exchange streams ---- */

struct pair {
    struct bps_loop *loop;
    struct side sides[2];
    struct peer peers[2]; /* the dialler, the acceptor */
};

static void stop_when_complete(struct peer *peer)
{
    struct pair *pair = peer->arg;
    if (peer_is_complete(&pair->peers[0]) && peer_is_complete(&pair->peers[1])) {
        bps_loop_stop(pair->loop);
    }
}

static void closed_too_early(struct peer *peer)
{
    ck_abort_msg("closed after %u frames: %s", peer->received, peer->text);
}

static void pair_open(struct pair *pair, const struct stream *a, const struct stream *b, const char *const *options)
{
    pair->loop = bps_loop_new();
    for (int i = 0; i < 2; i++) {
        struct peer *peer = &pair->peers[i];
        side_open(&pair->sides[i], pair->loop, options);
        peer_init(peer, &pair->sides[i], i == 0 ? a : b, i == 0 ? b : a);
        peer->on_progress = stop_when_complete;
        peer->on_closed = closed_too_early;
        peer->arg = pair;
    }
}

static void pair_connect(struct pair *pair)
{
    char actual[128];
    peer_listen(&pair->peers[1], actual, sizeof actual);
    peer_dial(&pair->peers[0], actual);
}

static void pair_close(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        peer_fini(&pair->peers[i]);
        side_close(&pair->sides[i]);
    }
    bps_loop_free(pair->loop);
}

static void check_complete(const struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        const struct peer *peer = &pair->peers[i], *other = &pair->peers[1 - i];
        ck_assert_uint_eq(peer->received, other->out.frames);
        ck_assert_uint_eq(peer->answers, other->returned);
        ck_assert_uint_eq(peer->lent, peer->returned);
        ck_assert_uint_eq(side_counter(peer->side, "loans"), peer->lent);
        ck_assert_uint_eq(side_counter(peer->side, "frames_received"), peer->in.frames + other->returned);
    }
}

static const char *const ways[][5] = {
    {"copy=auto", NULL},
    {"copy=process_vm", NULL},
    {"copy=arena", NULL},
    {"copy=ring", NULL},
    {"copy=auto", "inline_bytes=0", "ring=16 KiB", NULL},
    {"copy=arena", "inline_bytes=0", "ring=16 KiB", "arena=4 MiB", NULL},
    {"copy=arena", "arena=0", NULL},
    {"copy=process_vm", "inline_bytes=1 KiB", "window=64 KiB", NULL},
};
#define WAYS ((int)(sizeof ways / sizeof *ways))

static void exchange(const char *const *options, uint32_t take, uint32_t lend, uint32_t hold, unsigned flags)
{
    const struct stream a = {.seed = 17 + flags, .frames = 200, .largest = 1 << 20, .answers = 5};
    const struct stream b = {.seed = 99 + hold, .frames = 140, .largest = 1 << 20, .answers = 3};
    struct pair pair;
    pair_open(&pair, &a, &b, options);
    for (int i = 0; i < 2; i++) {
        struct peer *peer = &pair.peers[i];
        peer->take = take;
        peer->lend = lend;
        peer->hold = hold;
        peer->kick_late = (flags & 1) != 0;
        peer->in_place = (flags & 2) != 0;
        if ((flags & 4) != 0) {
            peer_use_region(peer);
        }
        peer->silent = (flags & 8) != 0;
    }
    pair_connect(&pair);
    run_loop(pair.loop);
    check_complete(&pair);
    bool lends = strcmp(options[0], "copy=ring") != 0 && (options[1] == NULL || strcmp(options[1], "arena=0") != 0);
    ck_assert_int_eq(pair.peers[0].lent > 0, lends && lend >= LEND_ALWAYS);
    pair_close(&pair);
}

START_TEST(frames_arrive_as_they_were_sent)
{
    exchange(ways[_i], TAKE_PLACED, LEND_NEVER, 0, 0);
    exchange(ways[_i], TAKE_COPIED, LEND_REFUSE, 0, 1);
    exchange(ways[_i], TAKE_MIXED, LEND_REFUSE, 0, 4);
}
END_TEST

START_TEST(loans_are_answered)
{
    exchange(ways[_i], TAKE_MIXED, LEND_ALWAYS, 0, 2);
    exchange(ways[_i], TAKE_MIXED, LEND_ALWAYS, 8, 1);
    exchange(ways[_i], TAKE_MIXED, LEND_MIXED, 3, 4);
    exchange(ways[_i], TAKE_PLACED, LEND_MIXED, 5, 7);
}
END_TEST

START_TEST(loans_without_an_answer_come_back)
{
    exchange(ways[_i], TAKE_MIXED, LEND_ALWAYS, 8, 8);
    exchange(ways[_i], TAKE_MIXED, LEND_MIXED, 3, 8 + 4);
}
END_TEST

START_TEST(the_largest_frames_pass)
{
    const struct stream large = {.seed = 5, .frames = 3, .largest = 16u << 20, .answers = 4, .same = true};
    struct pair pair;
    pair_open(&pair, &large, &large, ways[_i]);
    pair_connect(&pair);
    run_loop(pair.loop);
    check_complete(&pair);
    pair_close(&pair);
}
END_TEST

START_TEST(small_frames_share_the_ring)
{
    const struct stream many = {.seed = 5, .frames = 20000, .largest = 200};
    struct pair pair;
    pair_open(&pair, &many, &many, NULL);
    pair_connect(&pair);
    run_loop(pair.loop);
    check_complete(&pair);
    pair_close(&pair);
}
END_TEST

/* ---- what the peer could reach ---- */

START_TEST(payloads_in_ordinary_memory_go_through_the_arena)
{
    const struct stream stream = {.seed = 8, .frames = 40, .largest = 300000, .answers = 4, .same = true};
    struct pair pair;
    pair_open(&pair, &stream, &stream, NULL);
    pair.peers[0].lend = pair.peers[1].lend = LEND_ALWAYS;
    pair_connect(&pair);
    run_loop(pair.loop);
    check_complete(&pair);
    for (int i = 0; i < 2; i++) {
        uint64_t staged = side_counter(&pair.sides[i], "frames_arena");
        uint64_t reached = side_counter(&pair.sides[i], "frames_process_vm");
        ck_assert_uint_gt(staged, pair.peers[i].answers);
        ck_assert_uint_gt(staged, reached); /* by process_vm only those before the peer knows the arena */
    }
    pair_close(&pair);
}
END_TEST

/* ---- what a region brings ---- */

START_TEST(payloads_in_regions_are_not_copied)
{
    const struct stream stream = {.seed = 8, .frames = 40, .largest = 300000, .answers = 4, .same = true};
    struct pair pair;
    pair_open(&pair, &stream, &stream, NULL);
    peer_use_region(&pair.peers[0]); /* before the channel, and after */
    pair_connect(&pair);
    while (!pair.peers[0].connected) {
        turn(pair.loop);
    }
    peer_use_region(&pair.peers[1]);
    run_loop(pair.loop);
    check_complete(&pair);
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_gt(side_counter(&pair.sides[i], "frames_region"), 30);
        ck_assert_uint_eq(side_counter(&pair.sides[i], "frames_arena"), 0);
        ck_assert_uint_eq(side_counter(&pair.sides[i], "frames_ring"), 0);
    }
    pair_close(&pair);
}
END_TEST

START_TEST(a_region_may_come_and_go_between_frames)
{
    const struct stream stream = {.seed = 9, .frames = 4, .largest = 100000, .answers = 8, .same = true};
    struct pair pair;
    pair_open(&pair, &stream, &stream, NULL);
    pair_connect(&pair);
    for (int round = 1; round <= 20; round++) {
        peer_use_region(&pair.peers[0]);
        pair.peers[0].out.frames = pair.peers[1].in.frames = 4u * (uint32_t)round;
        if (round > 1) {
            pair.sides[0].ops->kick(pair.peers[0].channel);
        }
        run_loop(pair.loop);
        pair.sides[0].ops->detach(pair.sides[0].instance->self, &pair.peers[0].memory);
        pair.peers[0].region = false;
    }
    check_complete(&pair);
    ck_assert_uint_gt(side_counter(&pair.sides[0], "frames_region"), 70);
    pair_close(&pair);
}
END_TEST

START_TEST(a_region_must_be_a_sealed_file)
{
    const struct stream none = {0};
    struct bps_report report = {""};
    struct bps_region region;
    struct pair pair;
    pair_open(&pair, &none, &none, NULL);
    const struct bps_transport_ops *ops = pair.sides[0].ops;
    void *self = pair.sides[0].instance->self;
    region = pair.peers[0].memory;
    region.fd = memfd_create("open", MFD_ALLOW_SEALING);
    ck_assert_int_eq(ops->attach(self, &region, &report), BPS_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(report.text, "F_SEAL_SHRINK"));
    close(region.fd);
    ops->detach(self, &region); /* it is not there */
    region.fd = -1;
    ck_assert_int_eq(ops->attach(self, &region, &report), BPS_OK); /* nobody else can map it */
    ops->detach(self, &region);
    pair_close(&pair);
}
END_TEST

/* ---- forks ---- */

#define MANY_REGIONS 1000
#define FORKS        150
#define FEW          64 /* descriptors */
#define MANY         2048

/*
 * Files of memory that are open here, of the first `limit` descriptors. It takes no memory, as it runs in a
 * child of several threads.
 */
static unsigned count_memory_files(int limit)
{
    unsigned n = 0;
    for (int fd = 0; fd < limit; fd++) {
        char path[40], name[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        n += readlink(path, name, sizeof name) > 7 && memcmp(name, "/memfd:", 7) == 0;
    }
    return n;
}

/* A child made now has so many. */
static void check_child(unsigned expected, int limit)
{
    pid_t child = must_fork();
    if (child == 0) { /* without an assertion: another thread may hold the lock that these take */
        _exit(count_memory_files(limit) == expected ? 0 : 1);
    }
    must(must_wait(child));
}

static void pair_open_quiet(struct pair *pair)
{
    const struct stream none = {0};
    pair_open(pair, &none, &none, NULL);
    pair_connect(pair);
    while (!pair->peers[0].connected || pair->peers[1].channel == NULL) {
        turn(pair->loop);
    }
}

static void attach(const struct side *side, const struct bps_region *region)
{
    struct bps_report report = {""};
    ck_assert_msg(side->ops->attach(side->instance->self, region, &report) == BPS_OK, "%s", report.text);
}

/* The socket takes only so many messages; the others wait. */
START_TEST(regions_that_wait_take_no_descriptors)
{
    static struct bps_region regions[MANY_REGIONS];
    struct pair pair;
    pair_open_quiet(&pair);
    unsigned before = count_memory_files(MANY);
    for (unsigned i = 0; i < MANY_REGIONS; i++) {
        regions[i] = pair.peers[0].memory;
        attach(&pair.sides[0], &regions[i]);
    }
    ck_assert_uint_eq(count_memory_files(MANY), before);
    check_child(before, MANY);
    pair_close(&pair);
}
END_TEST

/* What has gone before the peer heard of it is never told; the last one is, and used. */
START_TEST(regions_come_and_go_while_the_peer_does_not_read)
{
    const struct stream stream = {.seed = 9, .frames = 4, .largest = 100000, .answers = 8, .same = true};
    struct pair pair;
    pair_open(&pair, &stream, &stream, NULL);
    pair_connect(&pair);
    run_loop(pair.loop);
    const struct side *side = &pair.sides[0];
    unsigned before = count_memory_files(MANY);
    for (unsigned i = 0; i < MANY_REGIONS; i++) {
        attach(side, &pair.peers[0].memory);
        side->ops->detach(side->instance->self, &pair.peers[0].memory);
    }
    ck_assert_uint_eq(count_memory_files(MANY), before);
    peer_use_region(&pair.peers[0]);
    for (uint32_t frames = 20; frames <= 60; frames += 20) {
        pair.peers[0].out.frames = pair.peers[1].in.frames = frames;
        side->ops->kick(pair.peers[0].channel);
        run_loop(pair.loop);
    }
    check_complete(&pair);
    ck_assert_uint_gt(side_counter(side, "frames_region"), 20);
    pair_close(&pair);
}
END_TEST

static atomic_bool over;

static void come_and_go(void *arg)
{
    struct pair *pair = arg;
    const struct side *side = &pair->sides[0];
    if (atomic_load(&over)) {
        bps_loop_stop(pair->loop);
    }
    attach(side, &pair->peers[0].memory);
    side->ops->detach(side->instance->self, &pair->peers[0].memory);
}

static void *run_pair(void *arg)
{
    const struct pair *pair = arg;
    run_loop(pair->loop);
    return NULL;
}

/* Another thread forks while the loop is told of regions all the time. */
START_TEST(a_child_keeps_no_region_that_comes)
{
    struct pair pair;
    pthread_t thread;
    pair_open_quiet(&pair);
    unsigned before = count_memory_files(FEW);
    struct bps_timer *timer = bps_loop_timer(pair.loop, 20000, 20000, come_and_go, &pair);
    ck_assert_int_eq(pthread_create(&thread, NULL, run_pair, &pair), 0);
    for (unsigned i = 0; i < FORKS; i++) {
        check_child(before, FEW);
    }
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    bps_loop_cancel(pair.loop, timer);
    pair_close(&pair);
}
END_TEST

/* ---- late binding ---- */

START_TEST(frames_are_asked_for_as_late_as_possible)
{
    static const char *const options[][4] = {
        {"copy=ring", NULL}, {"copy=process_vm", "window=128 KiB", NULL}, {"copy=arena", "window=128 KiB", NULL}};
    static const uint32_t most[] = {64 / 4, 128 / 32, 128 / 32}; /* frames that wait before the peer */
    const struct stream stream = {.seed = 1, .frames = 300, .largest = _i == 0 ? 4096 : 32768, .same = true};
    const struct stream none = {.largest = 64};
    struct bps_loop *loops[2] = {bps_loop_new(), bps_loop_new()};
    struct side sides[2];
    struct peer peers[2];
    char actual[128];
    for (int i = 0; i < 2; i++) {
        side_open(&sides[i], loops[i], options[_i]);
        peer_init(&peers[i], &sides[i], i == 0 ? &stream : &none, i == 0 ? &none : &stream);
    }
    peer_listen(&peers[1], actual, sizeof actual);
    peer_dial(&peers[0], actual);
    while (peers[0].handed == 0) {
        turn(loops[0]);
        turn(loops[1]);
    }
    while (peers[1].received < stream.frames) {
        for (int i = 0; i < 10; i++) {
            turn(loops[0]);
        }
        ck_assert_uint_le(peers[0].handed - peers[1].received, most[_i]);
        turn(loops[1]);
    }
    for (int i = 0; i < 2; i++) {
        peer_fini(&peers[i]);
        side_close(&sides[i]);
        bps_loop_free(loops[i]);
    }
}
END_TEST

START_TEST(loans_do_not_block_other_frames)
{
    const struct stream stream = {.seed = 2, .frames = SLOTS, .largest = 1 << 20, .answers = 8, .same = true};
    const struct stream none = {.largest = 64};
    struct pair pair;
    pair_open(&pair, &stream, &none, ways[_i]);
    pair.peers[1].keep_loans = true; /* all of them, with an arena for 15 and a window for one at least */
    pair_connect(&pair);
    while (pair.peers[1].received < stream.frames) {
        turn(pair.loop);
    }
    pair.peers[1].keep_loans = false;
    pair.sides[1].ops->kick(pair.peers[1].channel);
    while (!peer_is_complete(&pair.peers[0]) || !peer_is_complete(&pair.peers[1])) {
        turn(pair.loop);
    }
    check_complete(&pair);
    pair_close(&pair);
}
END_TEST

/* ---- threads and processes ---- */

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

static void runner_open(struct runner *runner, const struct stream *out, const struct stream *in,
                        const char *const *options, uint64_t spin)
{
    side_open(&runner->side, bps_loop_new(), options);
    bps_loop_spin(runner->side.loop, spin);
    peer_init(&runner->peer, &runner->side, out, in);
    runner->peer.hold = 2;
    runner->peer.finish_when_complete = true;
    runner->peer.on_closed = stop_own_loop;
}

static void runner_close(struct runner *runner)
{
    struct bps_loop *loop = runner->side.loop;
    must(peer_is_complete(&runner->peer));
    must_equal(runner->peer.closed, 1);
    peer_fini(&runner->peer);
    side_close(&runner->side);
    bps_loop_free(loop);
}

static const struct stream talks[2] = {{.seed = 3, .frames = 300 / EVERY(4), .largest = 1 << 20, .answers = 4},
                                       {.seed = 4, .frames = 300 / EVERY(4), .largest = 1 << 20, .answers = 4}};

START_TEST(two_threads_exchange_frames_and_finish)
{
    static struct runner runners[2];
    pthread_t threads[2];
    char actual[128];
    for (int i = 0; i < 2; i++) {
        runner_open(&runners[i], &talks[i], &talks[1 - i], ways[_i / 2], _i % 2 * 20000u);
    }
    peer_listen(&runners[0].peer, actual, sizeof actual);
    peer_dial(&runners[1].peer, actual);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_side, &runners[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        runner_close(&runners[i]);
    }
}
END_TEST

START_TEST(two_processes_exchange_frames_and_finish)
{
    static struct runner runner;
    char actual[128] = "";
    int pipes[2];
    must_equal(pipe(pipes), 0);
    pid_t child = must_fork();
    int own = child == 0 ? 1 : 0;
    runner_open(&runner, &talks[own], &talks[1 - own], ways[_i], 0);
    if (child == 0) {
        must(read(pipes[0], actual, sizeof actual) > 0);
        peer_dial(&runner.peer, actual);
    } else {
        peer_listen(&runner.peer, actual, sizeof actual);
        must_equal(write(pipes[1], actual, sizeof actual), sizeof actual);
    }
    run_loop(runner.side.loop);
    runner_close(&runner);
    if (child == 0) {
        _exit(0);
    }
    must(must_wait(child));
}
END_TEST

/* ---- many channels ---- */

#define CHANNELS 100

static struct peer *crowd; /* CHANNELS that dial, then as many that are dialled */
static uint32_t arrived;

static const struct bps_channel_events *accept_one_of_many(void *arg, struct bps_channel *channel, const char *from,
                                                           void **user, const struct bps_channel_key **key)
{
    (void)arg;
    ck_assert_uint_lt(arrived, CHANNELS);
    return peer_accept(&crowd[CHANNELS + arrived++], channel, from, user, key);
}

static void stop_when_all_complete(struct peer *peer)
{
    static uint32_t complete;
    if (peer_is_complete(peer) && ++complete == 2 * CHANNELS) {
        complete = 0;
        bps_loop_stop(peer->side->loop);
    }
}

static unsigned count_lines(const char *path, const char *word)
{
    char line[512];
    unsigned n = 0;
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file) != NULL) {
        n += strstr(line, word) != NULL;
    }
    fclose(file);
    return n;
}

static unsigned count_descriptors(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n;
}

static void run_crowd(void)
{
    const struct stream stream = {.seed = 21, .frames = 6, .largest = 100000, .answers = 3};
    struct bps_report report = {""};
    struct side left, right;
    char actual[128];
    struct bps_loop *loop = bps_loop_new();
    arrived = 0;
    crowd = calloc(2 * CHANNELS, sizeof *crowd);
    side_open(&left, loop, NULL);
    side_open(&right, loop, ways[2]);
    for (int i = 0; i < 2 * CHANNELS; i++) {
        peer_init(&crowd[i], i < CHANNELS ? &left : &right, &stream, &stream);
        crowd[i].on_progress = stop_when_all_complete;
    }
    ck_assert_int_eq(
        right.ops->listen(right.instance->self, ":0", accept_one_of_many, NULL, actual, sizeof actual, &report),
        BPS_OK);
    for (int i = 0; i < CHANNELS; i++) {
        peer_dial(&crowd[i], actual);
    }
    run_loop(loop);
    ck_assert_uint_eq(arrived, CHANNELS);
    ck_assert_uint_ge(count_lines("/proc/self/maps", "memfd:byteps"), 2 * CHANNELS);
    for (int i = 0; i < 2 * CHANNELS; i++) {
        peer_fini(&crowd[i]);
    }
    free(crowd);
    side_close(&left);
    side_close(&right);
    bps_loop_free(loop);
}

START_TEST(nothing_is_left_of_many_channels)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    unsigned before = count_descriptors();
    run_crowd();
    ck_assert_uint_eq(count_descriptors(), before);
    ck_assert_uint_eq(count_lines("/proc/self/maps", "memfd:byteps"), 0);
}
END_TEST

/* ---- options and words ---- */

START_TEST(options_that_do_not_fit_are_refused)
{
    static const char *const wrong[][3] = {
        {"ring=48 KiB", NULL}, {"ring=16 KiB", "inline_bytes=8 KiB", NULL}, {"copy=telepathy", NULL}};
    struct bps_loop *loop = bps_loop_new();
    struct bps_report report = {""};
    struct side side;
    ck_assert_int_lt(side_try(&side, loop, wrong[_i], &report), 0);
    ck_assert_ptr_nonnull(strstr(report.text, "expected"));
    bps_loop_free(loop);
}
END_TEST

START_TEST(an_instance_describes_itself)
{
    struct bps_transport_attr attr = {0};
    struct bps_report report = {""};
    struct side side;
    char text[256];
    ck_assert_int_eq(side_try(&side, NULL, NULL, &report), BPS_OK);
    side.ops->describe(side.instance->self, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "copy auto, process_vm_readv "));
    side.ops->describe(side.instance->self, text, 10);
    ck_assert_uint_eq(strlen(text), 9);
    side.ops->query(side.instance->self, &attr);
    ck_assert(attr.local);
    ck_assert_uint_eq(attr.lanes, 1);
    side_close(&side);
}
END_TEST

/* ThreadSanitizer has nothing to see where one thread has both ends, and takes minutes for it. */
#ifdef __SANITIZE_THREAD__
#define ONE_THREAD false
#else
#define ONE_THREAD true
#endif

static void add_frames(Suite *suite)
{
    TCase *frames = tcase_create("frames");
    tcase_set_timeout(frames, 300);
    tcase_add_loop_test(frames, frames_arrive_as_they_were_sent, 0, WAYS);
    tcase_add_loop_test(frames, loans_are_answered, 0, WAYS);
    tcase_add_loop_test(frames, loans_without_an_answer_come_back, 0, WAYS);
    tcase_add_loop_test(frames, the_largest_frames_pass, 0, WAYS);
    tcase_add_test(frames, small_frames_share_the_ring);
    tcase_add_test(frames, payloads_in_ordinary_memory_go_through_the_arena);
    tcase_add_test(frames, payloads_in_regions_are_not_copied);
    tcase_add_test(frames, a_region_may_come_and_go_between_frames);
    tcase_add_test(frames, a_region_must_be_a_sealed_file);
    tcase_add_test(frames, regions_that_wait_take_no_descriptors);
    tcase_add_test(frames, regions_come_and_go_while_the_peer_does_not_read);
    tcase_add_test(frames, a_child_keeps_no_region_that_comes);
    tcase_add_loop_test(frames, frames_are_asked_for_as_late_as_possible, 0, 3);
    tcase_add_loop_test(frames, loans_do_not_block_other_frames, 0, WAYS);
    suite_add_tcase(suite, frames);
}

int main(void)
{
    Suite *suite = suite_create("ipc");
    TCase *peers = tcase_create("peers");
    tcase_set_timeout(peers, 300);
    tcase_add_loop_test(peers, two_threads_exchange_frames_and_finish, 0, 2 * WAYS);
    tcase_add_loop_test(peers, two_processes_exchange_frames_and_finish, 0, WAYS);
    tcase_add_test(peers, nothing_is_left_of_many_channels);
    tcase_add_loop_test(peers, options_that_do_not_fit_are_refused, 0, 3);
    tcase_add_test(peers, an_instance_describes_itself);
    if (ONE_THREAD) {
        add_frames(suite);
    }
    suite_add_tcase(suite, peers);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
