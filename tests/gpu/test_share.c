/* SPDX-License-Identifier: Apache-2.0 */
/* test_share.c - device memory that others reach: what the driver gives of it, and how its pieces are told
 * apart. */
#include <unistd.h>

#include "tests/gpu/device_rig.h"

#define BYTES ((size_t)(5u << 20) + 12)

static const struct bps_share_ops *share;

static uint64_t allocation(unsigned long long memory)
{
    return share->allocation(rig.instance->self, 0, (const void *)(uintptr_t)memory);
}

static bps_status get_region(unsigned long long memory, uint64_t bytes, struct bps_region *out,
                             struct bps_report *report)
{
    return share->region(rig.instance->self, 0, (const void *)(uintptr_t)memory, bytes, out, report);
}

static void check_region(unsigned long long memory, const struct bps_region *region)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)region->memory;
    EXPECT(region->on_device, "the region is not on the device");
    EXPECT(first % page == 0 && region->bytes % page == 0, "%lu bytes at %lx are not whole pages", region->bytes,
           first);
    EXPECT(first <= memory && memory + BYTES <= first + region->bytes, "it has not all of the allocation");
    off_t size = lseek(region->fd, 0, SEEK_END);
    EXPECT(size >= 0 && (uint64_t)size >= region->offset + region->bytes, "its dma-buf has %ld bytes", (long)size);
    close(region->fd);
}

int main(void)
{
    struct bps_report report = {""};
    struct bps_region region;
    unsigned long long memory, other;
    rig_open_driver();
    rig_open_reducer();
    share = rig.ops->share;
    CUDA(cuMemAlloc_v2, &memory, BYTES);
    bps_status status = get_region(memory + 100, 1000, &region, &report);
    if (status == BPS_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", report.text);
        return 77;
    }
    EXPECT(status == BPS_OK, "%s", report.text);
    check_region(memory, &region);
    uint64_t id = allocation(memory);
    EXPECT(id != 0 && allocation(memory + BYTES - 1) == id, "an allocation has several numbers");
    EXPECT(get_region(memory, 1ull << 50, &region, &report) == BPS_ERR_UNSUPPORTED, "more than there is");
    EXPECT(share->flush(rig.instance->self, 0, &report) == BPS_OK, "%s", report.text);
    CUDA(cuMemFree_v2, memory);
    CUDA(cuMemAlloc_v2, &other, BYTES);
    EXPECT(allocation(other) != 0 && allocation(other) != id, "another allocation has the same number");
    CUDA(cuMemFree_v2, other);
    rig_close_reducer();
    printf("dma-buf of %lu bytes\n", region.bytes);
    return 0;
}
