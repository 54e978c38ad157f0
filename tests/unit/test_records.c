/* SPDX-License-Identifier: Apache-2.0 */
/* test_records.c - records of several threads, spans and lanes made of them, the common clock, and the file. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "checks.h"
#include "trace/clock.h"
#include "trace/ring.h"
#include "trace/span.h"

#define THREADS 4u
#define EACH    20000u
#define KEPT    (255u * 4096) /* records of one thread */

static struct bps_trace_record record(uint64_t at, enum bps_trace_kind kind, uint32_t tensor, bool end)
{
    return (struct bps_trace_record){.at = at, .step = 1, .tensor = tensor, .kind = (uint8_t)kind, .end = end};
}

/* ---- rings ---- */

static void *put_many(void *arg)
{
    uint32_t thread = *(const uint32_t *)arg;
    for (uint32_t i = 0; i < EACH; i++) {
        struct bps_trace_record r = {.at = 1000 + i,
                                     .step = 7,
                                     .tensor = thread,
                                     .round = i,
                                     .partition = i + 1,
                                     .offset = i + 2,
                                     .bytes = i + 3,
                                     .peer = i + 4,
                                     .label = (uint16_t)(i % 65521),
                                     .kind = BPS_TRACE_ANSWER,
                                     .end = i % 2 == 1};
        bps_ring_put(&r);
    }
    return NULL;
}

static void check_record(const struct bps_trace_record *r)
{
    uint32_t i = r->round;
    ck_assert(r->at == 1000 + i && r->step == 7 && r->partition == i + 1 && r->offset == i + 2 && r->bytes == i + 3);
    ck_assert(r->peer == i + 4 && r->label == i % 65521 && r->kind == BPS_TRACE_ANSWER && r->end == (i % 2 == 1));
}

START_TEST(test_all_records_of_all_threads_are_there_by_time)
{
    pthread_t thread[THREADS];
    uint32_t number[THREADS], seen[THREADS] = {0};
    uint64_t lost;
    size_t n;
    for (uint32_t i = 0; i < THREADS; i++) {
        number[i] = i;
        ck_assert_int_eq(pthread_create(&thread[i], NULL, put_many, &number[i]), 0);
    }
    free(bps_ring_all(&n, &lost)); /* meanwhile, somebody reads */
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }
    struct bps_trace_record *all = bps_ring_all(&n, &lost);
    ck_assert_uint_eq(n, THREADS * EACH);
    ck_assert_uint_eq(lost, 0);
    for (size_t i = 0; i < n; i++) {
        ck_assert(i == 0 || all[i - 1].at <= all[i].at);
        check_record(&all[i]);
        ck_assert_uint_eq(all[i].round, seen[all[i].tensor]++);
    }
    free(all);
}
END_TEST

START_TEST(test_a_full_ring_keeps_the_newest)
{
    uint64_t lost;
    size_t n;
    for (uint32_t i = 0; i < KEPT + 5000; i++) {
        const struct bps_trace_record r = record(i + 1, BPS_TRACE_PUSH, 0, false);
        bps_ring_put(&r);
    }
    struct bps_trace_record *all = bps_ring_all(&n, &lost);
    ck_assert_uint_eq(n, KEPT);
    ck_assert_uint_eq(lost, 5000);
    ck_assert_uint_eq(all[0].at, 5001);
    ck_assert_uint_eq(all[n - 1].at, KEPT + 5000);
    free(all);
}
END_TEST

/* ---- spans ---- */

START_TEST(test_what_overlaps_is_on_several_lanes)
{
    const struct bps_trace_record all[] = {
        record(1, BPS_TRACE_PUSH, 1, false), record(2, BPS_TRACE_PUSH, 2, false), record(3, BPS_TRACE_SUM, 1, false),
        record(4, BPS_TRACE_PUSH, 1, true),  record(5, BPS_TRACE_PUSH, 3, false), record(6, BPS_TRACE_PUSH, 2, true),
        record(7, BPS_TRACE_PUSH, 3, true),  record(8, BPS_TRACE_PUSH, 9, true), /* has never begun */
    };
    struct bps_trace_spans spans;
    ck_assert_int_eq(bps_trace_pair(all, sizeof all / sizeof all[0], 100, &spans), BPS_OK);
    ck_assert_uint_eq(spans.n, 4);
    ck_assert_uint_eq(spans.lanes, 3);
    const uint64_t until[] = {4, 6, 100, 7};
    const uint32_t lane[] = {0, 1, 2, 0}; /* the third push is on the lane of the first one, which is over */
    for (size_t i = 0; i < spans.n; i++) {
        ck_assert_uint_eq(spans.span[i].until, until[i]);
        ck_assert_uint_eq(spans.span[i].lane, lane[i]);
        ck_assert_int_eq(spans.span[i].finished, i != 2);
    }
    ck_assert_uint_eq(spans.lane[1].number, 1);
    bps_trace_spans_free(&spans);
}
END_TEST

START_TEST(test_spans_of_a_lane_never_overlap)
{
    enum { SPANS = 500 };
    static struct bps_trace_record all[2 * SPANS];
    static bool open[SPANS];
    uint64_t until[SPANS] = {0};
    struct bps_trace_spans spans;
    size_t n = 0;
    srandom(7);
    for (uint32_t begun = 0, ended = 0; ended < SPANS;) {
        uint32_t i = (uint32_t)random() % (begun + 1);
        if (i == begun && begun < SPANS) {
            open[begun] = true;
            all[n] = record(n + 1, BPS_TRACE_RESULT, begun++, false);
            n++;
        } else if (i < begun && open[i]) {
            open[i] = false;
            all[n] = record(n + 1, BPS_TRACE_RESULT, i, true);
            n++;
            ended++;
        }
    }
    ck_assert_int_eq(bps_trace_pair(all, n, 0, &spans), BPS_OK);
    ck_assert_uint_eq(spans.n, SPANS);
    for (size_t i = 0; i < spans.n; i++) {
        const struct bps_trace_span *span = &spans.span[i];
        ck_assert(span->finished && span->begin.at > until[span->lane] && span->until > span->begin.at);
        until[span->lane] = span->until;
    }
    bps_trace_spans_free(&spans);
}
END_TEST

/* ---- the clock ---- */

START_TEST(test_the_best_comparison_counts_and_drift_is_followed)
{
    const uint64_t s = BPS_S;
    ck_assert_uint_eq(bps_trace_clock_common(5 * s), 5 * s);
    bps_trace_clock_compare(10 * s, 110 * s, 10 * s + 2000);
    ck_assert_uint_eq(bps_trace_clock_common(10 * s + 1000), 110 * s);
    ck_assert_uint_eq(bps_trace_clock_error(), 1000);
    bps_trace_clock_compare(11 * s, 111 * s + 777, 11 * s + 4000); /* worse */
    ck_assert_uint_eq(bps_trace_clock_common(10 * s + 1000), 110 * s);
    bps_trace_clock_compare(12 * s, 112 * s + 50, 12 * s + 100); /* better */
    ck_assert_uint_eq(bps_trace_clock_common(12 * s), 112 * s);
    bps_trace_clock_compare(22 * s, 122 * s + 50 + 1000, 22 * s + 100); /* the other one gains 100 ns per second */
    ck_assert_uint_eq(bps_trace_clock_common(17 * s + 50), 117 * s + 50 + 500);
    ck_assert_uint_eq(bps_trace_clock_common(30 * s), 130 * s + 1000);
    for (uint64_t i = 0; i < 3000; i++) { /* hours */
        bps_trace_clock_compare((30 + 5 * i) * s, (130 + 5 * i) * s + 50, (30 + 5 * i) * s + 100);
    }
    ck_assert_uint_eq(bps_trace_clock_common(9000 * s), 9100 * s);
    ck_assert_uint_eq(bps_trace_clock_error(), 50);
}
END_TEST

/* ---- the file ---- */

static char folder[] = "/tmp/bps-trace-XXXXXX";

static char *read_all(const char *path)
{
    static char text[65536];
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s is not there", path);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static void write_one(const char *name, const char *tensor, const char *expected)
{
    struct bps_report report;
    char file[300], path[300];
    snprintf(file, sizeof file, "%s/%s", folder, name);
    snprintf(path, sizeof path, "%s/%s", folder, expected);
    ck_assert_int_eq(bps_trace_open(file, 2, 3, &report), BPS_OK);
    ck_assert_int_eq(bps_trace_open("ignored", 0, 9, &report), BPS_OK); /* a further member */
    bps_trace_identify(&(struct bps_trace_member){.role = "worker", .rank = 3, .number = 3, .host = "a\"b", .job = 5});
    bps_trace_identify(&(struct bps_trace_member){.role = "server", .rank = 0, .number = 9, .host = "a", .job = 5});
    ck_assert_uint_eq(bps_trace_begin(0, 1), 0);
    ck_assert_uint_eq(bps_trace_begin(0, 2), 3);
    ck_assert_uint_eq(bps_trace_begin(0, 0), 3); /* of a tensor that came later */
    ck_assert_uint_eq(bps_trace_begin(3, 0), 4); /* the program has said how many steps have ended */
    struct bps_trace_record r = {.step = 3, .tensor = 17, .kind = BPS_TRACE_OPERATION};
    r.label = bps_trace_label("sum");
    bps_trace_name(17, tensor);
    bps_trace_note(&r);
    r.end = true;
    bps_trace_note(&r);
    bps_trace_close();
    ck_assert(bps_trace_is_on());
    bps_trace_close();
    ck_assert(!bps_trace_is_on());
    const char *text = read_all(path);
    ck_assert_msg(strstr(text, "\"member\":\"worker 3\",\"rank\":3,\"host\":\"a\\\"b\"") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "\"17\":\"t\\\\ ?\\\"?\"") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "\"args\":{\"step\":2,\"tensor\":17,\"round\":0,\"bytes\":0,\"op\":\"sum\"}}") != NULL,
                  "%s", text);
    unlink(path);
}

START_TEST(test_a_file_for_each_member)
{
    struct bps_report report;
    ck_assert(mkdtemp(folder) != NULL);
    write_one("t.json", "t\\ \n\"\xff", "t.worker-3.json");
    write_one("sub/folder/", "t\\ \n\"\xff", "sub/folder/worker-3.json");
    write_one("plain", "t\\ \n\"\xff", "plain.worker-3.json");
    ck_assert_int_eq(bps_trace_open("/proc/no/such/t.json", 0, 1, &report), BPS_ERR_CONF);
    ck_assert_msg(strstr(report.text, "trace.file = /proc/no/such/t.json: ") != NULL, "%s", report.text);
    ck_assert(!bps_trace_is_on());
    for (const char *const *part = (const char *const[]){"/sub/folder", "/sub", "", NULL}; *part != NULL; part++) {
        char path[300];
        snprintf(path, sizeof path, "%s%s", folder, *part);
        ck_assert_int_eq(rmdir(path), 0);
    }
}
END_TEST

START_TEST(test_what_is_over_is_written_before_the_end)
{
    struct bps_report report;
    char file[300], path[300];
    ck_assert(mkdtemp(folder) != NULL);
    snprintf(file, sizeof file, "%s/t.json", folder);
    snprintf(path, sizeof path, "%s/t.worker-0.json", folder);
    ck_assert_int_eq(bps_trace_open(file, 0, 1, &report), BPS_OK);
    bps_trace_identify(&(struct bps_trace_member){.role = "worker", .host = "a", .job = 1});
    struct bps_trace_record r = {.step = bps_trace_begin(0, 1), .tensor = 1, .kind = BPS_TRACE_WAIT};
    ck_assert_uint_eq(r.step, 2);
    bps_trace_note(&r);
    ck_assert_uint_eq(bps_trace_begin(0, 2), 0);
    for (int i = 0; access(path, R_OK) != 0; i++) {
        ck_assert_int_lt(i, 1000);
        usleep(10000);
    }
    ck_assert_msg(strstr(read_all(path), "\"unfinished\":true") != NULL, "%s", read_all(path));
    r.end = true;
    bps_trace_note(&r);
    bps_trace_close();
    ck_assert(strstr(read_all(path), "unfinished") == NULL && strstr(read_all(path), "\"cat\":\"wait\"") != NULL);
    unlink(path);
    rmdir(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("records");
    TCase *tests = tcase_create("records");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, test_all_records_of_all_threads_are_there_by_time);
    tcase_add_test(tests, test_a_full_ring_keeps_the_newest);
    tcase_add_test(tests, test_what_overlaps_is_on_several_lanes);
    tcase_add_test(tests, test_spans_of_a_lane_never_overlap);
    tcase_add_test(tests, test_the_best_comparison_counts_and_drift_is_followed);
    tcase_add_test(tests, test_a_file_for_each_member);
    tcase_add_test(tests, test_what_is_over_is_written_before_the_end);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
