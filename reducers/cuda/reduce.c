/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c - reductions on a device: which kernel, on how many threads, and what each of them has in work. */
#include "instance.h"
#include "kernels.h"

_Static_assert(CUDA_SOURCES == BPS_REDUCTION_SOURCES, "kernels take as many sources as reductions have");

#define BYTES(type, dtype, bytes) [dtype] = bytes,
static const uint32_t element_bytes[BPS_DTYPES] = {CUDA_TYPES(BYTES)};

uint32_t cuda_element_bytes(uint32_t dtype)
{
    return element_bytes[dtype];
}

bool cuda_can_reduce(void *instance, int32_t index, uint32_t op, uint32_t dtype)
{
    struct bps_report report;
    struct cuda_device *device;
    if (cuda_device_get(instance, index, &device, &report) != BPS_OK) {
        return false;
    }
    const struct cuda_kernels *kernels = cuda_kernels_get(device);
    return kernels != NULL && op < BPS_OPS && dtype < BPS_DTYPES && kernels->function[op][dtype] != NULL;
}

/* True if all pointers become multiples of a vector's bytes behind the same number of elements. */
static bool is_aligned_alike(const struct bps_reduction *r, uint32_t bytes)
{
    bool alike = (uintptr_t)r->dst % bytes == 0;
    for (unsigned i = 0; i < r->n; i++) {
        alike = alike && ((uintptr_t)r->src[i] - (uintptr_t)r->dst) % CUDA_VECTOR == 0;
    }
    return alike;
}

static struct cuda_reduction plan(const struct bps_reduction *r)
{
    uint32_t bytes = element_bytes[r->dtype];
    struct cuda_reduction out = {
        .dst = r->dst,
        .factor = r->scale / (double)r->divisor,
        .count = r->count,
        .head = r->count,
        .n = r->n,
    };
    for (unsigned i = 0; i < r->n; i++) {
        out.src[i] = r->src[i];
        out.scale[i] = r->scales != NULL ? r->scales[i] : 1;
    }
    uint64_t head = -(uintptr_t)r->dst % CUDA_VECTOR / bytes;
    if (is_aligned_alike(r, bytes) && head < r->count) {
        out.head = head;
        out.vectors = (r->count - head) / (CUDA_VECTOR / bytes);
    }
    return out;
}

cuda_result cuda_launch(const struct cuda_device *device, struct CUstream_st *stream, const struct bps_reduction *r)
{
    const struct cuda_kernels *kernels = &device->kernels;
    struct cuda_reduction argument = plan(r);
    uint32_t bytes = element_bytes[r->dtype];
    uint64_t single = r->count - argument.vectors * (CUDA_VECTOR / bytes);
    uint64_t threads = argument.vectors > single ? argument.vectors : single;
    uint64_t blocks = (threads + CUDA_BLOCK_THREADS - 1) / CUDA_BLOCK_THREADS;
    if (blocks == 0) {
        return CUDA_OK;
    }
    return device->cuda->driver.launch(kernels->function[r->op][r->dtype], (unsigned)blocks, 1, 1, CUDA_BLOCK_THREADS,
                                       1, 1, 0, stream, (void *[]){&argument}, NULL);
}

bps_status cuda_reduce(void *instance, const struct bps_reduction *reduction, struct bps_report *report)
{
    struct cuda *cuda = instance;
    struct cuda_device *device;
    struct cuda_stay stay;
    bps_status status = cuda_device_get(cuda, reduction->device, &device, report);
    if (status != BPS_OK) {
        return status;
    }
    cuda_result result = cuda_enter(device, &stay);
    if (result != CUDA_OK) {
        return cuda_failed(device, "context", result, report);
    }
    result = cuda_launch(device, device->to_device.stream, reduction);
    status = cuda_way_follow(&device->to_device, result, "reduction", reduction->done, reduction->arg, report);
    if (status == BPS_OK) {
        *cuda->bytes_reduced += reduction->count * element_bytes[reduction->dtype];
    }
    cuda_leave(&stay);
    return status;
}
