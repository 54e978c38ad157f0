/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nccl.c - a group of one device: all that the reducer "cuda" asks of NCCL but the way between devices,
 * so that a machine with one GPU shows that the library and the plugin understand each other.
 */
#include <string.h>

#include "tests/gpu/device_rig.h"

#define COUNT 50000u /* elements of a tensor */
#define STEPS 12u

static const uint32_t dtypes[] = {BPS_FLOAT32, BPS_FLOAT64, BPS_INT8, BPS_INT32, BPS_INT64, BPS_UINT8};
static const uint32_t ops[] = {BPS_SUM, BPS_MIN, BPS_MAX, BPS_PRODUCT};
static struct bps_group *group;

static void join(void)
{
    struct bps_report report = {""};
    uint8_t name[BPS_GROUP_NAME_BYTES];
    char text[64];
    void *self = rig.instance->self;
    const struct bps_group_ops *groups = rig.ops->group;
    EXPECT(groups->query(self, text, sizeof text, &report) == BPS_OK, "%s", report.text);
    EXPECT(groups->name(self, name, &report) == BPS_OK, "%s", report.text);
    const struct bps_group_seat seat = {.name = name, .place = 0, .size = 1, .device = 0, .joined = rig_done};
    rig.left = 1;
    EXPECT(groups->join(self, &seat, &group, &report) == BPS_OK, "%s", report.text);
    rig_run();
    printf("%s\n", text);
}

/* Every kind of step, in batches: with one contribution the result is the contribution. */
static void check_steps(void)
{
    struct bps_report report = {""};
    struct bps_group_step step[STEPS];
    const size_t bytes = COUNT * sizeof(double);
    uint8_t *data = malloc(bytes), *back = malloc(bytes);
    unsigned long long from[STEPS], to[STEPS];
    EXPECT(data != NULL && back != NULL, "out of memory");
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)(i * 7 % 101); /* no NaN in any type */
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        CUDA(cuMemAlloc_v2, &from[i], bytes);
        CUDA(cuMemAlloc_v2, &to[i], bytes);
        rig_write(from[i], data, bytes);
        step[i] = (struct bps_group_step){
            .kind = i % 3,
            .op = ops[i % 4],
            .dtype = dtypes[i % 6],
            .from = (const void *)(uintptr_t)from[i],
            .to = (void *)(uintptr_t)to[i],
            .count = COUNT,
        };
    }
    rig.left = 3;
    for (uint32_t i = 0; i < 3; i++) { /* the last two again, into the same memory */
        const struct bps_group_step *first = i == 0 ? step : &step[STEPS / 2];
        uint32_t n = i == 0 ? STEPS : STEPS / 2;
        EXPECT(rig.ops->group->run(group, first, n, rig_done, NULL, &report) == BPS_OK, "%s", report.text);
    }
    rig_run();
    for (uint32_t i = 0; i < STEPS; i++) {
        size_t used = COUNT * bps_dtype_size(step[i].dtype);
        CUDA(cuMemcpyDtoH_v2, back, to[i], bytes);
        EXPECT(memcmp(back, data, used) == 0, "step %u (kind %u, %s of %s) has another result", i, step[i].kind,
               bps_op_name(step[i].op), bps_dtype_name(step[i].dtype));
        CUDA(cuMemFree_v2, from[i]);
        CUDA(cuMemFree_v2, to[i]);
    }
    free(data);
    free(back);
}

int main(void)
{
    rig_open_driver();
    rig_open_nccl();
    for (int aborted = 0; aborted < 2; aborted++) {
        rig_open_reducer();
        join();
        check_steps();
        if (aborted) {
            rig.ops->group->abort(group);
        } else {
            rig.ops->group->leave(group);
        }
        rig_close_reducer();
    }
    return 0;
}
