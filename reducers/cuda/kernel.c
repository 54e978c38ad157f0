/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.c - the kernels of a device: one image has them for several architectures, and lies in this file. It
 * is given to the driver when the first reduction is planned, once for each device.
 */
#include "instance.h"
#include "kernels.h"

/* What the compiler for kernels has made; CUDA_IMAGE names its file. */
__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        "cuda_image:\n"
        ".incbin \"" CUDA_IMAGE "\"\n"
        ".popsection\n");
extern const char cuda_image[] __attribute__((visibility("hidden")));

#define NAME(type, dtype, operation, op) [op][dtype] = "bps_reduce_" #type "_" #operation,
#define NAMES(type, dtype, bytes)        CUDA_OPERATIONS(NAME, type, dtype)
static const char *const names[BPS_OPS][BPS_DTYPES] = {CUDA_TYPES(NAMES)};

static cuda_result find(const struct cuda_driver *driver, struct cuda_kernels *kernels)
{
    cuda_result result = CUDA_OK;
    for (uint32_t op = 0; op < BPS_OPS; op++) {
        for (uint32_t dtype = 0; dtype < BPS_DTYPES && result == CUDA_OK; dtype++) {
            if (names[op][dtype] != NULL) {
                result = driver->module_function(&kernels->function[op][dtype], kernels->module, names[op][dtype]);
            }
        }
    }
    return result;
}

/* The lock is held. */
static cuda_result load(struct cuda_device *device)
{
    const struct cuda_driver *driver = &device->cuda->driver;
    struct cuda_kernels *kernels = &device->kernels;
    struct cuda_stay stay;
    cuda_result result = cuda_enter(device, &stay);
    if (result != CUDA_OK) {
        return result;
    }
    result = driver->module_load(&kernels->module, cuda_image);
    if (result == CUDA_OK) {
        result = find(driver, kernels);
    }
    cuda_leave(&stay);
    return result;
}

const struct cuda_kernels *cuda_kernels_get(struct cuda_device *device)
{
    struct cuda *cuda = device->cuda;
    struct cuda_kernels *kernels = &device->kernels;
    cuda_result result = CUDA_OK;
    pthread_mutex_lock(&cuda->lock);
    if (!kernels->tried) {
        kernels->tried = true;
        result = load(device);
        kernels->usable = result == CUDA_OK;
    }
    bool usable = kernels->usable;
    pthread_mutex_unlock(&cuda->lock);
    if (result != CUDA_OK) {
        struct bps_report report;
        (void)cuda_failed(device, "its kernels cannot be used, so that tensors go through the host", result, &report);
        cuda->host->log(cuda->host, BPS_LOG_WARN, "%s", report.text);
    }
    return usable ? kernels : NULL;
}
