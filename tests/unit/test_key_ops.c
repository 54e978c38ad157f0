/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_key_ops.c - a kind of keys that the engine does not know: a table in this file. Such a key keeps a value; what
 * is pushed is added to it and answered at once, whoever else has pushed. Rounds beside it go on as ever.
 */
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "base/clock.h"
#include "sum/round.h"
#include "sum_rig.h"

#define WORKERS 3u
#define COUNT   1000u /* floats */
#define BYTES   (COUNT * 4u)
#define TENSOR  5u
#define VALUE   2u /* the kind */

/* ---- the kind ---- */

struct value {
    struct bps_key key;
    struct bps_block block; /* COUNT floats; NULL: nothing has come */
};

/* A contribution while it comes, and what it is answered with. */
struct answer {
    struct bps_sum_slice slice;
    struct bps_spec spec;
    float data[COUNT];
};

static bool has(const struct bps_sum *sum, const struct bps_round_id *id, uint64_t bytes, uint32_t size)
{
    (void)sum;
    return id->partition == 0 && bytes == BYTES && size == BYTES;
}

static void *place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    struct answer *answer = ((struct bps_sum_cursor *)sink)->block;
    *bytes = BYTES - offset;
    return (char *)answer->data + offset;
}

static void add(struct answer *answer)
{
    struct value *value = (struct value *)answer->slice.key;
    bool first = value->block.data == NULL;
    float *to = (void *)bps_block_get(value->key.sum, &value->block, BYTES);
    ck_assert_ptr_nonnull(to);
    for (uint32_t i = 0; i < COUNT; i++) {
        answer->data[i] += first ? 0 : to[i];
        to[i] = answer->data[i];
    }
}

static uint32_t take(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    struct bps_sum_cursor *cursor = (struct bps_sum_cursor *)sink;
    const struct bps_sum_config *config = &cursor->sum->config;
    struct answer *answer = cursor->block;
    char *to = (char *)answer->data + offset;
    if (to != data) {
        memcpy(to, data, bytes);
    }
    if (offset + bytes == BYTES) {
        cursor->block = NULL;
        add(answer);
        config->events->finished(config->owner, &answer->slice);
        config->events->result(config->owner, cursor->rank, &answer->slice);
    }
    return bytes;
}

/* The block of the cursor has the answer, so that who abandons it returns that. */
static bps_status push(struct bps_key *key, uint32_t rank, const struct bps_contribution *c,
                       struct bps_sum_cursor *cursor)
{
    struct answer *answer = bps_pool_get(key->sum->pool, sizeof *answer);
    (void)rank;
    ck_assert_ptr_nonnull(answer);
    answer->spec = c->spec;
    answer->slice = (struct bps_sum_slice){.key = key,
                                           .id = c->id,
                                           .spec = &answer->spec,
                                           .payload = answer->data,
                                           .payload_bytes = BYTES,
                                           .bytes = BYTES,
                                           .size = BYTES};
    cursor->sink = (struct bps_sink){.place = place, .take = take};
    cursor->block = answer;
    cursor->bytes = sizeof *answer;
    return BPS_OK;
}

/* Nobody waits for this worker. */
static bps_status poison(struct bps_key *key, uint32_t rank, const struct bps_notice *said)
{
    const struct bps_sum_config *config = &key->sum->config;
    struct bps_notice failed = *said;
    failed.kind = BPS_NOTICE_FAILED;
    config->events->notice(config->owner, rank, &failed);
    return BPS_OK;
}

static bps_status end(struct bps_key *key, const struct bps_notice *failed)
{
    (void)key;
    (void)failed;
    return BPS_ERR_PROTOCOL;
}

static bool wants(const struct bps_sum_slice *slice, uint32_t rank)
{
    (void)slice;
    (void)rank;
    return true;
}

static void delivered(struct bps_sum_slice *slice)
{
    bps_pool_put(slice->key->sum->pool, slice, sizeof(struct answer));
}

static const struct bps_key_ops value_ops = {
    .bytes = sizeof(struct value),
    .has = has,
    .push = push,
    .poison = poison,
    .fail = end,
    .wants = wants,
    .delivered = delivered,
};

/* ---- the engine ---- */

static struct bps_sum *sum;
static struct heard {
    uint32_t results, notices;
    float last; /* the first element of the last result */
    struct bps_round_id id;
    char text[200];
} heard[WORKERS];

static void on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    struct heard *h = &heard[rank];
    struct bps_header header;
    (void)owner;
    ck_assert(bps_sum_wants_data(slice, rank));
    ck_assert_int_eq(bps_header_decode(slice->header, &header), BPS_OK);
    ck_assert_uint_eq(header.length, BYTES);
    memcpy(&h->last, slice->payload, sizeof h->last);
    h->id = slice->id;
    h->results++;
    bps_sum_delivered(slice);
}

static void on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    (void)owner;
    heard[rank].notices++;
    snprintf(heard[rank].text, sizeof heard[rank].text, "%s", notice->text);
}

static void open_engine(const struct bps_key_ops *ops)
{
    static const struct bps_sum_events events = {.finished = rig_finished, .result = on_result, .notice = on_notice};
    const struct bps_sum_config config = {.workers = WORKERS,
                                          .partition = 1u << 20,
                                          .slice = 1u << 20,
                                          .only = BPS_SUM_ALL,
                                          .ops = {[VALUE] = ops},
                                          .reducer = rig_reducer,
                                          .events = &events};
    ck_assert_int_eq(bps_sum_new(&config, &sum), BPS_OK);
}

static void setup(void)
{
    rig_open();
    memset(heard, 0, sizeof heard);
    open_engine(&value_ops);
}

static void teardown(void)
{
    bps_sum_free(sum);
    rig_close();
}

/* ---- workers ---- */

static bps_status begin(uint32_t rank, uint32_t kind, uint32_t round, struct bps_sum_cursor *cursor)
{
    struct bps_header header = rig_header(TENSOR, round, BPS_FLOAT32, BPS_SUM, BYTES);
    struct bps_contribution c;
    header.length = BYTES;
    ck_assert_int_eq(bps_frame_contribution(&header, &c), BPS_OK);
    c.id.kind = kind;
    return bps_sum_push(sum, rank, &c, cursor);
}

/* In two pieces: one to the engine's place, one from ours. */
static void push_all(uint32_t rank, uint32_t kind, uint32_t round, float x)
{
    struct bps_sum_cursor cursor;
    float data[COUNT];
    uint32_t room;
    for (uint32_t i = 0; i < COUNT; i++) {
        data[i] = x;
    }
    ck_assert_int_eq(begin(rank, kind, round, &cursor), BPS_OK);
    void *to = cursor.sink.place(&cursor.sink, 0, &room);
    if (to != NULL) {
        memcpy(to, data, BYTES / 2);
    }
    ck_assert_uint_eq(cursor.sink.take(&cursor.sink, 0, to != NULL ? to : data, BYTES / 2), BYTES / 2);
    ck_assert_uint_eq(cursor.sink.take(&cursor.sink, BYTES / 2, data + COUNT / 2, BYTES / 2), BYTES / 2);
}

static void check_heard(uint32_t rank, uint32_t results, float last)
{
    ck_assert_uint_eq(heard[rank].results, results);
    ck_assert_float_eq(heard[rank].last, last);
    ck_assert_uint_eq(heard[rank].notices, 0);
}

/* Each is answered at once, with what has come so far. */
START_TEST(test_value)
{
    push_all(0, VALUE, 0, 1);
    check_heard(0, 1, 1);
    push_all(0, VALUE, 1, 2);
    check_heard(0, 2, 3);
    ck_assert_uint_eq(heard[0].id.round, 1);
    ck_assert_uint_eq(heard[0].id.kind, VALUE);
    push_all(2, VALUE, 0, 4);
    check_heard(2, 1, 7);
    check_heard(1, 0, 0);
}
END_TEST

/* The same partition, of both kinds. */
START_TEST(test_beside_rounds)
{
    push_all(0, BPS_KEY_ROUNDS, 0, 10);
    push_all(1, BPS_KEY_ROUNDS, 0, 20);
    push_all(1, VALUE, 0, 1);
    check_heard(1, 1, 1);
    check_heard(0, 0, 0);
    push_all(2, BPS_KEY_ROUNDS, 0, 30);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        check_heard(rank, rank == 1 ? 2 : 1, 60);
    }
    push_all(2, VALUE, 0, 1);
    check_heard(2, 2, 2);
}
END_TEST

/* Who has pushed waits for nobody: neither who leaves nor time makes a difference. */
START_TEST(test_nobody_waits)
{
    const struct bps_round_id id = {TENSOR, 0, 0, VALUE};
    struct bps_sum_cursor cursor;
    push_all(0, VALUE, 0, 1);
    ck_assert(!bps_sum_is_open(sum, &id));
    bps_sum_excuse(sum, BPS_S);
    bps_sum_leave(sum, 1);
    bps_sum_gone(sum, 1);
    bps_sum_check_stalls(sum, bps_now() + 99 * BPS_S, BPS_S, 3 * BPS_S);
    push_all(0, VALUE, 1, 1);
    check_heard(0, 2, 2);
    ck_assert_int_eq(begin(2, BPS_KEY_ROUNDS, 0, &cursor), BPS_OK);
    ck_assert_uint_eq(heard[2].notices, 1);
    ck_assert_str_eq(heard[2].text, "worker 1 has left the job");
}
END_TEST

START_TEST(test_poison)
{
    struct bps_notice said = {.kind = BPS_NOTICE_POISON,
                              .id = {TENSOR, 0, 0, VALUE},
                              .bytes = BYTES,
                              .size = BYTES,
                              .status = BPS_ERR_FAILED,
                              .text = "no"};
    push_all(0, VALUE, 0, 1);
    ck_assert_int_eq(bps_sum_poison(sum, 1, &said), BPS_OK);
    ck_assert_uint_eq(heard[1].notices, 1);
    ck_assert_str_eq(heard[1].text, "no");
    ck_assert_int_eq(bps_sum_fail(sum, &said), BPS_ERR_PROTOCOL);
    push_all(0, VALUE, 1, 1);
    check_heard(0, 2, 2);
}
END_TEST

/* The link ends in the middle of a contribution, which does not count. */
START_TEST(test_abandon)
{
    struct bps_sum_cursor cursor;
    const float data[2] = {9, 9};
    ck_assert_int_eq(begin(1, VALUE, 0, &cursor), BPS_OK);
    cursor.sink.take(&cursor.sink, 0, data, sizeof data);
    bps_sum_abandon(&cursor);
    ck_assert_ptr_null(cursor.block);
    push_all(0, VALUE, 0, 1);
    check_heard(0, 1, 1);
}
END_TEST

/* An engine has the kinds that its configuration names, and keys what their kind has. */
START_TEST(test_what_there_is_not)
{
    struct bps_sum_cursor cursor;
    struct bps_contribution c;
    struct bps_header header = rig_header(TENSOR, 0, BPS_FLOAT32, BPS_SUM, BYTES);
    header.length = BYTES;
    header.partition = 1;
    ck_assert_int_eq(bps_frame_contribution(&header, &c), BPS_OK);
    c.id.kind = VALUE;
    ck_assert_int_eq(bps_sum_push(sum, 0, &c, &cursor), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(begin(WORKERS, VALUE, 0, &cursor), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(begin(0, BPS_KEY_EXCHANGE, 0, &cursor), BPS_ERR_PROTOCOL);
    bps_sum_free(sum);
    open_engine(NULL);
    ck_assert_int_eq(begin(0, VALUE, 0, &cursor), BPS_ERR_PROTOCOL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("key_ops");
    TCase *tests = tcase_create("key_ops");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_value);
    tcase_add_test(tests, test_beside_rounds);
    tcase_add_test(tests, test_nobody_waits);
    tcase_add_test(tests, test_poison);
    tcase_add_test(tests, test_abandon);
    tcase_add_test(tests, test_what_there_is_not);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
