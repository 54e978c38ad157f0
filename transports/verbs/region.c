/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.c - memory that the core has attached, registered once with each device. Peers may read it and
 * nothing else; this device also writes what it reads there. What cannot be registered is copied.
 */
#include "verbs.h"

#include <errno.h>

static void window_open(struct verbs_device *device, const struct bps_region *region)
{
    const struct bps_host *host = device->verbs->host;
    struct verbs_window *window = host->alloc(host, sizeof *window, 8);
    if (window == NULL) {
        return;
    }
    struct ibv_mr *mr = ibv_reg_mr(device->pd, region->memory, region->bytes,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    if (mr == NULL) {
        struct bps_report report;
        verbs_register_failed(region->bytes, errno, &report);
        host->log(host, BPS_LOG_WARN, "%s; tensors in this region are copied", report.text);
        host->release(host, window);
        return;
    }
    *window = (struct verbs_window){.region = region, .mr = mr};
    LIST_INSERT_HEAD(&device->windows, window, entry);
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
    LIST_FOREACH(own, &device->verbs->regions, entry) {
        window_open(device, own->region);
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

bps_status verbs_attach(void *instance, const struct bps_region *region, struct bps_report *report)
{
    struct verbs *verbs = instance;
    struct verbs_device *device;
    struct verbs_region *own = verbs->host->alloc(verbs->host, sizeof *own, 8);
    if (own == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    own->region = region;
    LIST_INSERT_HEAD(&verbs->regions, own, entry);
    LIST_FOREACH(device, &verbs->devices, entry) {
        window_open(device, region);
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
