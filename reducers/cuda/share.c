/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.c - device memory that others reach: an RDMA device reads and writes it through a dma-buf, and
 * nothing is copied to the host. (CUDA driver API, sections "Memory Management" and "Device Management";
 * "GPUDirect RDMA", section "Synchronization and Memory Ordering".)
 */
#include <unistd.h>

#include "instance.h"

static int attribute_of(const struct cuda_driver *driver, unsigned attribute, int handle)
{
    int value = 0;
    return driver->device_attribute(&value, attribute, handle) == CUDA_OK ? value : 0;
}

bool cuda_share_supported(const struct cuda_driver *driver, int handle)
{
    return driver->device_attribute != NULL && driver->pointer_attribute != NULL && driver->memory_range != NULL &&
           driver->memory_handle != NULL && driver->flush_writes != NULL &&
           attribute_of(driver, CUDA_DMA_BUF_SUPPORTED, handle) != 0;
}

void cuda_share_learn(struct cuda_device *device)
{
    const struct cuda_driver *driver = &device->cuda->driver;
    device->shared = cuda_share_supported(driver, device->handle);
    device->flushed =
        device->shared && attribute_of(driver, CUDA_WRITES_ORDERING, device->handle) < (int)CUDA_ORDERED_FOR_OWNER;
}

uint64_t cuda_share_allocation(void *instance, int32_t device, const void *memory)
{
    const struct cuda *cuda = instance;
    unsigned long long id = 0;
    (void)device;
    if (cuda->driver.pointer_attribute == NULL ||
        cuda->driver.pointer_attribute(&id, CUDA_POINTER_BUFFER, (uintptr_t)memory) != CUDA_OK) {
        return 0;
    }
    return id;
}

/* Of the allocation around it: whole pages, since that is what a dma-buf has. */
static cuda_result get_range(const struct cuda_driver *driver, const void *memory, struct bps_region *out)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned long long base;
    size_t bytes;
    cuda_result result = driver->memory_range(&base, &bytes, (uintptr_t)memory);
    if (result != CUDA_OK) {
        return result;
    }
    uint64_t first = base / page * page, end = (base + bytes + page - 1) / page * page;
    *out = (struct bps_region){.bytes = end - first, .fd = -1, .on_device = true};
    out->memory = (void *)(uintptr_t)first;
    return driver->memory_handle(&out->fd, first, out->bytes, CUDA_RANGE_DMA_BUF, 0);
}

bps_status cuda_share_region(void *instance, int32_t index, const void *memory, uint64_t bytes, struct bps_region *out,
                             struct bps_report *report)
{
    struct cuda *cuda = instance;
    struct cuda_device *device;
    struct cuda_stay stay;
    bps_status status = cuda_device_get(cuda, index, &device, report);
    if (status != BPS_OK) {
        return status;
    }
    if (!device->shared) {
        BPS_REPORT(report, "device %d: its driver has no dma-buf; CUDA 11.7 or newer has, with the open kernel modules",
                   index);
        return BPS_ERR_UNSUPPORTED;
    }
    cuda_result result = cuda_enter(device, &stay);
    if (result == CUDA_OK) {
        result = get_range(&cuda->driver, memory, out);
        cuda_leave(&stay);
    }
    if (result != CUDA_OK) {
        cuda_failed(device, "a dma-buf of its memory", result, report);
        return BPS_ERR_UNSUPPORTED;
    }
    uintptr_t offset = (uintptr_t)memory - (uintptr_t)out->memory;
    if (offset > out->bytes || bytes > out->bytes - offset) {
        close(out->fd);
        BPS_REPORT(report, "device %d: the tensor lies in several allocations", index);
        return BPS_ERR_UNSUPPORTED;
    }
    return BPS_OK;
}

bps_status cuda_share_flush(void *instance, int32_t index, struct bps_report *report)
{
    struct cuda *cuda = instance;
    struct cuda_device *device;
    struct cuda_stay stay;
    bps_status status = cuda_device_get(cuda, index, &device, report);
    if (status != BPS_OK || !device->flushed) {
        return status;
    }
    cuda_result result = cuda_enter(device, &stay);
    if (result == CUDA_OK) {
        result = cuda->driver.flush_writes(CUDA_FLUSH_CURRENT, CUDA_ORDERED_FOR_OWNER);
        cuda_leave(&stay);
    }
    return result == CUDA_OK ? BPS_OK : cuda_failed(device, "flush of what others wrote", result, report);
}
