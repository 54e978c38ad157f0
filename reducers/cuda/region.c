/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.c - host memory that copies are made from and to, page-locked so that a device reads and writes it
 * without the help of a processor. What cannot be page-locked is copied all the same, only slower.
 *
 * That needs the context of a device, and which one will be used is not known when a region is attached. So
 * it is done before the next copy.
 */
#include "instance.h"

struct cuda_region {
    LIST_ENTRY(cuda_region) entry;
    const struct bps_region *region;
    struct cuda_device *device; /* in whose context it was registered; NULL: it is not */
    bool tried;
};

static void warn_once(struct cuda *cuda, const struct bps_region *region, cuda_result result)
{
    char text[192];
    if (cuda->regions_warned) {
        return;
    }
    cuda->regions_warned = true;
    cuda_driver_error(&cuda->driver, result, text, sizeof text);
    cuda->host->log(cuda->host, BPS_LOG_WARN,
                    "%llu KiB of host memory cannot be page-locked: %s; copies are slower. Raise "
                    "`ulimit -l`, or LimitMEMLOCK= of the service",
                    (unsigned long long)(region->bytes >> 10), text);
}

void cuda_regions_register(struct cuda_device *device)
{
    struct cuda *cuda = device->cuda;
    struct cuda_region *own;
    if (!cuda->regions_wait) {
        return;
    }
    cuda->regions_wait = false;
    LIST_FOREACH(own, &cuda->regions, entry) {
        if (own->tried) {
            continue;
        }
        own->tried = true;
        cuda_result result =
            cuda->driver.host_register(own->region->memory, own->region->bytes, CUDA_REGISTER_PORTABLE);
        if (result == CUDA_OK) {
            own->device = device;
        } else if (result != CUDA_ALREADY_REGISTERED) { /* by the application: as good as by us */
            warn_once(cuda, own->region, result);
        }
    }
}

static void region_free(struct cuda *cuda, struct cuda_region *own)
{
    struct cuda_stay stay;
    if (own->device != NULL && cuda_enter(own->device, &stay) == CUDA_OK) {
        cuda->driver.host_unregister(own->region->memory);
        cuda_leave(&stay);
    }
    LIST_REMOVE(own, entry);
    cuda->host->release(cuda->host, own);
}

bps_status cuda_attach(void *instance, const struct bps_region *region, struct bps_report *report)
{
    struct cuda *cuda = instance;
    struct cuda_region *own = cuda->host->alloc(cuda->host, sizeof *own, 8);
    if (own == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *own = (struct cuda_region){.region = region};
    LIST_INSERT_HEAD(&cuda->regions, own, entry);
    cuda->regions_wait = true;
    return BPS_OK;
}

void cuda_detach(void *instance, const struct bps_region *region)
{
    struct cuda *cuda = instance;
    struct cuda_region *own;
    LIST_FOREACH(own, &cuda->regions, entry) {
        if (own->region == region) {
            region_free(cuda, own);
            return;
        }
    }
}

void cuda_regions_free(struct cuda *cuda)
{
    while (!LIST_EMPTY(&cuda->regions)) {
        region_free(cuda, LIST_FIRST(&cuda->regions));
    }
}
