/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda.c - the plugin "cuda", a reducer: brings tensors in the memory of NVIDIA's GPUs to the host and back,
 * and lets the GPUs of a host sum among themselves, through NCCL. Its kernels compute what needs nobody else;
 * all else the reducer of server.use sums.
 */
#include <byteps/reducer.h>

#include "instance.h"

static void cuda_free(struct cuda *cuda)
{
    pthread_mutex_destroy(&cuda->notice_lock);
    pthread_mutex_destroy(&cuda->lock);
    cuda->host->release(cuda->host, cuda);
}

static void cuda_close(void *instance)
{
    struct cuda *cuda = instance;
    bool quiet = true;
    cuda_groups_end(cuda);
    for (int32_t i = 0; i < cuda->devices; i++) {
        if (atomic_load(&cuda->device[i].open)) {
            cuda_device_wait(&cuda->device[i]);
        }
    }
    cuda_groups_free(cuda);
    cuda_regions_free(cuda);
    for (int32_t i = 0; i < cuda->devices; i++) {
        if (atomic_load(&cuda->device[i].open)) {
            quiet = cuda_device_close(&cuda->device[i]) && quiet;
        }
    }
    if (!quiet) {
        cuda->host->log(cuda->host, BPS_LOG_WARN,
                        "callbacks of the driver are still pending; their memory is not freed");
        cuda_notices_ignore(cuda);
        return;
    }
    cuda_notices_close(cuda);
    cuda_free(cuda);
}

static struct cuda *cuda_new(const struct bps_host *host, const struct cuda_driver *driver, int devices)
{
    struct cuda *cuda = host->alloc(host, sizeof *cuda + (size_t)devices * sizeof cuda->device[0], 64);
    if (cuda == NULL) {
        return NULL;
    }
    *cuda = (struct cuda){.host = host, .driver = *driver, .devices = devices};
    pthread_mutex_init(&cuda->lock, NULL);
    pthread_mutex_init(&cuda->notice_lock, NULL);
    LIST_INIT(&cuda->regions);
    LIST_INIT(&cuda->groups);
    for (int32_t i = 0; i < devices; i++) {
        cuda->device[i] = (struct cuda_device){.cuda = cuda, .index = i};
        STAILQ_INIT(&cuda->device[i].spare_waits);
    }
    cuda->bytes_to_host = host->counter(host, "bytes_to_host", "bytes copied from devices");
    cuda->bytes_to_device = host->counter(host, "bytes_to_device", "bytes copied to devices");
    cuda->bytes_reduced = host->counter(host, "bytes_reduced", "bytes of results computed on devices");
    return cuda;
}

static bps_status cuda_open(const struct bps_host *host, const void *options, void **instance_out,
                            struct bps_report *report)
{
    struct cuda_driver driver;
    int devices;
    (void)options;
    bps_status status = cuda_driver_open(&driver, &devices, report);
    if (status != BPS_OK) {
        return status;
    }
    struct cuda *cuda = cuda_new(host, &driver, devices);
    if (cuda == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    status = cuda_notices_open(cuda, report);
    if (status != BPS_OK) {
        cuda_free(cuda);
        return status;
    }
    *instance_out = cuda;
    return BPS_OK;
}

static bps_status cuda_kernels(void *instance, uint32_t op, uint32_t dtype, struct bps_kernels *out)
{
    (void)instance;
    (void)op;
    (void)dtype;
    (void)out;
    return BPS_ERR_UNSUPPORTED;
}

static void cuda_describe(void *instance, char *text, size_t n)
{
    const struct cuda *cuda = instance;
    char name[64] = "?";
    int handle, version = 0;
    bool shared = false;
    if (cuda->driver.device_get(&handle, 0) == CUDA_OK) {
        cuda->driver.device_name(name, sizeof name, handle);
        shared = cuda_share_supported(&cuda->driver, handle);
    }
    cuda->driver.version(&version);
    snprintf(text, n, "%d device%s, the first is %s, %s dma-buf; driver for CUDA %d.%d; %s", cuda->devices,
             cuda->devices == 1 ? "" : "s", name, shared ? "with" : "without", version / 1000, version % 1000 / 10,
             CUDA_KERNELS_TEXT);
}

static const struct bps_group_ops group_ops = {
    .size = sizeof group_ops,
    .query = cuda_group_query,
    .takes = cuda_group_takes,
    .identify = cuda_group_identify,
    .name = cuda_group_name,
    .join = cuda_group_join,
    .run = cuda_group_run,
    .leave = cuda_group_leave,
    .abort = cuda_group_abort,
};

static const struct bps_share_ops share_ops = {
    .size = sizeof share_ops,
    .allocation = cuda_share_allocation,
    .region = cuda_share_region,
    .flush = cuda_share_flush,
};

static const struct bps_device_ops device_ops = {
    .size = sizeof device_ops,
    .type = BPS_DEVICE_CUDA,
    .mark = cuda_mark,
    .mark_copies = cuda_mark_copies,
    .follow = cuda_follow,
    .await = cuda_await,
    .release = cuda_release,
    .copy = cuda_copy,
    .attach = cuda_attach,
    .detach = cuda_detach,
#ifdef CUDA_KERNELS
    .can_reduce = cuda_can_reduce,
    .reduce = cuda_reduce,
#endif
    .group = &group_ops,
    .share = &share_ops,
};

static const struct bps_reducer_ops ops = {
    .size = sizeof ops,
    .open = cuda_open,
    .close = cuda_close,
    .kernels = cuda_kernels,
    .describe = cuda_describe,
    .device = &device_ops,
};

BPS_PLUGIN_MODULE(BPS_KIND_REDUCER, "cuda", PLUGIN_VERSION, "Apache-2.0",
                  .summary = "tensors in the memory of NVIDIA's GPUs", .ops = &ops);
