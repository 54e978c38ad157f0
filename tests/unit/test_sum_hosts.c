/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sum_hosts.c - whole jobs of random shapes: an aggregator on each host, a shard's engine for all of
 * them.
 *
 * Every rank lends its memory, mapped or not, in place or not, or sends bytes; all arrive in random order and
 * results are delivered at random times. What each rank has in the end is compared with the reducer's oracle.
 */
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "../../tools/check/reducer_oracle.h"
#include "sum_rig.h"

#define RANKS_LIMIT      9u
#define PARTITIONS_LIMIT 5u

/* How a rank contributes. */
enum way { MAPPED, UNMAPPED, BYTES, WAYS };

struct rank {
    uint32_t host;
    enum way way;
    uint8_t *data, *answer;
    struct rig_loan loan[PARTITIONS_LIMIT];
    uint32_t results[PARTITIONS_LIMIT]; /* slices of it that have come */
};

/* The lowest rank of a group stands for it. */
struct host {
    uint32_t size, leader;
    struct bps_sum *sum; /* NULL: a rank that is alone */
    struct bps_sum_slice *summed[PARTITIONS_LIMIT];
};

/* A result on its way. */
struct delivery {
    struct bps_sum_slice *slice;
    uint32_t rank;
    bool local;
};

static struct job {
    uint32_t ranks, hosts;
    uint32_t group[RANKS_LIMIT];
    struct rank rank[RANKS_LIMIT];
    struct host host[RANKS_LIMIT];
    struct bps_sum *shard;
    uint32_t partition, slice;
    struct bps_header header; /* of the tensor */
    bool large;               /* an average whose sum its type does not hold */
    struct delivery delivery[1024];
    uint32_t deliveries;
} job;

static uint32_t partitions(void)
{
    return bps_partitions(job.header.bytes, job.partition);
}

static uint32_t bytes_of(uint32_t partition)
{
    return bps_partition_bytes(job.header.bytes, job.partition, partition);
}

/* Whether hosts sum it: an average of integers is that of all ranks, or nothing. */
static bool is_summed_by_hosts(void)
{
    return job.hosts == 1 || job.header.op != BPS_AVERAGE || !bps_is_integer(job.header.dtype);
}

/* Whether what this rank gives goes to its host. */
static bool is_local(uint32_t rank)
{
    return job.host[job.rank[rank].host].sum != NULL && is_summed_by_hosts();
}

static bool is_receiver(uint32_t rank)
{
    return job.header.op == BPS_WIRE_BROADCAST && job.header.root != rank;
}

/* ---- towards the shard ---- */

/* One rank pushes a partition for itself or its host; no data: it stands for receivers. */
static void push_to_shard(uint32_t rank, uint8_t flags, uint32_t partition, const uint8_t *data, bool receiver)
{
    struct bps_header h = job.header;
    uint32_t bytes = bytes_of(partition), slices = receiver ? 1 : bps_partitions(bytes, job.slice);
    h.flags = flags | (receiver ? BPS_FLAG_EMPTY : 0);
    h.partition = partition;
    h.size = bytes;
    if (is_local(rank)) { /* done by the aggregator */
        h.prescale = bps_group_divisor(h.op, h.dtype, job.host[job.rank[rank].host].size);
    }
    for (uint32_t i = 0; i < slices; i++) {
        h.offset = i * job.slice;
        h.length = receiver ? 0 : bps_partition_bytes(bytes, job.slice, i);
        ck_assert_int_eq(rig_push(job.shard, rank, &h, data != NULL ? data + h.offset : NULL), BPS_OK);
    }
}

static void on_summed(void *owner, struct bps_sum_slice *slice)
{
    struct host *host = owner;
    struct bps_header h;
    ck_assert_int_eq(bps_header_decode(slice->header, &h), BPS_OK);
    struct rank *leader = &job.rank[host->leader];
    bool receiver = job.header.op == BPS_WIRE_BROADCAST && job.rank[job.header.root].host != leader->host;
    ck_assert_ptr_null(host->summed[h.partition]);
    ck_assert_int_eq(slice->payload == NULL, receiver || slice->bytes == 0);
    host->summed[h.partition] = slice;
    if (!receiver && slice->bytes > 0 && leader->way == MAPPED) {
        ck_assert_ptr_eq(slice->payload, leader->answer + (size_t)h.partition * job.partition);
    }
    push_to_shard(host->leader, BPS_FLAG_GROUP, h.partition, slice->payload, receiver);
}

/* ---- results ---- */

static void on_local_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    job.delivery[job.deliveries++] = (struct delivery){slice, rank, true};
}

static void on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    (void)owner;
    job.delivery[job.deliveries++] = (struct delivery){slice, rank, false};
}

static void on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    (void)owner;
    ck_abort_msg("worker %u was told of frame %u: %s", rank, notice->kind, notice->text);
}

static void on_released(void *owner, uint32_t rank, struct bps_loan *loan)
{
    (void)owner;
    (void)loan;
    ck_abort_msg("the loan of worker %u was released", rank);
}

/* The rank has what the slice brings: as payload, in its loan, or because it is the root. */
static void receive(uint32_t number, struct bps_sum_slice *slice, const struct bps_header *h)
{
    struct rank *rank = &job.rank[number];
    struct bps_loan *loan = bps_sum_loan(slice, number);
    size_t at = (size_t)h->partition * job.partition + h->offset;
    if (loan != NULL) {
        ck_assert_ptr_eq(loan, &rank->loan[h->partition].loan);
        rank->loan[h->partition].returned++;
    } else if (slice->bytes > 0 && bps_sum_wants_data(slice, number)) {
        memcpy(rank->answer + at, slice->payload, slice->bytes);
    }
    if (job.header.op == BPS_WIRE_BROADCAST && number == job.header.root) {
        ck_assert(!bps_sum_wants_data(slice, number));
        memmove(rank->answer + at, rank->data + at, slice->bytes);
    }
    rank->results[h->partition]++;
}

/* A leader that has all of a partition from the shard passes it on. */
static void distribute(struct host *host, uint32_t partition)
{
    struct rank *leader = &job.rank[host->leader];
    struct bps_sum_slice *slice = host->summed[partition];
    if (leader->results[partition] == bps_partitions(bytes_of(partition), job.slice)) {
        host->summed[partition] = NULL;
        leader->loan[partition].returned++;
        bps_sum_distribute(slice, leader->answer + (size_t)partition * job.partition);
    }
}

static void deliver_one(uint32_t i)
{
    struct delivery d = job.delivery[i];
    struct bps_header h;
    job.delivery[i] = job.delivery[--job.deliveries];
    ck_assert_int_eq(bps_header_decode(d.slice->header, &h), BPS_OK);
    struct host *host = &job.host[job.rank[d.rank].host];
    if (d.local || !is_local(d.rank)) {
        receive(d.rank, d.slice, &h);
        bps_sum_delivered(d.slice);
        return;
    }
    struct rank *leader = &job.rank[d.rank];
    ck_assert_uint_eq(d.rank, host->leader);
    size_t at = (size_t)h.partition * job.partition + h.offset;
    if (d.slice->bytes > 0 && bps_sum_wants_data(d.slice, d.rank)) {
        memcpy(leader->answer + at, d.slice->payload, d.slice->bytes);
    } else if (d.slice->bytes > 0 && host->summed[h.partition]->payload != leader->answer + at - h.offset) {
        const uint8_t *data = host->summed[h.partition]->payload;
        memcpy(leader->answer + at, data + h.offset, d.slice->bytes);
    }
    leader->results[h.partition]++;
    bps_sum_delivered(d.slice);
    distribute(host, h.partition);
}

static bool on_failed(void *owner, const struct bps_notice *notice)
{
    (void)owner;
    ck_abort_msg("tensor %u has failed: %s", notice->id.tensor, notice->text);
    return false;
}

static const struct bps_sum_events shard_events = {.finished = rig_finished, .result = on_result, .notice = on_notice};
static const struct bps_sum_events host_events = {
    .finished = rig_finished,
    .result = on_local_result,
    .notice = on_notice,
    .loan_read = rig_loan_read,
    .loan_write = rig_loan_write,
    .released = on_released,
    .summed = on_summed,
    .failed = on_failed,
};

/* ---- shapes ---- */

static void choose_shape(uint32_t hosts)
{
    memset(&job, 0, sizeof job);
    job.ranks = hosts + rig_random(RANKS_LIMIT + 1 - hosts);
    job.hosts = hosts;
    for (uint32_t r = 0; r < job.ranks; r++) {
        struct rank *rank = &job.rank[r];
        rank->host = r < hosts ? r : rig_random(hosts); /* so the hosts' lowest ranks are 0, 1, 2, ... */
        job.group[r] = rank->host;
        struct host *host = &job.host[rank->host];
        if (rig_random(++host->size) == 0) {
            host->leader = r;
        }
    }
}

static void start(bool rank_order)
{
    struct bps_sum_config config = {.workers = job.ranks,
                                    .partition = job.partition,
                                    .slice = job.slice,
                                    .group = job.group,
                                    .only = BPS_SUM_ALL,
                                    .rank_order = rank_order,
                                    .reducer = rig_reducer,
                                    .events = &shard_events};
    ck_assert_int_eq(bps_sum_new(&config, &job.shard), BPS_OK);
    config.events = &host_events;
    config.partial = job.hosts > 1;
    for (uint32_t i = 0; i < job.hosts; i++) {
        if (job.host[i].size > 1 || job.hosts == 1) {
            config.only = i;
            config.leader = job.host[i].leader;
            config.owner = &job.host[i];
            ck_assert_int_eq(bps_sum_new(&config, &job.host[i].sum), BPS_OK);
        }
    }
}

static void stop(void)
{
    bps_sum_free(job.shard);
    for (uint32_t i = 0; i < job.hosts; i++) {
        bps_sum_free(job.host[i].sum);
    }
}

/* Three quarters of the largest number of a type, which any average of it is, too; the sum of two is none. */
static void fill_large(uint8_t dtype, uint8_t *data, size_t count)
{
    const uint16_t half = 0x7a00, brain = 0x7f40;
    const float single = 0x1.8p127f;
    const double twice = 0x1.8p1023;
    const void *const large[BPS_DTYPES] = {
        [BPS_FLOAT16] = &half, [BPS_BFLOAT16] = &brain, [BPS_FLOAT32] = &single, [BPS_FLOAT64] = &twice};
    for (size_t i = 0; i < count; i++) {
        memcpy(data + i * bps_dtype_size(dtype), large[dtype], bps_dtype_size(dtype));
    }
}

/* Integers whose sum their type does not hold. */
static void fill_any(uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)rig_random(256);
    }
}

static void choose_tensor(uint32_t id, uint32_t round)
{
    static const uint8_t dtypes[] = {BPS_FLOAT32, BPS_FLOAT16, BPS_BFLOAT16, BPS_FLOAT64, BPS_INT8,
                                     BPS_INT64,   BPS_UINT8,   BPS_INT32,    BPS_INT16,   BPS_BOOL};
    static const uint8_t ops[] = {BPS_SUM, BPS_SUM,     BPS_AVERAGE,        BPS_MIN,
                                  BPS_MAX, BPS_PRODUCT, BPS_WIRE_BROADCAST, BPS_WIRE_BROADCAST};
    uint8_t dtype = dtypes[rig_random(sizeof dtypes)], op = ops[rig_random(sizeof ops)];
    op = dtype == BPS_BOOL && op == BPS_AVERAGE ? BPS_SUM : op;
    uint64_t size = bps_dtype_size(dtype), one = job.partition / size;
    const uint64_t counts[] = {0, 1, 7, one - 1, one, one + 1, (PARTITIONS_LIMIT - 1) * one + 3};
    job.header = rig_header(id, round, dtype, op, counts[rig_random(7)] * size);
    job.header.root = op == BPS_WIRE_BROADCAST ? rig_random(job.ranks) : 0;
    if (oracle_is_float(dtype) && op <= BPS_AVERAGE && rig_random(3) == 0) {
        job.header.prescale = 0.5;
        job.header.postscale = 4.0;
    }
    job.large = oracle_is_float(dtype) && op == BPS_AVERAGE && rig_random(2) == 0;
    for (uint32_t r = 0; r < job.ranks; r++) {
        struct rank *rank = &job.rank[r];
        bool leads = r == job.host[rank->host].leader;
        rank->way = leads && rig_random(4) > 0 ? MAPPED : rig_random(WAYS);
        rank->data = malloc(job.header.bytes + 1);
        rank->answer = rig_random(2) == 0 ? rank->data : malloc(job.header.bytes + 1);
        memset(rank->results, 0, sizeof rank->results);
        memset(rank->loan, 0, sizeof rank->loan);
        rig_fill(dtype, rank->data, job.header.bytes / size);
        if (job.large) {
            fill_large(dtype, rank->data, job.header.bytes / size);
        } else if (bps_is_integer(dtype) && op == BPS_AVERAGE) {
            fill_any(rank->data, job.header.bytes);
        }
    }
}

static uint8_t *expected_result(void)
{
    const struct bps_header *h = &job.header;
    size_t count = h->bytes / bps_dtype_size(h->dtype);
    uint8_t *result = malloc(h->bytes + 1), *acc = malloc(8 * count + 1);
    uint32_t op = h->op == BPS_AVERAGE ? BPS_SUM : h->op;
    if (op == BPS_WIRE_BROADCAST) {
        memcpy(result, job.rank[h->root].data, h->bytes);
    } else if (h->op == BPS_AVERAGE && bps_is_integer(h->dtype)) {
        const void *sources[RANKS_LIMIT];
        for (uint32_t r = 0; r < job.ranks; r++) {
            sources[r] = job.rank[r].data;
        }
        oracle_average(h->dtype, result, sources, job.ranks, count);
    } else {
        double shift = job.large ? 16 : 1; /* exact */
        oracle_first(h->dtype, acc, job.rank[0].data, count, h->prescale / shift);
        for (uint32_t r = 1; r < job.ranks; r++) {
            oracle_fold(op, h->dtype, acc, job.rank[r].data, count, h->prescale / shift);
        }
        oracle_finish(h->dtype, result, acc, count, h->postscale * shift, h->op == BPS_AVERAGE ? job.ranks : 1);
    }
    free(acc);
    return result;
}

/* ---- a round ---- */

/* Bytes on their way to an aggregator. */
static struct rig_frame frames[RANKS_LIMIT * PARTITIONS_LIMIT];
static uint32_t open_frames;

static void contribute_local(struct bps_sum *sum, uint32_t number, uint32_t partition)
{
    struct rank *rank = &job.rank[number];
    struct rig_frame *frame = &frames[open_frames];
    struct bps_header h = job.header;
    uint32_t bytes = bytes_of(partition);
    size_t at = (size_t)partition * job.partition;
    h.partition = partition;
    h.size = bytes;
    h.flags = is_receiver(number) ? BPS_FLAG_EMPTY : 0;
    h.length = is_receiver(number) && rig_random(2) == 0 ? 0 : bytes;
    ck_assert_int_eq(rig_begin(frame, sum, number, &h, rank->data + at), BPS_OK);
    if (bytes == 0) {
        ck_assert_ptr_null(frame->cursor.round); /* complete already */
    } else if (rank->way == BYTES) {
        open_frames++;
    } else {
        rig_lend(&rank->loan[partition], rank->data + at, rank->answer + at, bytes, rank->way == MAPPED);
        ck_assert_int_eq(bps_sum_lend(&frame->cursor.sink, &rank->loan[partition].loan), BPS_OK);
    }
}

static void contribute(uint32_t number, uint32_t partition)
{
    struct rank *rank = &job.rank[number];
    if (is_local(number)) {
        contribute_local(job.host[rank->host].sum, number, partition);
    } else {
        bool alone = job.host[rank->host].size == 1;
        uint8_t flags = alone && rig_random(2) == 0 ? BPS_FLAG_GROUP : 0; /* no difference */
        const uint8_t *data = rank->data + (size_t)partition * job.partition;
        push_to_shard(number, flags, partition, data, is_receiver(number));
    }
}

static void run_round(void)
{
    uint32_t total = job.ranks * partitions(), order[RANKS_LIMIT * PARTITIONS_LIMIT];
    for (uint32_t i = 0; i < total; i++) {
        uint32_t k = rig_random(i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    for (uint32_t next = 0; next < total || open_frames > 0 || job.deliveries > 0;) {
        uint32_t choice = rig_random(3);
        if (choice == 0 && next < total) {
            uint32_t i = order[next++];
            contribute(i % job.ranks, i / job.ranks);
        } else if (choice == 1 && open_frames > 0) {
            uint32_t i = rig_random(open_frames);
            struct rig_frame *frame = &frames[i];
            if (rig_feed(frame, 1 + rig_random(job.partition))) {
                *frame = frames[--open_frames];
            }
        } else if (choice == 2 && job.deliveries > 0) {
            deliver_one(rig_random(job.deliveries));
        }
    }
}

static void check_round(const uint8_t *expected)
{
    for (uint32_t r = 0; r < job.ranks; r++) {
        struct rank *rank = &job.rank[r];
        bool local = is_local(r);
        bool leads = job.hosts > 1 && r == job.host[rank->host].leader;
        ck_assert_msg(memcmp(rank->answer, expected, job.header.bytes) == 0, "rank %u of %u, way %u, %s, op %u", r,
                      job.ranks, rank->way, bps_dtype_name(job.header.dtype), job.header.op);
        for (uint32_t p = 0; p < partitions(); p++) {
            uint32_t slices = local && !leads ? 1 : bps_partitions(bytes_of(p), job.slice);
            ck_assert_uint_eq(rank->results[p], slices);
            if (local && rank->way != BYTES && bytes_of(p) > 0) {
                ck_assert_uint_eq(rank->loan[p].returned, 1);
            }
        }
        if (rank->answer != rank->data) {
            free(rank->answer);
        }
        free(rank->data);
    }
}

static void run_job(uint32_t shapes, uint32_t tensors, uint32_t partition, uint32_t slice)
{
    for (uint32_t shape = 0; shape < shapes; shape++) {
        choose_shape(1 + shape % 4);
        job.partition = partition;
        job.slice = slice;
        start(rig_random(2) == 0);
        for (uint32_t i = 0; i < tensors; i++) {
            choose_tensor(i % 2 == 0 ? BPS_ID_UNNAMED | i : 1, i % 2 == 0 ? 0 : i / 2);
            uint8_t *expected = expected_result();
            run_round();
            check_round(expected);
            free(expected);
        }
        stop();
    }
}

START_TEST(test_small_partitions)
{
    run_job(60, 20, 1008, 240);
}
END_TEST

/* So large that an aggregator takes several chunks for a partition. */
START_TEST(test_large_partitions)
{
    run_job(8, 6, 589824 + 48, 98304);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sum_hosts");
    TCase *tests = tcase_create("sum_hosts");
    tcase_add_checked_fixture(tests, rig_open, rig_close);
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, test_small_partitions);
    tcase_add_test(tests, test_large_partitions);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
