/* SPDX-License-Identifier: Apache-2.0 */
/* copy.c - copies between devices and the host: one stream for each direction, so that both run at once. */
#include "instance.h"

static cuda_result begin(const struct cuda_driver *driver, const struct bps_copy *copy, struct CUstream_st *stream)
{
    if (copy->bytes == 0) {
        return CUDA_OK;
    }
    if (copy->to_device) {
        return driver->copy_to_device((uintptr_t)copy->to, copy->from, copy->bytes, stream);
    }
    return driver->copy_to_host(copy->to, (uintptr_t)copy->from, copy->bytes, stream);
}

bps_status cuda_copy(void *instance, const struct bps_copy *copy, struct bps_report *report)
{
    struct cuda *cuda = instance;
    struct cuda_device *device;
    struct cuda_stay stay;
    bps_status status = cuda_device_get(cuda, copy->device, &device, report);
    if (status != BPS_OK) {
        return status;
    }
    cuda_result result = cuda_enter(device, &stay);
    if (result != CUDA_OK) {
        return cuda_failed(device, "context", result, report);
    }
    cuda_regions_register(device);
    struct cuda_way *way = copy->to_device ? &device->to_device : &device->to_host;
    result = begin(&cuda->driver, copy, way->stream);
    status = cuda_way_follow(way, result, copy->to_device ? "copy to it" : "copy to the host", copy->done, copy->arg,
                             report);
    if (status == BPS_OK) {
        *(copy->to_device ? cuda->bytes_to_device : cuda->bytes_to_host) += copy->bytes;
    }
    cuda_leave(&stay);
    return status;
}
