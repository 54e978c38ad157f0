/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_refused.c - what the reducer "cuda" says where it cannot start, go on or take part. */
#include "tests/gpu/cuda_rig.h"

#include <stdlib.h>
#include <string.h>

#include <byteps/reducer.h>

#define BYTES ((size_t)1 << 16)

static struct rig rig;
static unsigned left;
static struct bps_report report;

static void expect(bps_status status, bps_status expected, const char *words)
{
    ck_assert_msg(status == expected, "%d: %s", status, report.text);
    ck_assert_msg(strstr(report.text, words) != NULL, "'%s' is not in: %s", words, report.text);
}

/* ---- the start ---- */

static const struct {
    const char *name, *value, *words;
} starts[] = {
    {"STANDIN_INIT", "100", "finds no device; `nvidia-smi -L`"},
    {"STANDIN_DEVICES", "0", "CUDA_VISIBLE_DEVICES"},
    {"STANDIN_INIT", "34", "stub"},
    {"STANDIN_INIT", "304", "/dev/nvidia"},
    {"STANDIN_INIT", "800", "not permitted"},
    {"STANDIN_INIT", "802", "nvidia-fabricmanager"},
    {"STANDIN_INIT", "803", "version"},
    {"STANDIN_INIT", "804", "compatibility"},
    {"STANDIN_INIT", "2", "out of memory (CUDA_ERROR_OUT_OF_MEMORY)"},
    {"STANDIN_INIT", "12345", "unknown error 12345"},
};

START_TEST(a_driver_that_does_not_start_is_refused)
{
    setenv(starts[_i].name, starts[_i].value, 1);
    expect(rig_refused(&report), BPS_ERR_UNSUPPORTED, starts[_i].words);
}
END_TEST

START_TEST(it_has_no_kernels_for_the_host)
{
    struct bps_kernels kernels;
    const struct bps_reducer_ops *ops;
    char text[128];
    rig_open(&rig);
    ops = rig.instance->ops;
    ck_assert_int_eq(ops->kernels(rig.self, BPS_SUM, BPS_FLOAT32, &kernels), BPS_ERR_UNSUPPORTED);
    ops->describe(rig.self, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "2 devices, the first is stand-in, with dma-buf; driver for CUDA 13.0; "));
    rig_close(&rig);
}
END_TEST

/* ---- arguments ---- */

START_TEST(a_device_that_is_not_there_is_refused)
{
    static const int32_t indices[] = {-1, DEVICES, INT32_MAX};
    const struct bps_device where = {.type = BPS_DEVICE_CUDA, .index = indices[_i]};
    const struct bps_copy copy = {.device = indices[_i], .done = call_done};
    struct bps_mark *mark;
    rig_open(&rig);
    expect(rig.ops->mark(rig.self, &where, &mark, &report), BPS_ERR_INVALID, "this process sees 2");
    expect(rig.ops->mark_copies(rig.self, indices[_i], &mark, &report), BPS_ERR_INVALID, "no CUDA device");
    expect(rig.ops->copy(rig.self, &copy, &report), BPS_ERR_INVALID, "CUDA_VISIBLE_DEVICES");
    mark = rig_mark(&rig, 0, NULL);
    expect(rig.ops->follow(rig.self, &where, mark, &report), BPS_ERR_INVALID, "no CUDA device");
    rig.ops->release(rig.self, mark);
    rig_close(&rig);
}
END_TEST

START_TEST(a_stream_of_another_device_is_refused)
{
    struct bps_mark *mark;
    rig_open(&rig);
    struct CUstream_st *stream = stream_new(0);
    const struct bps_device where = {.type = BPS_DEVICE_CUDA, .index = 1, .stream = stream};
    expect(rig.ops->mark(rig.self, &where, &mark, &report), BPS_ERR_INVALID, "device 1: stream: invalid");
    CUDA(cuStreamDestroy_v2(stream));
    rig_close(&rig);
}
END_TEST

START_TEST(memory_that_is_not_the_devices_is_refused)
{
    uint8_t host[16];
    const struct bps_copy copy = {.to_device = true, .to = host, .from = host, .bytes = 16, .done = call_done};
    rig_open(&rig);
    expect(rig.ops->copy(rig.self, &copy, &report), BPS_ERR_FAILED, "device 0: copy to it: invalid argument");
    rig_close(&rig);
}
END_TEST

START_TEST(a_reduction_of_memory_that_is_not_the_devices_is_refused)
{
    uint8_t host[16];
    struct bps_reduction reduction = {
        .op = BPS_SUM, .n = 1, .src = {host}, .dst = host, .count = 4, .divisor = 1, .done = call_done};
    rig_open(&rig);
    if (rig.ops->reduce != NULL) {
        ck_assert(rig.ops->can_reduce(rig.self, 0, BPS_SUM, BPS_FLOAT32));
        ck_assert(!rig.ops->can_reduce(rig.self, DEVICES, BPS_SUM, BPS_FLOAT32));
        expect(rig.ops->reduce(rig.self, &reduction, &report), BPS_ERR_FAILED, "device 0: reduction: an illegal");
        reduction.device = DEVICES;
        expect(rig.ops->reduce(rig.self, &reduction, &report), BPS_ERR_INVALID, "no CUDA device");
    }
    rig_close(&rig);
}
END_TEST

START_TEST(kernels_that_the_driver_does_not_take_are_not_used)
{
    setenv("STANDIN_MODULE", "200", 1);
    rig_open(&rig);
    if (rig.ops->reduce != NULL) {
        ck_assert(!rig.ops->can_reduce(rig.self, 0, BPS_SUM, BPS_FLOAT32));
        ck_assert(!rig.ops->can_reduce(rig.self, 0, BPS_SUM, BPS_FLOAT32));
    }
    rig_close(&rig);
}
END_TEST

/* ---- captures ---- */

START_TEST(a_captured_stream_is_refused)
{
    struct CUgraph_st *graph;
    struct bps_mark *mark, *captured;
    struct call calls[2];
    uint8_t host[BYTES];
    const struct bps_region region = {.memory = host, .bytes = sizeof host, .fd = -1};
    rig_open(&rig);
    void *memory = device_alloc(BYTES);
    struct CUstream_st *stream = stream_new(0), *other = stream_new(CUDA_STREAM_NON_BLOCKING);
    const struct bps_device where = {.type = BPS_DEVICE_CUDA, .stream = stream};
    const struct bps_device standard = {.type = BPS_DEVICE_CUDA};
    mark = rig_mark(&rig, 0, other);
    CUDA(cuStreamBeginCapture_v2(stream, 0));
    expect(rig.ops->mark(rig.self, &where, &captured, &report), BPS_ERR_STATE, "captured into a CUDA graph");
    expect(rig.ops->follow(rig.self, &where, mark, &report), BPS_ERR_STATE, "begin it before or after");
    expect(rig.ops->mark(rig.self, &standard, &captured, &report), BPS_ERR_STATE, "the default stream");
    expect(rig.ops->follow(rig.self, &standard, mark, &report), BPS_ERR_STATE, "the default stream");
    /* All else goes on, and the capture is none the worse. */
    ck_assert_int_eq(rig.ops->attach(rig.self, &region, &report), BPS_OK);
    calls_init(&rig, calls, 2, &left);
    rig_await(&rig, mark, &calls[0]);
    rig_copy(&rig, 0, false, host, memory, BYTES, &calls[1]);
    rig_run(&rig, &left);
    rig.ops->detach(rig.self, &region);
    CUDA(cuStreamEndCapture(stream, &graph));
    rig.ops->release(rig.self, mark);
    rig.ops->release(rig.self, rig_mark(&rig, 0, stream));
    device_free(memory);
    CUDA(cuStreamDestroy_v2(stream));
    CUDA(cuStreamDestroy_v2(other));
    rig_close(&rig);
}
END_TEST

/* ---- a device that fails ---- */

START_TEST(a_failed_device_ends_all)
{
    enum { N = 12, FAILS = 5 };
    struct call calls[N], await;
    static struct gate gate; /* nobody can wait for a stream of a device that has failed to come by it */
    struct bps_mark *mark, *none;
    static uint8_t host[BYTES];
    setenv("STANDIN_FAILING_COPY", "5", 1);
    rig_open(&rig);
    void *memory = device_alloc(BYTES);
    struct CUstream_st *stream = stream_new(CUDA_STREAM_NON_BLOCKING);
    gate_close(&gate, stream);
    mark = rig_mark(&rig, 0, stream);
    calls_init(&rig, calls, N, &left);
    await = (struct call){.rig = &rig, .left = &left};
    left++;
    rig_await(&rig, mark, &await);
    /* Whatever was begun ends once, and what the device was told too late is refused. */
    for (unsigned i = 0; i < N; i++) {
        const struct bps_copy copy = {.to = host, .from = memory, .bytes = BYTES, .done = call_done, .arg = &calls[i]};
        bps_status status = rig.ops->copy(rig.self, &copy, &report);
        if (status != BPS_OK) {
            expect(status, BPS_ERR_FAILED, "CUDA_ERROR_ILLEGAL_ADDRESS");
            call_done(&calls[i], status, report.text);
        }
    }
    rig_run(&rig, &left);
    for (unsigned i = FAILS - 1; i < N; i++) {
        ck_assert_int_eq(calls[i].status, BPS_ERR_FAILED);
        ck_assert_ptr_nonnull(strstr(calls[i].text, "an illegal memory access was encountered"));
    }
    ck_assert_int_eq(await.status, BPS_ERR_FAILED);
    rig.ops->release(rig.self, mark);
    expect(rig.ops->mark(rig.self, &(struct bps_device){.type = BPS_DEVICE_CUDA}, &none, &report), BPS_ERR_FAILED,
           "illegal memory access");
    rig.ops->release(rig.self, rig_mark(&rig, 1, NULL)); /* the other device still works */
    gate_open(&gate);
    (void)cuStreamDestroy_v2(stream);
    rig_close_plugin(&rig);
    bps_loop_free(rig.loop);
}
END_TEST

START_TEST(a_failed_device_is_closed)
{
    struct call calls[8];
    static uint8_t host[BYTES];
    setenv("STANDIN_FAILING_COPY", "3", 1);
    rig_open(&rig);
    void *memory = device_alloc(BYTES);
    calls_init(&rig, calls, 8, &left);
    for (unsigned i = 0; i < 8; i++) {
        const struct bps_copy copy = {.to = host, .from = memory, .bytes = BYTES, .done = call_done, .arg = &calls[i]};
        (void)rig.ops->copy(rig.self, &copy, &report);
    }
    rig_close_plugin(&rig);
    ck_assert_uint_eq(left, 8);
    bps_loop_free(rig.loop);
}
END_TEST

/* ---- host memory ---- */

static unsigned warnings;

static void count_warnings(const struct bps_host *host, uint32_t level, const char *format, ...)
{
    (void)host;
    if (level <= BPS_LOG_WARN) {
        ck_assert_ptr_nonnull(strstr(format, "copies are slower"));
        warnings++;
    }
}

START_TEST(memory_that_others_cannot_reach_is_refused)
{
    uint8_t host[16];
    struct bps_region region;
    rig_open(&rig);
    const struct bps_share_ops *share = rig.ops->share;
    uint8_t *memory = device_alloc(BYTES);
    expect(share->region(rig.self, 0, host, sizeof host, &region, &report), BPS_ERR_UNSUPPORTED,
           "device 0: a dma-buf of its memory: ");
    expect(share->region(rig.self, 0, memory + 1, BYTES, &region, &report), BPS_ERR_UNSUPPORTED, "several allocations");
    expect(share->region(rig.self, DEVICES, memory, BYTES, &region, &report), BPS_ERR_INVALID, "no CUDA device");
    expect(share->flush(rig.self, DEVICES, &report), BPS_ERR_INVALID, "no CUDA device");
    ck_assert_uint_eq(share->allocation(rig.self, 0, host), 0);
    device_free(memory);
    rig_close(&rig);
}
END_TEST

START_TEST(a_device_without_dma_bufs_shares_nothing)
{
    struct bps_region region;
    char text[128];
    setenv("STANDIN_DMA_BUF", "0", 1);
    rig_open(&rig);
    const struct bps_reducer_ops *ops = rig.instance->ops;
    ops->describe(rig.self, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "without dma-buf"));
    void *memory = device_alloc(BYTES);
    expect(rig.ops->share->region(rig.self, 0, memory, BYTES, &region, &report), BPS_ERR_UNSUPPORTED,
           "its driver has no dma-buf");
    expect(rig.ops->share->flush(rig.self, 0, &report), BPS_OK, "");
    device_free(memory);
    rig_close(&rig);
}
END_TEST

START_TEST(memory_that_cannot_be_registered_is_copied)
{
    static uint8_t host[2][BYTES];
    const struct bps_region regions[2] = {{.memory = host[0], .bytes = BYTES, .fd = -1},
                                          {.memory = host[1], .bytes = BYTES, .fd = -1}};
    struct call calls[2];
    setenv("STANDIN_REGISTER", "2", 1);
    rig_open(&rig);
    rig.instance->host->log = count_warnings;
    void *memory = device_alloc(BYTES);
    CUDA(cuMemsetD8Async((uintptr_t)memory, 0x5a, BYTES, NULL));
    CUDA(cuStreamSynchronize(NULL));
    calls_init(&rig, calls, 2, &left);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(rig.ops->attach(rig.self, &regions[i], &report), BPS_OK);
        rig_copy(&rig, 0, false, host[i], memory, BYTES, &calls[i]);
    }
    rig_run(&rig, &left);
    ck_assert_uint_eq(warnings, 1);
    ck_assert_uint_eq(host[0][BYTES - 1], 0x5a);
    ck_assert_mem_eq(host[0], host[1], BYTES);
    device_free(memory);
    rig_close(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda_refused");
    TCase *tests = tcase_create("refusals and failures");
    tcase_add_loop_test(tests, a_driver_that_does_not_start_is_refused, 0, sizeof starts / sizeof *starts);
    tcase_add_test(tests, it_has_no_kernels_for_the_host);
    tcase_add_loop_test(tests, a_device_that_is_not_there_is_refused, 0, 3);
    tcase_add_test(tests, a_stream_of_another_device_is_refused);
    tcase_add_test(tests, memory_that_is_not_the_devices_is_refused);
    tcase_add_test(tests, a_reduction_of_memory_that_is_not_the_devices_is_refused);
    tcase_add_test(tests, kernels_that_the_driver_does_not_take_are_not_used);
    tcase_add_test(tests, a_captured_stream_is_refused);
    tcase_add_test(tests, a_failed_device_ends_all);
    tcase_add_test(tests, a_failed_device_is_closed);
    tcase_add_test(tests, memory_that_cannot_be_registered_is_copied);
    tcase_add_test(tests, memory_that_others_cannot_reach_is_refused);
    tcase_add_test(tests, a_device_without_dma_bufs_shares_nothing);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
