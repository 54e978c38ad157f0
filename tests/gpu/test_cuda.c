/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda.c - the reducer "cuda" orders copies between the streams of an application, and ends cleanly. The
 * driver is the stand-in, which is late in another way for each seed: the loop index.
 */
#include "tests/gpu/cuda_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEEDS 8
#define BYTES ((size_t)1 << 20)

static struct rig rig;
static unsigned left;

static void set_up(int seed)
{
    char text[16];
    snprintf(text, sizeof text, "%d", seed + 1);
    setenv("STANDIN_SEED", text, 1);
    rig_open(&rig);
}

static uint8_t *pattern(size_t bytes, unsigned seed)
{
    uint8_t *memory = malloc(bytes + 1);
    ck_assert_ptr_nonnull(memory);
    for (size_t i = 0; i < bytes; i++) {
        memory[i] = (uint8_t)(i * 2654435761u >> 13 ^ seed);
    }
    return memory;
}

/* ---- copies ---- */

START_TEST(copies_bring_all_bytes)
{
    static const size_t sizes[] = {0, 1, 4097, 3000001};
    struct call call;
    set_up(_i);
    for (int32_t device = 0; device < DEVICES; device++) {
        CUDA(cuCtxSetCurrent(rig.context[device]));
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            uint8_t *data = pattern(sizes[i], (unsigned)i), *back = pattern(sizes[i], 99);
            void *memory = device_alloc(sizes[i] + 1);
            calls_init(&rig, &call, 1, &left);
            rig_copy(&rig, device, true, memory, data, sizes[i], &call);
            rig_run(&rig, &left);
            ck_assert_int_eq(call.status, BPS_OK);
            calls_init(&rig, &call, 1, &left);
            rig_copy(&rig, device, false, back, memory, sizes[i], &call);
            rig_run(&rig, &left);
            ck_assert_mem_eq(back, data, sizes[i]);
            device_free(memory);
            free(data);
            free(back);
        }
    }
    rig_close(&rig);
}
END_TEST

START_TEST(copies_of_a_direction_end_in_their_order)
{
    enum { N = 40 };
    struct call calls[N];
    uint8_t *data = pattern(BYTES, 1), *back = pattern(BYTES, 2);
    set_up(_i);
    void *in = device_alloc(BYTES), *out = device_alloc(BYTES);
    calls_init(&rig, calls, N, &left);
    for (unsigned i = 0; i < N; i++) {
        if (i % 2 == 0) {
            rig_copy(&rig, 0, true, in, data, i * 1000, &calls[i]);
        } else {
            rig_copy(&rig, 0, false, back, out, i * 1000, &calls[i]);
        }
    }
    rig_run(&rig, &left);
    for (unsigned i = 2; i < N; i++) {
        ck_assert_uint_lt(calls[i - 2].order, calls[i].order);
    }
    device_free(in);
    device_free(out);
    free(data);
    free(back);
    rig_close(&rig);
}
END_TEST

/* ---- marks ---- */

START_TEST(a_mark_is_behind_late_work)
{
    struct gate gate;
    struct call await, copy;
    uint8_t *data = pattern(BYTES, 1), *back = pattern(BYTES, 2);
    unsigned copy_left;
    set_up(_i);
    void *memory = device_alloc(BYTES), *other = device_alloc(BYTES);
    struct CUstream_st *stream = stream_new(CUDA_STREAM_NON_BLOCKING);
    gate_close(&gate, stream);
    CUDA(cuMemcpyHtoDAsync_v2((uintptr_t)memory, data, BYTES, stream));
    struct bps_mark *mark = rig_mark(&rig, 0, stream);
    calls_init(&rig, &await, 1, &left);
    rig_await(&rig, mark, &await);
    calls_init(&rig, &copy, 1, &copy_left);
    rig_copy(&rig, 0, false, back, other, BYTES, &copy);
    rig_run(&rig, &copy_left);
    ck_assert_uint_eq(await.count, 0);
    gate_open(&gate);
    rig_run(&rig, &left);
    rig.ops->release(rig.self, mark);
    calls_init(&rig, &copy, 1, &left);
    rig_copy(&rig, 0, false, back, memory, BYTES, &copy);
    rig_run(&rig, &left);
    ck_assert_mem_eq(back, data, BYTES);
    device_free(memory);
    device_free(other);
    CUDA(cuStreamDestroy_v2(stream));
    free(data);
    free(back);
    rig_close(&rig);
}
END_TEST

START_TEST(streams_become_ready_in_another_order_than_awaited)
{
    enum { STREAMS = 5, MARKS = 6 };
    struct CUstream_st *streams[STREAMS];
    struct bps_mark *marks[STREAMS][MARKS];
    struct call calls[STREAMS][MARKS];
    struct gate gates[STREAMS];
    unsigned stream_left[STREAMS];
    set_up(_i);
    for (unsigned i = 0; i < STREAMS; i++) {
        streams[i] = stream_new(i % 2 == 0 ? CUDA_STREAM_NON_BLOCKING : 0);
        gate_close(&gates[i], streams[i]);
        calls_init(&rig, calls[i], MARKS, &stream_left[i]);
    }
    for (unsigned m = 0; m < MARKS; m++) {
        for (unsigned i = 0; i < STREAMS; i++) {
            marks[i][m] = rig_mark(&rig, 0, streams[i]);
            rig_await(&rig, marks[i][m], &calls[i][m]);
        }
    }
    for (unsigned n = STREAMS; n-- > 0;) {
        unsigned i = (n + (unsigned)_i) % STREAMS;
        gate_open(&gates[i]);
        rig_run(&rig, &stream_left[i]);
        for (unsigned m = 1; m < MARKS; m++) {
            ck_assert_uint_lt(calls[i][m - 1].order, calls[i][m].order);
        }
    }
    for (unsigned i = 0; i < STREAMS; i++) {
        CUDA(cuStreamDestroy_v2(streams[i]));
        for (unsigned m = 0; m < MARKS; m++) {
            rig.ops->release(rig.self, marks[i][m]);
        }
    }
    rig_close(&rig);
}
END_TEST

START_TEST(a_stream_follows_copies)
{
    struct bps_report report = {""};
    struct bps_mark *mark;
    struct call call;
    uint8_t *data = pattern(BYTES, 1), *back = pattern(BYTES, 2);
    set_up(_i);
    void *memory = device_alloc(BYTES);
    struct CUstream_st *stream = stream_new(CUDA_STREAM_NON_BLOCKING);
    calls_init(&rig, &call, 1, &left);
    rig_copy(&rig, 0, true, memory, data, BYTES, &call);
    ck_assert_int_eq(rig.ops->mark_copies(rig.self, 0, &mark, &report), BPS_OK);
    rig_follow(&rig, 0, stream, mark);
    rig.ops->release(rig.self, mark);
    CUDA(cuMemcpyDtoHAsync_v2(back, (uintptr_t)memory, BYTES, stream));
    CUDA(cuStreamSynchronize(stream));
    ck_assert_mem_eq(back, data, BYTES);
    rig_run(&rig, &left);
    device_free(memory);
    CUDA(cuStreamDestroy_v2(stream));
    free(data);
    free(back);
    rig_close(&rig);
}
END_TEST

/* ---- reductions ---- */

START_TEST(reductions_are_behind_copies_to_the_device)
{
    enum { N = 100000 };
    static const double scales[] = {3};
    struct bps_report report = {""};
    struct bps_mark *mark;
    struct call calls[2];
    static float data[N], back[N];
    set_up(_i);
    for (int i = 0; i < N; i++) {
        data[i] = (float)i;
    }
    void *memory = device_alloc(sizeof data), *result = device_alloc(sizeof data);
    struct CUstream_st *stream = stream_new(CUDA_STREAM_NON_BLOCKING);
    struct bps_reduction reduction = {.op = BPS_SUM, .dtype = BPS_FLOAT32, .n = 1, .src = {memory}};
    reduction.dst = result;
    reduction.count = N;
    reduction.scales = scales;
    reduction.scale = reduction.divisor = 2;
    reduction.done = call_done;
    reduction.arg = &calls[1];
    if (rig.ops->reduce != NULL) {
        ck_assert(rig.ops->can_reduce(rig.self, 0, BPS_SUM, BPS_FLOAT32));
        ck_assert(!rig.ops->can_reduce(rig.self, 0, BPS_AVERAGE, BPS_FLOAT32));
        ck_assert(!rig.ops->can_reduce(rig.self, 0, BPS_SUM, BPS_DTYPES));
        calls_init(&rig, calls, 2, &left);
        rig_copy(&rig, 0, true, memory, data, sizeof data, &calls[0]);
        ck_assert_int_eq(rig.ops->reduce(rig.self, &reduction, &report), BPS_OK);
        ck_assert_int_eq(rig.ops->mark_copies(rig.self, 0, &mark, &report), BPS_OK);
        rig_follow(&rig, 0, stream, mark);
        rig.ops->release(rig.self, mark);
        CUDA(cuMemcpyDtoHAsync_v2(back, (uintptr_t)result, sizeof back, stream));
        CUDA(cuStreamSynchronize(stream));
        for (int i = 0; i < N; i++) {
            ck_assert_float_eq(back[i], 3 * data[i]);
        }
        rig_run(&rig, &left);
        ck_assert_uint_lt(calls[0].order, calls[1].order);
    }
    device_free(memory);
    device_free(result);
    CUDA(cuStreamDestroy_v2(stream));
    rig_close(&rig);
}
END_TEST

/* ---- default streams ---- */

struct thread {
    struct gate gate;
    struct bps_mark *mark;
};

static void *mark_own_stream(void *arg)
{
    struct thread *thread = arg;
    struct CUstream_st *own = (struct CUstream_st *)CUDA_STREAM_PER_THREAD;
    CUDA(cuCtxSetCurrent(rig.context[0]));
    gate_close(&thread->gate, own);
    thread->mark = rig_mark(&rig, 0, own);
    return NULL;
}

START_TEST(default_streams_are_streams)
{
    struct thread thread;
    struct call calls[3], late;
    struct bps_mark *marks[3];
    unsigned late_left;
    pthread_t id;
    set_up(_i);
    ck_assert_int_eq(pthread_create(&id, NULL, mark_own_stream, &thread), 0);
    pthread_join(id, NULL);
    calls_init(&rig, &late, 1, &late_left);
    rig_await(&rig, thread.mark, &late);
    /* The legacy stream would wait for that thread's. */
    calls_init(&rig, calls, 1, &left);
    marks[0] = rig_mark(&rig, 0, (struct CUstream_st *)CUDA_STREAM_PER_THREAD);
    rig_await(&rig, marks[0], &calls[0]);
    rig_run(&rig, &left);
    ck_assert_uint_eq(late.count, 0);
    gate_open(&thread.gate);
    rig_run(&rig, &late_left);
    calls_init(&rig, &calls[1], 2, &left);
    marks[1] = rig_mark(&rig, 0, NULL);
    marks[2] = rig_mark(&rig, 1, (struct CUstream_st *)CUDA_STREAM_LEGACY);
    rig_await(&rig, marks[1], &calls[1]);
    rig_await(&rig, marks[2], &calls[2]);
    rig_run(&rig, &left);
    for (int i = 0; i < 3; i++) {
        rig.ops->release(rig.self, marks[i]);
    }
    rig.ops->release(rig.self, thread.mark);
    rig_close(&rig);
}
END_TEST

/* ---- many threads, many rounds ---- */

static void *mark_and_follow(void *arg)
{
    struct CUstream_st *stream;
    (void)arg;
    CUDA(cuCtxSetCurrent(rig.context[1]));
    stream = stream_new(0);
    for (int i = 0; i < 100; i++) {
        struct bps_mark *mark = rig_mark(&rig, 1, stream);
        rig_follow(&rig, i % 2, NULL, mark);
        rig.ops->release(rig.self, mark);
    }
    CUDA(cuStreamDestroy_v2(stream));
    return NULL;
}

START_TEST(threads_mark_while_the_loop_copies)
{
    enum { THREADS = 3, COPIES = 100 };
    pthread_t threads[THREADS];
    struct call calls[COPIES];
    uint8_t *data = pattern(BYTES, 1);
    set_up(_i);
    void *memory = device_alloc(BYTES);
    for (int i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, mark_and_follow, NULL), 0);
    }
    calls_init(&rig, calls, COPIES, &left);
    for (int i = 0; i < COPIES; i++) {
        rig_copy(&rig, 0, true, memory, data, 4096, &calls[i]);
    }
    rig_run(&rig, &left);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    device_free(memory);
    free(data);
    rig_close(&rig);
}
END_TEST

/* What a push_pull does, again and again. */
static void one_round(struct CUstream_st *stream, void *memory, uint8_t *host)
{
    struct bps_report report = {""};
    struct call call;
    struct bps_mark *mark = rig_mark(&rig, 0, stream);
    calls_init(&rig, &call, 1, &left);
    rig_await(&rig, mark, &call);
    rig_run(&rig, &left);
    rig.ops->release(rig.self, mark);
    for (int to_device = 0; to_device < 2; to_device++) {
        calls_init(&rig, &call, 1, &left);
        rig_copy(&rig, 0, to_device, to_device ? memory : host, to_device ? host : memory, BYTES, &call);
        rig_run(&rig, &left);
    }
    ck_assert_int_eq(rig.ops->mark_copies(rig.self, 0, &mark, &report), BPS_OK);
    rig_follow(&rig, 0, stream, mark);
    rig.ops->release(rig.self, mark);
}

START_TEST(rounds_use_again_what_is_there)
{
    struct standin_counts first, last;
    uint8_t *data = pattern(BYTES, 1);
    set_up(_i);
    void *memory = device_alloc(BYTES);
    struct CUstream_st *stream = stream_new(0);
    one_round(stream, memory, data);
    standin_count(&first);
    for (int i = 0; i < 20; i++) {
        one_round(stream, memory, data);
    }
    standin_count(&last);
    ck_assert_uint_eq(first.streams, last.streams);
    ck_assert_uint_eq(first.events, last.events);
    device_free(memory);
    CUDA(cuStreamDestroy_v2(stream));
    free(data);
    rig_close(&rig);
}
END_TEST

/* ---- regions and the end ---- */

static unsigned registrations(void)
{
    struct standin_counts counts;
    standin_count(&counts);
    return counts.registrations;
}

/* ---- memory that others reach ---- */

static unsigned flushes(void)
{
    struct standin_counts counts;
    standin_count(&counts);
    return counts.flushes;
}

START_TEST(others_reach_whole_allocations)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = 3 * page + 100;
    struct bps_report report = {""};
    struct bps_region region;
    uint8_t pattern[2000];
    set_up(_i);
    const struct bps_share_ops *share = rig.ops->share;
    uint8_t *memory = device_alloc(bytes), *other = device_alloc(page);
    memset(pattern, 0x5a, sizeof pattern);
    device_write(memory + page, pattern, sizeof pattern);
    ck_assert_msg(share->region(rig.self, 0, memory + page, 10, &region, &report) == BPS_OK, "%s", report.text);
    ck_assert_ptr_eq(region.memory, memory);
    ck_assert_uint_eq(region.bytes, 4 * page);
    ck_assert(region.on_device);
    uint8_t *seen = mmap(NULL, region.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region.fd, (off_t)region.offset);
    ck_assert_ptr_ne(seen, MAP_FAILED);
    ck_assert_mem_eq(seen + page, pattern, sizeof pattern);
    munmap(seen, region.bytes);
    close(region.fd);
    uint64_t id = share->allocation(rig.self, 0, memory + bytes - 1);
    ck_assert_uint_ne(id, 0);
    ck_assert_uint_eq(share->allocation(rig.self, 0, memory), id);
    ck_assert_uint_ne(share->allocation(rig.self, 0, other), id);
    unsigned before = flushes();
    ck_assert_int_eq(share->flush(rig.self, 0, &report), BPS_OK);
    ck_assert_uint_eq(flushes(), before + 1);
    device_free(memory);
    ck_assert_uint_eq(share->allocation(rig.self, 0, memory), 0);
    device_free(other);
    rig_close(&rig);
}
END_TEST

START_TEST(regions_are_registered_when_a_device_is_used)
{
    struct bps_report report = {""};
    struct bps_region regions[3];
    struct call call;
    set_up(_i);
    void *memory = device_alloc(BYTES);
    for (int i = 0; i < 3; i++) {
        regions[i] = (struct bps_region){.bytes = BYTES, .fd = -1};
        regions[i].memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(regions[i].memory, MAP_FAILED);
    }
    CUDA(cuMemHostRegister_v2(regions[2].memory, BYTES, 0)); /* by the application already */
    ck_assert_int_eq(rig.ops->attach(rig.self, &regions[0], &report), BPS_OK);
    ck_assert_int_eq(rig.ops->attach(rig.self, &regions[2], &report), BPS_OK);
    ck_assert_uint_eq(registrations(), 1);
    for (int i = 0; i < 2; i++) {
        calls_init(&rig, &call, 1, &left);
        rig_copy(&rig, i, false, regions[0].memory, memory, i == 0 ? BYTES : 0, &call);
        rig_run(&rig, &left);
        ck_assert_uint_eq(registrations(), 2);
    }
    ck_assert_int_eq(rig.ops->attach(rig.self, &regions[1], &report), BPS_OK);
    rig.ops->detach(rig.self, &regions[0]);
    rig.ops->detach(rig.self, &regions[2]);
    ck_assert_uint_eq(registrations(), 1);
    CUDA(cuMemHostUnregister(regions[2].memory));
    calls_init(&rig, &call, 1, &left);
    rig_copy(&rig, 0, false, regions[1].memory, memory, BYTES, &call);
    rig_run(&rig, &left);
    ck_assert_uint_eq(registrations(), 1); /* close takes it back */
    device_free(memory);
    rig_close(&rig);
    for (int i = 0; i < 3; i++) {
        munmap(regions[i].memory, BYTES);
    }
}
END_TEST

START_TEST(close_waits_for_copies)
{
    enum { N = 30 };
    struct call calls[N];
    uint8_t *data = pattern(BYTES, 1), *back = malloc(BYTES * N);
    set_up(_i);
    void *memory = device_alloc(BYTES);
    device_write(memory, data, BYTES);
    calls_init(&rig, calls, N, &left);
    for (int i = 0; i < N; i++) {
        rig_copy(&rig, 0, false, back + (size_t)i * BYTES, memory, BYTES, &calls[i]);
    }
    rig_close_plugin(&rig);
    for (int i = 0; i < N; i++) {
        ck_assert_uint_eq(calls[i].count, 0);
        ck_assert_mem_eq(back + (size_t)i * BYTES, data, BYTES);
    }
    device_free(memory);
    free(data);
    free(back);
    for (int i = 0; i < DEVICES; i++) {
        CUDA(cuDevicePrimaryCtxRelease_v2(i));
    }
    bps_loop_free(rig.loop);
}
END_TEST

START_TEST(an_instance_without_work_leaves_nothing)
{
    set_up(_i);
    rig_close(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda");
    TCase *tests = tcase_create("copies and marks");
    tcase_add_loop_test(tests, copies_bring_all_bytes, 0, SEEDS);
    tcase_add_loop_test(tests, copies_of_a_direction_end_in_their_order, 0, SEEDS);
    tcase_add_loop_test(tests, a_mark_is_behind_late_work, 0, SEEDS);
    tcase_add_loop_test(tests, streams_become_ready_in_another_order_than_awaited, 0, SEEDS);
    tcase_add_loop_test(tests, a_stream_follows_copies, 0, SEEDS);
    tcase_add_loop_test(tests, reductions_are_behind_copies_to_the_device, 0, SEEDS);
    tcase_add_loop_test(tests, default_streams_are_streams, 0, SEEDS);
    tcase_add_loop_test(tests, threads_mark_while_the_loop_copies, 0, SEEDS);
    tcase_add_loop_test(tests, rounds_use_again_what_is_there, 0, SEEDS);
    tcase_add_test(tests, others_reach_whole_allocations);
    tcase_add_loop_test(tests, regions_are_registered_when_a_device_is_used, 0, SEEDS);
    tcase_add_loop_test(tests, close_waits_for_copies, 0, SEEDS);
    tcase_add_test(tests, an_instance_without_work_leaves_nothing);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
