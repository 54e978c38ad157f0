/* SPDX-License-Identifier: Apache-2.0 */
/* test_moves.c - tensors that move between rounds, and shares that follow what links deliver. */
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "scheduler/declared.h"
#include "scheduler/rates.h"
#include "wire/frame.h"

/* ---- moves ---- */

#define WORKERS 3u

static struct bps_book_shard shards[] = {{.member = 0, .weight = 1, .spread = 1, .until = 1},
                                         {.member = 1, .weight = 1, .spread = 1, .until = 2}};
static struct bps_book_member workers[] = {{.rank = 0}, {.rank = 1, .group = 1}, {.rank = 2, .group = 2}};
static struct bps_book book = {.workers = WORKERS, .members = WORKERS, .member = workers, .shards = 2, .shard = shards};

/* What the scheduler has sent last to each worker. */
static struct {
    uint32_t moves, moved;
    uint8_t bytes[4096];
    size_t size;
} got[WORKERS];

static void keep(void *arg, uint32_t rank, uint8_t frame, const struct bps_writer *message)
{
    (void)arg;
    ck_assert(frame == BPS_FRAME_MOVE || frame == BPS_FRAME_MOVED || frame == BPS_FRAME_CHANGED);
    got[rank].moves += frame == BPS_FRAME_MOVE;
    got[rank].moved += frame == BPS_FRAME_MOVED;
    got[rank].size = message->size;
    memcpy(got[rank].bytes, message->data, message->size);
}

static void declare(struct bps_declared *declared, uint32_t rank, const char *name, const char *coding,
                    struct bps_writer *reply)
{
    struct bps_writer w;
    struct bps_reader r;
    bps_writer_init(&w);
    bps_writer_init(reply);
    bps_put_u32(&w, 1);
    bps_put_string(&w, name);
    bps_put_u8(&w, BPS_FLOAT32);
    bps_put_u64(&w, 1 << 20);
    bps_put_u8(&w, 255); /* no shape */
    bps_put_string(&w, coding);
    bps_put_u8(&w, 0);
    bps_put_u32(&w, 0); /* nor of rows */
    bps_reader_init(&r, w.data, w.size);
    ck_assert_int_eq(bps_declared_answer(declared, rank, &r, reply), BPS_OK);
    bps_writer_fini(&w);
}

static void declare_all(struct bps_declared *declared, const char *name, const char *coding)
{
    struct bps_writer reply;
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        declare(declared, rank, name, coding, &reply);
        bps_writer_fini(&reply);
    }
}

/* Worker `rank` has begun so many rounds of tensor 1 and tensor 2. */
static bool begun(struct bps_declared *declared, uint32_t rank, uint32_t number, uint32_t one, uint32_t two)
{
    struct bps_writer w;
    struct bps_reader r;
    bool all = false;
    const uint32_t words[] = {number, 0, 0, 2, 1, one, 2, two};
    bps_writer_init(&w);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        bps_put_u32(&w, words[i]);
    }
    for (size_t n = 0; n < w.size; n++) { /* cut anywhere: refused */
        bps_reader_init(&r, w.data, n);
        ck_assert_int_eq(bps_declared_begun(declared, rank, &r, &all), BPS_ERR_PROTOCOL);
    }
    bps_reader_init(&r, w.data, w.size);
    ck_assert_int_eq(bps_declared_begun(declared, rank, &r, &all), BPS_OK);
    bps_writer_fini(&w);
    return all;
}

/* The bytes of shard 1 in a layout, which is that of a view. */
static uint32_t read_layout(struct bps_reader *r, uint32_t view)
{
    uint32_t second = 0;
    ck_assert_uint_eq(bps_get_u32(r), view);
    bps_get_u32(r); /* the number of the move */
    for (uint32_t n = bps_get_u32(r); n > 0; n--) {
        uint32_t bytes = bps_get_u32(r);
        second += bps_get_u16(r) == 1 ? bytes : 0;
        bps_get_u16(r);
    }
    return second;
}

/* Tensor 1 moves, from that round on, and tensor 2 stays, of which nobody has begun the other. */
static void check_moved(uint32_t rank, uint32_t from, uint32_t second, uint32_t stays)
{
    struct bps_reader r;
    bps_reader_init(&r, got[rank].bytes, got[rank].size);
    ck_assert_uint_eq(bps_get_u32(&r), 2);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_uint_eq(bps_get_u32(&r), shards[i].weight);
    }
    ck_assert_uint_eq(bps_get_u32(&r), 1);
    ck_assert_uint_eq(bps_get_u32(&r), 1);
    ck_assert_uint_eq(bps_get_u32(&r), from);
    ck_assert_uint_eq(read_layout(&r, 2), second);
    ck_assert_uint_eq(bps_get_u32(&r), 1);
    ck_assert_uint_eq(bps_get_u32(&r), 2);
    ck_assert_uint_eq(bps_get_u32(&r), stays);
    ck_assert(bps_reader_done(&r));
}

static void start(struct bps_declared *declared)
{
    memset(got, 0, sizeof got);
    shards[1].weight = 1;
    book.view = 1;
    ck_assert_int_eq(bps_declared_init(declared, &book, 1 << 18), BPS_OK);
    declare_all(declared, "a", "");
    declare_all(declared, "b", "plugin=onebit"); /* stays where its losses are */
}

START_TEST(test_a_round_that_nobody_has_begun)
{
    struct bps_declared declared;
    struct bps_writer reply;
    struct bps_reader r;
    char coding[8];
    start(&declared);
    ck_assert(bps_declared_move(&declared, keep, NULL));
    ck_assert(!bps_declared_move(&declared, keep, NULL)); /* one at a time */
    ck_assert_uint_eq(got[2].moves, 1);
    ck_assert(!begun(&declared, 0, 1, 7, 3));
    ck_assert(!begun(&declared, 2, 1, 6, 3));
    ck_assert(begun(&declared, 1, 1, 7, 3));
    shards[1].weight = 3;
    book.view = 2;
    ck_assert_int_eq(bps_declared_moved(&declared, &book, keep, NULL), BPS_OK);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        check_moved(rank, 7, 1 << 20, 3); /* as half of the other one stays at each */
    }
    declare(&declared, 2, "a", "", &reply); /* learns both places */
    bps_reader_init(&r, reply.data, reply.size);
    for (int i = 0; i < 3; i++) {
        bps_get_u32(&r); /* count, id, round */
    }
    bps_get_u8(&r);
    bps_get_u64(&r);
    bps_get_u8(&r);
    bps_get_string(&r, coding, sizeof coding);
    bps_get_u8(&r);
    bps_get_u32(&r);
    bps_get_u32(&r);
    ck_assert_uint_eq(read_layout(&r, 1), 1 << 19);
    ck_assert_uint_eq(bps_get_u8(&r), 1);
    ck_assert_uint_eq(bps_get_u32(&r), 7);
    ck_assert_uint_eq(read_layout(&r, 2), 1 << 20);
    ck_assert(bps_reader_done(&r));
    bps_writer_fini(&reply);
    bps_declared_fini(&declared);
}
END_TEST

START_TEST(test_who_has_not_moved_yet_does_not_move_again)
{
    struct bps_declared declared;
    start(&declared);
    for (uint32_t move = 1; move <= 2; move++) { /* worker 2 has begun no further round */
        bps_declared_move(&declared, keep, NULL);
        begun(&declared, 0, move, 6 + move, 0);
        begun(&declared, 1, move, 6 + move, 0);
        ck_assert(begun(&declared, 2, move, 7, 0));
        shards[1].weight = 2 * move + 1;
        ck_assert_int_eq(bps_declared_moved(&declared, &book, keep, NULL), BPS_OK);
    }
    struct bps_reader r;
    bps_reader_init(&r, got[0].bytes, got[0].size);
    for (int i = 0; i < 3; i++) {
        bps_get_u32(&r);
    }
    ck_assert_uint_eq(bps_get_u32(&r), 0);
    ck_assert_uint_eq(bps_get_u32(&r), 2); /* which both stay */
    for (uint32_t id = 1; id <= 2; id++) {
        ck_assert_uint_eq(bps_get_u32(&r), id);
        ck_assert_uint_eq(bps_get_u32(&r), id == 1 ? 8 : 0);
    }
    ck_assert(bps_reader_done(&r));
    bps_declared_fini(&declared);
}
END_TEST

START_TEST(test_a_move_is_given_up)
{
    struct bps_declared declared;
    bool all;
    start(&declared);
    bps_declared_stay(&declared, keep, NULL); /* there is none */
    ck_assert_uint_eq(got[0].moved, 0);
    bps_declared_move(&declared, keep, NULL);
    ck_assert(!begun(&declared, 0, 1, 7, 3));
    bps_declared_stay(&declared, keep, NULL);
    ck_assert_uint_eq(got[0].moved, 1);
    ck_assert_uint_eq(got[0].size, 12);
    ck_assert(!begun(&declared, 1, 1, 7, 3)); /* too late, and no harm */
    bps_declared_move(&declared, keep, NULL);
    ck_assert(!begun(&declared, 2, 1, 7, 3)); /* to the other one */
    ck_assert(!begun(&declared, 2, 2, 7, 3));
    struct bps_writer w;
    struct bps_reader r;
    bps_writer_init(&w);
    bps_put_u32(&w, 2);
    bps_put_u32(&w, 0);
    bps_reader_init(&r, w.data, w.size);
    ck_assert_int_eq(bps_declared_begun(&declared, 2, &r, &all), BPS_ERR_PROTOCOL); /* twice */
    bps_writer_fini(&w);
    bps_declared_fini(&declared);
}
END_TEST

/* ---- rates ---- */

#define HOSTS 6u

/* A job of hosts with a worker each, and with shards or without. */
struct job {
    struct bps_book_member member[HOSTS];
    struct bps_book_shard shard[HOSTS];
    struct bps_book book;
    struct bps_share truth[HOSTS]; /* links as they are, in bytes per second */
    struct bps_rates rates;
};

static void job_init(struct job *job, uint32_t hosts)
{
    *job = (struct job){.book = {.workers = hosts, .members = hosts, .shards = hosts}};
    job->book.member = job->member;
    job->book.shard = job->shard;
    for (uint32_t i = 0; i < hosts; i++) {
        job->member[i] = (struct bps_book_member){.rank = i, .group = i, .host_id = 10 + i};
        job->shard[i] = (struct bps_book_shard){.member = i, .weight = 1000};
        job->truth[i] = (struct bps_share){.senders = 1, .serves = true, .bandwidth = 1e8};
    }
    ck_assert(bps_book_weigh(&job->book));
    ck_assert_int_eq(bps_rates_init(&job->rates, &job->book), BPS_OK);
}

static void set_shares(struct job *job)
{
    uint32_t n = job->book.shards;
    for (uint32_t i = 0; i < n; i++) {
        job->truth[i].share = (double)job->shard[i].weight / (double)bps_book_weights(&job->book);
    }
}

/* How busy host i's link is, in parts of the time, while all go at the pace of the slowest. */
static double busy(const struct job *job, uint32_t i)
{
    uint32_t n = job->book.shards;
    return bps_share_busy(job->truth, n, i) / bps_share_time(job->truth, n);
}

/* The first hosts report a second in which links are at work for a part of the time. */
static bool report(struct job *job, uint32_t hosts, double part)
{
    uint32_t n = job->book.shards;
    bool better = false, any = false;
    set_shares(job);
    double each = part / bps_share_time(job->truth, n); /* bytes per second of each gradient */
    for (uint32_t i = 0; i < hosts; i++) {
        struct bps_writer w;
        struct bps_reader r;
        bps_writer_init(&w);
        bps_put_u64(&w, 1000000000);
        bps_put_u32(&w, n - 1);
        for (uint32_t j = 0; j < n; j++) {
            if (j != i) {
                double bytes = each * (job->truth[i].share + job->truth[j].share);
                double slower = busy(job, i) > busy(job, j) ? busy(job, i) : busy(job, j);
                double link = job->truth[i].bandwidth < job->truth[j].bandwidth ? job->truth[i].bandwidth
                                                                                : job->truth[j].bandwidth;
                double alone = bytes / link; /* where nobody else is waited for */
                bps_put_u32(&w, j);
                bps_put_u64(&w, (uint64_t)bytes);
                bps_put_u64(&w, (uint64_t)(1e9 * (slower > 0.99 ? part : alone * 1.3)));
            }
        }
        bps_reader_init(&r, w.data, w.size);
        ck_assert_int_eq(bps_rates_add(&job->rates, i, &r, &better), BPS_OK);
        any |= better;
        bps_writer_fini(&w);
    }
    return any;
}

/* Seconds, and in how many of them tensors moved. */
static uint32_t run(struct job *job, uint32_t seconds, double part)
{
    uint32_t moves = 0;
    for (uint32_t s = 0; s < seconds; s++) {
        if (report(job, job->book.shards, part)) {
            ck_assert_int_eq(bps_rates_take(&job->rates, &job->book), BPS_OK);
            moves++;
        }
    }
    return moves;
}

static double from_best(struct job *job)
{
    struct bps_share best[HOSTS];
    uint32_t n = job->book.shards;
    set_shares(job);
    memcpy(best, job->truth, sizeof best);
    bps_share_set(best, n);
    return bps_share_time(job->truth, n) / bps_share_time(best, n);
}

START_TEST(test_equal_links_keep_their_shares)
{
    struct job job;
    job_init(&job, 4);
    ck_assert_uint_eq(run(&job, 20, 1), 0);
    ck_assert_uint_eq(run(&job, 20, 0.3), 0);
    bps_rates_fini(&job.rates);
}
END_TEST

START_TEST(test_shares_follow_the_slowest_link)
{
    struct job job;
    srand(1);
    for (int trial = 0; trial < 200; trial++) {
        job_init(&job, 3 + (uint32_t)(rand() % 4));
        uint32_t slow = (uint32_t)rand() % job.book.shards;
        job.truth[slow].bandwidth *= (10 + rand() % 90) / 100.0;
        uint32_t moves = run(&job, 12, 1);
        ck_assert_msg(from_best(&job) < 1.1, "trial %d: %g after %u moves", trial, from_best(&job), moves);
        ck_assert_uint_le(run(&job, 20, 1), 1); /* they settle */
        job.truth[(slow + 1) % job.book.shards].bandwidth = job.truth[slow].bandwidth;
        job.truth[slow].bandwidth = 1e8;
        run(&job, 20, 1);
        ck_assert_msg(from_best(&job) < 1.25, "trial %d: %g after a change", trial, from_best(&job));
        bps_rates_fini(&job.rates);
    }
}
END_TEST

START_TEST(test_one_slow_link)
{
    struct job job;
    job_init(&job, 4);
    job.truth[2].bandwidth /= 2;
    ck_assert_uint_eq(run(&job, 2, 1), 0); /* twice in a row */
    ck_assert_uint_eq(run(&job, 1, 1), 1);
    ck_assert_double_lt(from_best(&job), 1.06);
    job.truth[2].bandwidth *= 2;
    ck_assert_uint_ge(run(&job, 8, 1), 1);
    ck_assert_double_lt(from_best(&job), 1.06);
    bps_rates_fini(&job.rates);
}
END_TEST

/* Of a host that is late nothing is known; one that says nothing any more is not waited for. */
START_TEST(test_a_look_that_lacks_a_report)
{
    struct job job;
    job_init(&job, 4);
    ck_assert_uint_eq(run(&job, 4, 1), 0);
    double known = job.rates.rate[3].link;
    ck_assert(!report(&job, 3, 1) && !report(&job, 3, 1)); /* the second one ends the look before it */
    ck_assert_double_eq(job.rates.rate[3].link, known);
    job.truth[3].bandwidth /= 2;
    uint32_t looks = 0;
    while (!report(&job, 3, 1)) {
        ck_assert_uint_lt(++looks, 10);
    }
    bps_rates_fini(&job.rates);
}
END_TEST

/* As a member reports that has sent much else than push_pulls: whatever the others say, the look counts for nothing. */
START_TEST(test_uneven_looks)
{
    struct job job;
    bool better;
    job_init(&job, 4);
    job.truth[2].bandwidth /= 2;
    for (uint32_t look = 0; look < 10; look++) {
        struct bps_writer w;
        struct bps_reader r;
        bps_writer_init(&w);
        bps_put_u64(&w, 1000000000);
        bps_put_u32(&w, 0);
        bps_reader_init(&r, w.data, w.size);
        ck_assert(!report(&job, 3, 1));
        ck_assert_int_eq(bps_rates_add(&job.rates, 3, &r, &better), BPS_OK);
        ck_assert(!better);
        bps_writer_fini(&w);
    }
    ck_assert_double_eq(job.rates.rate[2].link, 0);
    ck_assert_uint_gt(run(&job, 10, 1), 0);
    bps_rates_fini(&job.rates);
}
END_TEST

START_TEST(test_a_job_that_hardly_communicates)
{
    struct job job;
    job_init(&job, 4);
    job.truth[2].bandwidth /= 2;
    ck_assert_uint_eq(run(&job, 20, 0.2), 0);
    bps_rates_fini(&job.rates);
}
END_TEST

START_TEST(test_reports_that_make_no_sense)
{
    static const struct {
        uint64_t ns;
        uint32_t n, peer;
    } bad[] = {{0, 1, 1}, {1, 2, 1}, {1, 1, 4}, {1, UINT32_MAX, 1}, {1, 0, 0}};
    struct job job;
    bool better;
    job_init(&job, 4);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct bps_writer w;
        struct bps_reader r;
        bps_writer_init(&w);
        bps_put_u64(&w, bad[i].ns);
        bps_put_u32(&w, bad[i].n);
        bps_put_u32(&w, bad[i].peer);
        bps_put_u64(&w, 1);
        bps_put_u64(&w, 1);
        bps_reader_init(&r, w.data, w.size);
        ck_assert_int_eq(bps_rates_add(&job.rates, 0, &r, &better), BPS_ERR_PROTOCOL);
        bps_writer_fini(&w);
    }
    bps_rates_fini(&job.rates);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("moves");
    TCase *moves = tcase_create("moves"), *rates = tcase_create("rates");
    tcase_add_test(moves, test_a_round_that_nobody_has_begun);
    tcase_add_test(moves, test_who_has_not_moved_yet_does_not_move_again);
    tcase_add_test(moves, test_a_move_is_given_up);
    suite_add_tcase(suite, moves);
    tcase_add_test(rates, test_equal_links_keep_their_shares);
    tcase_add_test(rates, test_shares_follow_the_slowest_link);
    tcase_add_test(rates, test_one_slow_link);
    tcase_add_test(rates, test_a_look_that_lacks_a_report);
    tcase_add_test(rates, test_uneven_looks);
    tcase_add_test(rates, test_a_job_that_hardly_communicates);
    tcase_add_test(rates, test_reports_that_make_no_sense);
    suite_add_tcase(suite, rates);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
