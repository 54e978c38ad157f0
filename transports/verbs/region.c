/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.c - memory that the core has attached, registered once with each device. Peers may read it and
 * nothing else; this device also writes what it reads there. What cannot be registered is copied; memory of
 * another device, a GPU's, cannot be, and is refused.
 */
#include "verbs.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ)

void verbs_register_failed(uint64_t bytes, int error, struct bps_report *report)
{
    struct rlimit limit;
    if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        BPS_REPORT(report,
                   "cannot register %llu KiB of memory: this process may lock %llu KiB; raise it with `ulimit -l "
                   "unlimited`, or LimitMEMLOCK=infinity of the service",
                   (unsigned long long)(bytes >> 10), (unsigned long long)(limit.rlim_cur >> 10));
        return;
    }
    BPS_REPORT(report, "cannot register %llu KiB of memory: %s", (unsigned long long)(bytes >> 10), strerror(error));
}

static struct ibv_mr *register_region(const struct verbs_device *device, const struct bps_region *region)
{
    uint64_t address = (uintptr_t)region->memory;
    return region->on_device ? ibv_reg_dmabuf_mr(device->pd, region->offset, region->bytes, address, region->fd, ACCESS)
                             : ibv_reg_mr(device->pd, region->memory, region->bytes, ACCESS);
}

static bps_status window_open(struct verbs_device *device, const struct bps_region *region, struct bps_report *report)
{
    const struct bps_host *host = device->verbs->host;
    struct verbs_window *window = host->alloc(host, sizeof *window, 8);
    if (window == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    struct ibv_mr *mr = register_region(device, region);
    if (mr == NULL && region->on_device) {
        BPS_REPORT(report, "%s cannot register a dma-buf: %s", ibv_get_device_name(device->context->device),
                   strerror(errno));
    } else if (mr == NULL) {
        verbs_register_failed(region->bytes, errno, report);
    }
    if (mr == NULL) {
        host->release(host, window);
        return BPS_ERR_UNSUPPORTED;
    }
    *window = (struct verbs_window){.region = region, .mr = mr};
    LIST_INSERT_HEAD(&device->windows, window, entry);
    return BPS_OK;
}

static void warn(const struct verbs *verbs, const struct bps_region *region, const struct bps_report *report)
{
    verbs->host->log(verbs->host, BPS_LOG_WARN, "%s; %s", report->text,
                     region->on_device ? "connections over it end when they meet tensors in this region"
                                       : "tensors in this region are copied");
}

static void window_close(struct verbs_device *device, struct verbs_window *window)
{
    LIST_REMOVE(window, entry);
    ibv_dereg_mr(window->mr);
    device->verbs->host->release(device->verbs->host, window);
}

void verbs_windows_open(struct verbs_device *device)
{
    const struct verbs_region *own;
    struct bps_report report;
    LIST_FOREACH(own, &device->verbs->regions, entry) {
        if (window_open(device, own->region, &report) != BPS_OK) {
            warn(device->verbs, own->region, &report);
        }
    }
}

void verbs_windows_close(struct verbs_device *device)
{
    while (!LIST_EMPTY(&device->windows)) {
        window_close(device, LIST_FIRST(&device->windows));
    }
}

const struct ibv_mr *verbs_window_find(const struct verbs_device *device, const void *memory, uint32_t bytes)
{
    const struct verbs_window *window;
    LIST_FOREACH(window, &device->windows, entry) {
        const struct bps_region *region = window->region;
        uintptr_t offset = (uintptr_t)memory - (uintptr_t)region->memory;
        if (offset <= region->bytes && bytes <= region->bytes - offset) {
            return window->mr;
        }
    }
    return NULL;
}

bool verbs_is_on_device(const struct verbs *verbs, const void *memory)
{
    const struct verbs_region *own;
    if (verbs->device_regions == 0) {
        return false;
    }
    LIST_FOREACH(own, &verbs->regions, entry) {
        const struct bps_region *region = own->region;
        if (region->on_device && (uintptr_t)memory - (uintptr_t)region->memory < region->bytes) {
            return true;
        }
    }
    return false;
}

bps_status verbs_attach(void *instance, const struct bps_region *region, struct bps_report *report)
{
    struct verbs *verbs = instance;
    struct verbs_device *device;
    struct bps_report why;
    struct verbs_region *own = verbs->host->alloc(verbs->host, sizeof *own, 8);
    if (own == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    own->region = region;
    LIST_INSERT_HEAD(&verbs->regions, own, entry);
    verbs->device_regions += region->on_device ? 1 : 0;
    LIST_FOREACH(device, &verbs->devices, entry) {
        bps_status status = window_open(device, region, &why);
        if (status != BPS_OK && region->on_device) {
            verbs_detach(verbs, region);
            BPS_REPORT(report, "%s", why.text);
            return status;
        }
        if (status != BPS_OK) {
            warn(verbs, region, &why);
        }
    }
    return BPS_OK;
}

static struct verbs_window *window_of(const struct verbs_device *device, const struct bps_region *region)
{
    struct verbs_window *window;
    LIST_FOREACH(window, &device->windows, entry) {
        if (window->region == region) {
            return window;
        }
    }
    return NULL;
}

void verbs_detach(void *instance, const struct bps_region *region)
{
    struct verbs *verbs = instance;
    struct verbs_device *device;
    struct verbs_region *own;
    LIST_FOREACH(device, &verbs->devices, entry) {
        struct verbs_window *window = window_of(device, region);
        if (window != NULL) {
            window_close(device, window);
        }
    }
    LIST_FOREACH(own, &verbs->regions, entry) {
        if (own->region == region) {
            LIST_REMOVE(own, entry);
            verbs->device_regions -= region->on_device ? 1 : 0;
            verbs->host->release(verbs->host, own);
            return;
        }
    }
}

void verbs_regions_free(struct verbs *verbs)
{
    while (!LIST_EMPTY(&verbs->regions)) {
        struct verbs_region *own = LIST_FIRST(&verbs->regions);
        LIST_REMOVE(own, entry);
        verbs->host->release(verbs->host, own);
    }
}
