/* SPDX-License-Identifier: Apache-2.0 */
/* context.c - the driver's start, devices, contexts, and the words for errors. */
#include <stdlib.h>
#include <string.h>

#include "standin.h"

#define STACK 16

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t standin_changed = PTHREAD_COND_INITIALIZER;
struct standin_counts standin_counts;
struct standin_settings standin_settings;

static bool started;
static struct CUctx_st contexts[STANDIN_DEVICES];
static _Thread_local struct CUctx_st *stack[STACK];
static _Thread_local int depth;

void standin_count(struct standin_counts *out)
{
    pthread_mutex_lock(&standin_lock);
    *out = standin_counts;
    pthread_mutex_unlock(&standin_lock);
}

/* ---- start ---- */

static unsigned setting(const char *name, unsigned fallback)
{
    const char *text = getenv(name);
    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : fallback;
}

cuda_result cuInit(unsigned flags)
{
    if (flags != 0) {
        return STANDIN_INVALID_VALUE;
    }
    pthread_mutex_lock(&standin_lock);
    standin_settings = (struct standin_settings){
        .devices = (int)setting("STANDIN_DEVICES", 2) % (STANDIN_DEVICES + 1),
        .init = setting("STANDIN_INIT", CUDA_OK),
        .registration = setting("STANDIN_REGISTER", CUDA_OK),
        .largest = setting("STANDIN_LARGEST", 0),
        .module = setting("STANDIN_MODULE", CUDA_OK),
        .failing_copy = setting("STANDIN_FAILING_COPY", 0),
        .dma_buf = setting("STANDIN_DMA_BUF", 1) != 0,
        .seed = setting("STANDIN_SEED", 1),
    };
    started = standin_settings.init == CUDA_OK;
    cuda_result result = standin_settings.init;
    pthread_mutex_unlock(&standin_lock);
    return result;
}

cuda_result cuDriverGetVersion(int *out)
{
    *out = 13000;
    return CUDA_OK;
}

/* ---- devices ---- */

cuda_result cuDeviceGetCount(int *out)
{
    if (!started) {
        return STANDIN_UNINITIALIZED;
    }
    *out = standin_settings.devices;
    return CUDA_OK;
}

cuda_result cuDeviceGet(int *out, int index)
{
    if (!started) {
        return STANDIN_UNINITIALIZED;
    }
    if (index < 0 || index >= standin_settings.devices) {
        return STANDIN_INVALID_DEVICE;
    }
    *out = index;
    return CUDA_OK;
}

cuda_result cuDeviceGetName(char *out, int bytes, int device)
{
    if (device < 0 || device >= standin_settings.devices) {
        return STANDIN_INVALID_DEVICE;
    }
    snprintf(out, (size_t)bytes, "stand-in");
    return CUDA_OK;
}

/* The same in all processes, as that of a GPU is. */
cuda_result cuDeviceGetUuid(struct CUuuid_st *out, int device)
{
    if (device < 0 || device >= standin_settings.devices) {
        return STANDIN_INVALID_DEVICE;
    }
    memset(out, 0, sizeof *out);
    out->bytes[0] = (char)device;
    return CUDA_OK;
}

/* What others write to its memory has to be flushed. */
cuda_result cuDeviceGetAttribute(int *out, unsigned attribute, int device)
{
    if (device < 0 || device >= standin_settings.devices) {
        return STANDIN_INVALID_DEVICE;
    }
    *out = attribute == CUDA_DMA_BUF_SUPPORTED ? standin_settings.dma_buf : 0;
    return CUDA_OK;
}

/* ---- contexts ---- */

cuda_result cuDevicePrimaryCtxRetain(struct CUctx_st **out, int device)
{
    if (device < 0 || device >= standin_settings.devices) {
        return STANDIN_INVALID_DEVICE;
    }
    pthread_mutex_lock(&standin_lock);
    struct CUctx_st *context = &contexts[device];
    if (context->legacy == NULL) {
        context->device = device;
        context->legacy = standin_stream_new(context, true);
    }
    context->retained++;
    standin_counts.retained++;
    *out = context;
    pthread_mutex_unlock(&standin_lock);
    return CUDA_OK;
}

cuda_result cuDevicePrimaryCtxRelease_v2(int device)
{
    cuda_result result = CUDA_INVALID_CONTEXT;
    pthread_mutex_lock(&standin_lock);
    if (device >= 0 && device < STANDIN_DEVICES && contexts[device].retained > 0) {
        contexts[device].retained--;
        standin_counts.retained--;
        result = CUDA_OK;
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

cuda_result cuCtxPushCurrent_v2(struct CUctx_st *context)
{
    pthread_mutex_lock(&standin_lock);
    bool usable = depth < STACK && context != NULL && context->retained > 0;
    pthread_mutex_unlock(&standin_lock);
    if (!usable) {
        return CUDA_INVALID_CONTEXT;
    }
    stack[depth++] = context;
    return CUDA_OK;
}

cuda_result cuCtxPopCurrent_v2(struct CUctx_st **out)
{
    if (depth == 0) {
        return CUDA_INVALID_CONTEXT;
    }
    *out = stack[--depth];
    return CUDA_OK;
}

cuda_result cuCtxGetCurrent(struct CUctx_st **out)
{
    *out = depth > 0 ? stack[depth - 1] : NULL;
    return CUDA_OK;
}

cuda_result cuCtxSetCurrent(struct CUctx_st *context)
{
    depth -= depth > 0;
    if (context != NULL) {
        stack[depth++] = context;
    }
    return CUDA_OK;
}

cuda_result standin_context(struct CUctx_st **out)
{
    if (depth == 0 || stack[depth - 1]->retained == 0) {
        return CUDA_INVALID_CONTEXT;
    }
    *out = stack[depth - 1];
    return (*out)->error;
}

/* ---- errors ---- */

static const struct {
    cuda_result code;
    const char *name, *text;
} errors[] = {
    {CUDA_OK, "CUDA_SUCCESS", "no error"},
    {STANDIN_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {STANDIN_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {STANDIN_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
};

static cuda_result lookup(cuda_result error, bool name, const char **out)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (errors[i].code == error) {
            *out = name ? errors[i].name : errors[i].text;
            return CUDA_OK;
        }
    }
    return STANDIN_INVALID_VALUE;
}

cuda_result cuGetErrorName(cuda_result error, const char **out)
{
    return lookup(error, true, out);
}

cuda_result cuGetErrorString(cuda_result error, const char **out)
{
    return lookup(error, false, out);
}
