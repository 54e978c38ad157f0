/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_group.c - groups of the reducer "cuda", whose places are two devices of this process, against the
 * stand-ins for the driver and for NCCL.
 */
#include <stdlib.h>
#include <string.h>

#include "reducers/cuda/nccl.h"
#include "tests/gpu/cuda_rig.h"

#define PLACES DEVICES
#define COUNT  100000u
#define LIMIT  200 /* s for a test */

/* Linked, so that the plugin finds the stand-in and no other one. */
nccl_result ncclGetVersion(int *out);

static struct rig rig;
static const struct bps_group_ops *ops;
static struct bps_group *group[PLACES];
static struct call joined[PLACES];
static unsigned left;

/* ---- a group ---- */

static void setup(void)
{
    struct bps_report report = {""};
    char text[64];
    int version;
    unsetenv("STANDIN_NCCL_INIT");
    unsetenv("STANDIN_NCCL_FAIL");
    unsetenv("STANDIN_NCCL_HANG");
    unsetenv("STANDIN_NCCL_RANK");
    ck_assert_uint_eq(ncclGetVersion(&version), NCCL_OK);
    rig_open(&rig);
    ops = rig.ops->group;
    ck_assert_msg(ops->query(rig.self, text, sizeof text, &report) == BPS_OK, "%s", report.text);
    ck_assert_str_eq(text, "NCCL 2.21.5");
}

static void teardown(void)
{
    rig_close(&rig);
}

static void join_at(unsigned place, int32_t device, const uint8_t *name)
{
    struct bps_report report = {""};
    const struct bps_group_seat seat = {
        .name = name,
        .place = place,
        .size = PLACES,
        .device = device,
        .joined = call_done,
        .arg = &joined[place],
    };
    ck_assert_msg(ops->join(rig.self, &seat, &group[place], &report) == BPS_OK, "%s", report.text);
}

/* Both places join, on these devices, and are waited for. */
static void join(int32_t first, int32_t second)
{
    struct bps_report report;
    uint8_t name[BPS_GROUP_NAME_BYTES];
    ck_assert_int_eq(ops->name(rig.self, name, &report), BPS_OK);
    calls_init(&rig, joined, PLACES, &left);
    join_at(0, first, name);
    join_at(1, second, name);
}

static void leave(void)
{
    for (unsigned place = 0; place < PLACES; place++) {
        ops->leave(group[place]);
    }
}

/* ---- arrays on both devices ---- */

struct array {
    float *device[PLACES];
};

static void array_new(struct array *array)
{
    for (int place = 0; place < PLACES; place++) {
        CUDA(cuCtxSetCurrent(rig.context[place]));
        array->device[place] = device_alloc(COUNT * sizeof(float));
    }
}

static void array_fill(const struct array *array, unsigned place, float first)
{
    static float values[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        values[i] = first + (float)(i % 100);
    }
    CUDA(cuCtxSetCurrent(rig.context[place]));
    device_write(array->device[place], values, sizeof values);
}

/* All elements are factor * (first + index modulo 100). */
static void array_check(const struct array *array, unsigned place, float first, float factor)
{
    static float values[COUNT];
    CUDA(cuCtxSetCurrent(rig.context[place]));
    CUDA(cuMemcpyDtoH_v2(values, (uintptr_t)array->device[place], sizeof values));
    for (unsigned i = 0; i < COUNT; i++) {
        ck_assert_msg(values[i] == factor * (first + (float)(i % 100)), "[%u] is %g", i, (double)values[i]);
    }
}

static void array_free(const struct array *array)
{
    for (int place = 0; place < PLACES; place++) {
        CUDA(cuCtxSetCurrent(rig.context[place]));
        device_free(array->device[place]);
    }
    CUDA(cuCtxSetCurrent(rig.context[0]));
}

static struct bps_group_step step_of(const struct array *from, const struct array *to, unsigned place, uint32_t kind,
                                     uint32_t op, uint32_t root)
{
    return (struct bps_group_step){
        .kind = kind,
        .op = op,
        .dtype = BPS_FLOAT32,
        .root = root,
        .from = from->device[place],
        .to = to->device[place],
        .count = COUNT,
    };
}

static void give(unsigned place, const struct bps_group_step *steps, uint32_t n, struct call *call)
{
    struct bps_report report = {""};
    ck_assert_msg(ops->run(group[place], steps, n, call_done, call, &report) == BPS_OK, "%s", report.text);
    ck_assert_uint_eq(call->count, 0);
}

/* ---- tests ---- */

static bool has_kernels(void)
{
    return rig.ops->can_reduce != NULL;
}

/* What NCCL does not combine the kernels do, for as many places as they have sources. */
START_TEST(types_and_operations_that_there_are)
{
    for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
        bool nccl = dtype == BPS_FLOAT32 || dtype == BPS_FLOAT64 || dtype == BPS_UINT8 || dtype == BPS_INT8 ||
                    dtype == BPS_INT32 || dtype == BPS_INT64;
        ck_assert(ops->takes(rig.self, 0, 3, BPS_SUM, dtype) == (nccl || has_kernels()));
        ck_assert(ops->takes(rig.self, 0, 9, BPS_SUM, dtype) == nccl);
    }
    ck_assert(ops->takes(rig.self, 0, 16, BPS_AVERAGE, BPS_FLOAT32));
    ck_assert(!ops->takes(rig.self, 0, 9, BPS_AVERAGE, BPS_FLOAT32));
    ck_assert(ops->takes(rig.self, 0, 3, BPS_AVERAGE, BPS_FLOAT32) == has_kernels());
    ck_assert(!ops->takes(rig.self, 0, 4, BPS_AVERAGE, BPS_INT32)); /* the sum would wrap */
    ck_assert(!ops->takes(rig.self, 0, 2, BPS_AVERAGE, BPS_UINT8));
    ck_assert(!ops->takes(rig.self, 0, 4, BPS_OPS, BPS_FLOAT32));
}
END_TEST

START_TEST(devices_have_identities)
{
    uint8_t identity[PLACES][BPS_GROUP_IDENTITY_BYTES];
    struct bps_report report;
    ck_assert_int_eq(ops->identify(rig.self, 0, identity[0], &report), BPS_OK);
    ck_assert_int_eq(ops->identify(rig.self, 1, identity[1], &report), BPS_OK);
    ck_assert_mem_ne(identity[0], identity[1], sizeof identity[0]);
    ck_assert_int_eq(ops->identify(rig.self, 99, identity[0], &report), BPS_ERR_INVALID);
}
END_TEST

/* Batches may be given before all have joined, and are done in order. */
START_TEST(batches_are_done_in_order)
{
    struct array in, out;
    struct call calls[3 * PLACES];
    unsigned calls_left;
    join(0, 1);
    array_new(&in);
    array_new(&out);
    calls_init(&rig, calls, 3 * PLACES, &calls_left);
    for (unsigned place = 0; place < PLACES; place++) {
        array_fill(&in, place, (float)place);
        const struct bps_group_step steps[] = {
            step_of(&in, &out, place, BPS_STEP_REDUCE, BPS_SUM, 1),
            step_of(&out, &out, place, BPS_STEP_BROADCAST, BPS_SUM, 1),
            step_of(&out, &in, place, BPS_STEP_ALL_REDUCE, BPS_AVERAGE, 0),
        };
        for (unsigned i = 0; i < 3; i++) {
            give(place, &steps[i], 1, &calls[3 * place + i]);
        }
    }
    rig_run(&rig, &left);
    if (calls_left > 0) {
        rig_run(&rig, &calls_left);
    }
    for (unsigned place = 0; place < PLACES; place++) {
        ck_assert_int_eq(joined[place].status, BPS_OK);
        for (unsigned i = 0; i < 3; i++) {
            ck_assert_int_eq(calls[3 * place + i].status, BPS_OK);
            ck_assert(i == 0 || calls[3 * place + i - 1].order < calls[3 * place + i].order);
        }
        array_check(&out, place, 0.5F, 2.0F);
        array_check(&in, place, 0.5F, 2.0F);
    }
    array_free(&in);
    array_free(&out);
    leave();
}
END_TEST

/* ---- what the kernels combine ---- */

#define LONG_COUNT (17u << 20) /* elements of int16 that do not find room at once */

/* What a place has at an index, and what the result must be there. */
static int16_t value_at(unsigned place, uint64_t i)
{
    return (int16_t)(i % 1000 * (place + 1) + place);
}

static int16_t result_at(uint32_t op, uint64_t i)
{
    int a = value_at(0, i), b = value_at(1, i);
    return (int16_t)(op == BPS_SUM ? a + b : op == BPS_PRODUCT ? a * b : op == BPS_MIN ? a : b);
}

struct tensor {
    uint32_t kind, op, root;
    uint64_t count;
    unsigned shift; /* elements by which `to` is not aligned as `from` is */
    int16_t *from[PLACES], *to[PLACES];
};

static void tensor_new(struct tensor *tensor)
{
    int16_t *values = malloc(tensor->count * sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (unsigned place = 0; place < PLACES; place++) {
        for (uint64_t i = 0; i < tensor->count; i++) {
            values[i] = value_at(place, i);
        }
        CUDA(cuCtxSetCurrent(rig.context[place]));
        tensor->from[place] = device_alloc(tensor->count * sizeof *values);
        tensor->to[place] = device_alloc((tensor->count + tensor->shift) * sizeof *values);
        device_write(tensor->from[place], values, tensor->count * sizeof *values);
    }
    free(values);
}

static void tensor_check(const struct tensor *tensor)
{
    int16_t *values = malloc(tensor->count * sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (unsigned place = 0; place < PLACES; place++) {
        bool is_told = tensor->kind == BPS_STEP_ALL_REDUCE || place == tensor->root;
        CUDA(cuCtxSetCurrent(rig.context[place]));
        CUDA(cuMemcpyDtoH_v2(values, (uintptr_t)(tensor->to[place] + tensor->shift), tensor->count * sizeof *values));
        uint64_t i = 0;
        while (i < tensor->count && values[i] == result_at(tensor->op, i)) {
            i++;
        }
        ck_assert_msg(!is_told || i == tensor->count, "[%lu] is %d", (unsigned long)i, values[i]);
    }
    free(values);
}

static void tensor_free(const struct tensor *tensor)
{
    for (unsigned place = 0; place < PLACES; place++) {
        CUDA(cuCtxSetCurrent(rig.context[place]));
        device_free(tensor->from[place]);
        device_free(tensor->to[place]);
    }
    CUDA(cuCtxSetCurrent(rig.context[0]));
}

/* All of them in one batch. */
static void combine(struct tensor *tensors, unsigned n)
{
    struct bps_group_step steps[BPS_STEPS_LIMIT];
    struct call calls[PLACES];
    unsigned calls_left;
    join(0, 1);
    rig_run(&rig, &left);
    for (unsigned i = 0; i < n; i++) {
        tensor_new(&tensors[i]);
    }
    calls_init(&rig, calls, PLACES, &calls_left);
    for (unsigned place = 0; place < PLACES; place++) {
        for (unsigned i = 0; i < n; i++) {
            const struct tensor *tensor = &tensors[i];
            steps[i] = (struct bps_group_step){
                .kind = tensor->kind,
                .op = tensor->op,
                .dtype = BPS_INT16,
                .root = tensor->root,
                .from = tensor->from[place],
                .to = tensor->to[place] + tensor->shift,
                .count = tensor->count,
            };
        }
        give(place, steps, n, &calls[place]);
    }
    rig_run(&rig, &calls_left);
    for (unsigned i = 0; i < n; i++) {
        ck_assert_msg(calls[0].status == BPS_OK, "%s", calls[0].text);
        tensor_check(&tensors[i]);
        tensor_free(&tensors[i]);
    }
    leave();
}

START_TEST(short_tensors_of_any_kind_share_a_batch)
{
    struct tensor tensors[BPS_STEPS_LIMIT];
    static const uint32_t ops_of[] = {BPS_SUM, BPS_PRODUCT, BPS_MIN, BPS_MAX};
    for (unsigned i = 0; i < BPS_STEPS_LIMIT && has_kernels(); i++) {
        tensors[i] = (struct tensor){
            .kind = i % 3 == 0 ? BPS_STEP_REDUCE : BPS_STEP_ALL_REDUCE,
            .op = ops_of[i % 4],
            .root = i % 2,
            .count = i < 40 ? i : 1000 * i + 7,
            .shift = i % 5,
        };
        tensors[i].count += tensors[i].count == 0; /* a device has no empty memory */
    }
    if (has_kernels()) {
        combine(tensors, BPS_STEPS_LIMIT);
    }
}
END_TEST

START_TEST(long_tensors_make_several_passes)
{
    struct tensor tensors[] = {
        {.kind = BPS_STEP_ALL_REDUCE, .op = BPS_SUM, .count = LONG_COUNT},
        {.kind = BPS_STEP_REDUCE, .op = BPS_MAX, .count = LONG_COUNT, .root = 1},
        {.kind = BPS_STEP_ALL_REDUCE, .op = BPS_MIN, .count = 5},
    };
    if (has_kernels()) {
        combine(tensors, 3);
    }
}
END_TEST

/* In its place, and rounded once: the sum alone would be infinite. */
START_TEST(an_average_of_float16)
{
    const uint16_t most = 0x7bff; /* 65504 */
    uint16_t *memory[PLACES], value;
    struct call calls[PLACES];
    unsigned calls_left;
    if (!has_kernels()) {
        return;
    }
    join(0, 1);
    rig_run(&rig, &left);
    calls_init(&rig, calls, PLACES, &calls_left);
    for (unsigned place = 0; place < PLACES; place++) {
        CUDA(cuCtxSetCurrent(rig.context[place]));
        memory[place] = device_alloc(sizeof value);
        device_write(memory[place], &most, sizeof most);
        const struct bps_group_step step = {.kind = BPS_STEP_ALL_REDUCE,
                                            .op = BPS_AVERAGE,
                                            .dtype = BPS_FLOAT16,
                                            .from = memory[place],
                                            .to = memory[place],
                                            .count = 1};
        give(place, &step, 1, &calls[place]);
    }
    rig_run(&rig, &calls_left);
    for (unsigned place = 0; place < PLACES; place++) {
        CUDA(cuCtxSetCurrent(rig.context[place]));
        CUDA(cuMemcpyDtoH_v2(&value, (uintptr_t)memory[place], sizeof value));
        ck_assert_uint_eq(value, most);
        device_free(memory[place]);
    }
    CUDA(cuCtxSetCurrent(rig.context[0]));
    leave();
}
END_TEST

/* ---- what goes wrong ---- */

static void check_not_joined(const char *words)
{
    for (unsigned place = 0; place < PLACES; place++) {
        ck_assert_int_eq(joined[place].status, BPS_ERR_FAILED);
        ck_assert_msg(strstr(joined[place].text, words) != NULL, "%s", joined[place].text);
    }
}

START_TEST(a_communicator_that_does_not_come_about)
{
    setenv("STANDIN_NCCL_INIT", "2", 1);
    join(0, 1);
    rig_run(&rig, &left);
    check_not_joined("NCCL: communicator: unhandled system error (stand-in)");
}
END_TEST

START_TEST(one_device_for_two_places)
{
    join(0, 0);
    rig_run(&rig, &left);
    check_not_joined("invalid usage");
}
END_TEST

/* One of them does not come; who waits gives up when it is told to, and what it was given fails. */
START_TEST(nobody_comes)
{
    struct array array;
    struct call call;
    struct bps_report report;
    unsigned calls_left;
    uint8_t name[BPS_GROUP_NAME_BYTES];
    array_new(&array);
    ck_assert_int_eq(ops->name(rig.self, name, &report), BPS_OK);
    calls_init(&rig, joined, 1, &left);
    join_at(0, 0, name);
    const struct bps_group_step step = step_of(&array, &array, 0, BPS_STEP_ALL_REDUCE, BPS_SUM, 0);
    calls_init(&rig, &call, 1, &calls_left);
    give(0, &step, 1, &call);
    ops->abort(group[0]);
    rig_run(&rig, &left);
    if (calls_left > 0) {
        rig_run(&rig, &calls_left);
    }
    ck_assert_int_eq(joined[0].status, BPS_ERR_FAILED);
    ck_assert_int_eq(call.status, BPS_ERR_FAILED);
    ck_assert_int_eq(ops->run(group[0], &step, 1, call_done, &call, &report), BPS_ERR_FAILED);
    array_free(&array);
}
END_TEST

/* The second step of place 1 goes wrong; place 0 waits for it until it is aborted. */
static void go_wrong(const char *variable, bool is_told, uint32_t dtype)
{
    struct array array;
    struct call calls[PLACES];
    unsigned first_left, second_left;
    setenv(variable, "2", 1);
    setenv("STANDIN_NCCL_RANK", "1", 1);
    join(0, 1);
    array_new(&array);
    rig_run(&rig, &left);
    calls_init(&rig, &calls[0], 1, &first_left);
    calls_init(&rig, &calls[1], 1, &second_left);
    for (unsigned place = 0; place < PLACES; place++) {
        struct bps_group_step step = step_of(&array, &array, place, BPS_STEP_ALL_REDUCE, BPS_MAX, 0);
        step.dtype = dtype;
        const struct bps_group_step steps[] = {step, step, step};
        give(place, steps, 3, &calls[place]);
    }
    if (!is_told) {
        ops->abort(group[1]);
    }
    rig_run(&rig, &second_left);
    ck_assert_int_eq(calls[1].status, BPS_ERR_FAILED);
    ck_assert_msg(!is_told || strstr(calls[1].text, "system error") != NULL, "%s", calls[1].text);
    ops->abort(group[0]);
    rig_run(&rig, &first_left);
    ck_assert_int_eq(calls[0].status, BPS_ERR_FAILED);
    array_free(&array);
}

START_TEST(a_step_fails)
{
    go_wrong("STANDIN_NCCL_FAIL", true, _i == 0 || !has_kernels() ? BPS_FLOAT32 : BPS_BFLOAT16);
}
END_TEST

START_TEST(a_step_never_ends)
{
    go_wrong("STANDIN_NCCL_HANG", false, _i == 0 || !has_kernels() ? BPS_FLOAT32 : BPS_BFLOAT16);
}
END_TEST

/* The instance is closed while the group works; its thread ends. */
START_TEST(closed_in_the_middle)
{
    struct array array;
    static struct call call; /* never called */
    setenv("STANDIN_NCCL_HANG", "1", 1);
    join(0, 1);
    array_new(&array);
    rig_run(&rig, &left);
    const struct bps_group_step step = step_of(&array, &array, 0, BPS_STEP_ALL_REDUCE, BPS_SUM, 0);
    give(0, &step, 1, &call);
    rig_close_plugin(&rig);
    ck_assert_uint_eq(call.count, 0);
    array_free(&array);
    for (int i = 0; i < DEVICES; i++) {
        CUDA(cuDevicePrimaryCtxRelease_v2(i));
    }
    bps_loop_free(rig.loop);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("group");
    TCase *tests = tcase_create("group"), *closed = tcase_create("closed");
    tcase_set_timeout(tests, LIMIT);
    tcase_set_timeout(closed, LIMIT);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, types_and_operations_that_there_are);
    tcase_add_test(tests, devices_have_identities);
    tcase_add_test(tests, batches_are_done_in_order);
    tcase_add_test(tests, short_tensors_of_any_kind_share_a_batch);
    tcase_add_test(tests, long_tensors_make_several_passes);
    tcase_add_test(tests, an_average_of_float16);
    tcase_add_test(tests, a_communicator_that_does_not_come_about);
    tcase_add_test(tests, one_device_for_two_places);
    tcase_add_test(tests, nobody_comes);
    tcase_add_loop_test(tests, a_step_fails, 0, 2);
    tcase_add_loop_test(tests, a_step_never_ends, 0, 2);
    tcase_add_checked_fixture(closed, setup, NULL);
    tcase_add_test(closed, closed_in_the_middle);
    suite_add_tcase(suite, tests);
    suite_add_tcase(suite, closed);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
