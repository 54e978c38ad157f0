/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.c - finds NVIDIA's driver when it is asked for, so that the plugin is built, listed and refused with
 * a reason where there is none.
 */
#include "driver.h"

#include "library.h"

static const struct cuda_function functions[] = {
#define FUNCTION(member, symbol, parameters) {#symbol, offsetof(struct cuda_driver, member), false},
    CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
#define FUNCTION(member, symbol, parameters) {#symbol, offsetof(struct cuda_driver, member), true},
        CUDA_NEWER_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

/* Why the driver does not start, and what helps. */
static const struct {
    cuda_result result;
    const char *text;
} remedies[] = {
    {CUDA_NO_DEVICE, "it finds no device; `nvidia-smi -L` lists them, CUDA_VISIBLE_DEVICES may hide them, "
                     "and a container must be given them"},
    {CUDA_STUB_LIBRARY, "it is the stub of the CUDA toolkit; take its folder out of LD_LIBRARY_PATH"},
    {CUDA_OPERATING_SYSTEM, "a system call failed; let the user read and write /dev/nvidia*"},
    {CUDA_NOT_PERMITTED, "it is not permitted; let the user read and write /dev/nvidia*"},
    {CUDA_SYSTEM_NOT_READY, "the system is not ready; start nvidia-fabricmanager or nvidia-persistenced"},
    {CUDA_DRIVER_MISMATCH, "the kernel's module is of another version; load the new one or restart"},
    {CUDA_COMPAT_UNSUPPORTED, "it is a compatibility package that this device does not support; take its "
                              "folder out of LD_LIBRARY_PATH"},
};

void cuda_driver_error(const struct cuda_driver *driver, cuda_result result, char *text, size_t n)
{
    const char *words, *name;
    if (driver->error_text(result, &words) != CUDA_OK || driver->error_name(result, &name) != CUDA_OK) {
        snprintf(text, n, "unknown error %u of the driver", result);
        return;
    }
    snprintf(text, n, "%s (%s)", words, name);
}

bps_status cuda_driver_open(struct cuda_driver *driver, int *devices, struct bps_report *report)
{
    static const struct cuda_library library = {
        .name = "libcuda.so.1",
        .missing = "install NVIDIA's driver, or take cuda out of worker.use",
        .old = "version 418 or newer of NVIDIA's driver",
        .functions = functions,
        .count = sizeof functions / sizeof *functions,
    };
    bps_status status = cuda_library_load(&library, driver, report);
    if (status != BPS_OK) {
        return status;
    }
    cuda_result result = driver->init(0);
    if (result == CUDA_OK) {
        result = driver->device_count(devices);
    }
    if (result == CUDA_OK && *devices > 0) {
        return BPS_OK;
    }
    result = result == CUDA_OK ? CUDA_NO_DEVICE : result;
    for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++) {
        if (remedies[i].result == result) {
            BPS_REPORT(report, "NVIDIA's driver does not start: %s", remedies[i].text);
            return BPS_ERR_UNSUPPORTED;
        }
    }
    char text[192];
    cuda_driver_error(driver, result, text, sizeof text);
    BPS_REPORT(report, "NVIDIA's driver does not start: %s; `nvidia-smi` may say more", text);
    return BPS_ERR_UNSUPPORTED;
}
