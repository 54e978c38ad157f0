/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - device memory, which the host must not touch, and registrations of the host's.
 *
 * Device memory is mapped twice: once without any access, which is the address that everybody else knows, and
 * once for the stand-in itself. Its dma-buf is the file behind it.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin.h"

struct block {
    LIST_ENTRY(block) entry;
    struct CUctx_st *context;
    uint8_t *outside, *inside;
    size_t bytes;
    unsigned long long id;
    int fd;
};

struct registration {
    LIST_ENTRY(registration) entry;
    uint8_t *memory;
    size_t bytes;
};

static LIST_HEAD(, block) blocks = LIST_HEAD_INITIALIZER(blocks);
static LIST_HEAD(, registration) registrations = LIST_HEAD_INITIALIZER(registrations);

/* ---- device memory ---- */

uint8_t *standin_reach(const struct CUctx_st *context, unsigned long long address, size_t bytes)
{
    const struct block *block;
    LIST_FOREACH(block, &blocks, entry) {
        size_t offset = (size_t)((uintptr_t)address - (uintptr_t)block->outside);
        if (block->context == context && offset <= block->bytes && bytes <= block->bytes - offset) {
            return block->inside + offset;
        }
    }
    return NULL;
}

uint8_t *standin_memory(const void *address, size_t bytes)
{
    struct CUctx_st *context;
    pthread_mutex_lock(&standin_lock);
    uint8_t *memory = standin_context(&context) == CUDA_OK ? standin_reach(context, (uintptr_t)address, bytes) : NULL;
    pthread_mutex_unlock(&standin_lock);
    return memory;
}

static struct block *block_new(struct CUctx_st *context, size_t bytes)
{
    static unsigned long long ids;
    struct block *block = calloc(1, sizeof *block);
    int fd = memfd_create("standin", MFD_CLOEXEC);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (block == NULL || fd < 0 || ftruncate(fd, (off_t)((bytes + page - 1) / page * page)) != 0) {
        abort();
    }
    block->context = context;
    block->bytes = bytes;
    block->outside = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
    block->inside = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (block->outside == MAP_FAILED || block->inside == MAP_FAILED) {
        abort();
    }
    block->fd = fd;
    block->id = ++ids;
    return block;
}

cuda_result cuMemAlloc_v2(unsigned long long *out, size_t bytes)
{
    struct CUctx_st *context;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_context(&context);
    if (result == CUDA_OK) {
        unsigned largest = standin_settings.largest;
        result = bytes == 0                       ? STANDIN_INVALID_VALUE
                 : largest > 0 && bytes > largest ? CUDA_OUT_OF_MEMORY
                                                  : standin_unsafe();
    }
    if (result == CUDA_OK) {
        struct block *block = block_new(context, bytes);
        LIST_INSERT_HEAD(&blocks, block, entry);
        standin_counts.allocations++;
        *out = (uintptr_t)block->outside;
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

static cuda_result free_block(unsigned long long memory)
{
    struct CUctx_st *context;
    struct CUstream_st *stream;
    struct block *block;
    cuda_result result = standin_context(&context);
    if (result == CUDA_OK) {
        result = standin_unsafe();
    }
    if (result != CUDA_OK) {
        return result;
    }
    LIST_FOREACH(stream, &context->streams, entry) {
        standin_drain(stream);
    }
    LIST_FOREACH(block, &blocks, entry) {
        if ((uintptr_t)block->outside == memory && block->context == context) {
            LIST_REMOVE(block, entry);
            munmap(block->outside, block->bytes);
            munmap(block->inside, block->bytes);
            close(block->fd);
            free(block);
            standin_counts.allocations--;
            return CUDA_OK;
        }
    }
    return STANDIN_INVALID_VALUE;
}

cuda_result cuMemFree_v2(unsigned long long memory)
{
    pthread_mutex_lock(&standin_lock);
    cuda_result result = free_block(memory);
    pthread_mutex_unlock(&standin_lock);
    return result;
}

/* ---- what others reach ---- */

/* Of whatever context; NULL: there is none. */
static const struct block *block_at(unsigned long long memory)
{
    const struct block *block;
    LIST_FOREACH(block, &blocks, entry) {
        if (memory - (uintptr_t)block->outside < block->bytes) {
            return block;
        }
    }
    return NULL;
}

cuda_result cuPointerGetAttribute(void *out, unsigned attribute, unsigned long long memory)
{
    pthread_mutex_lock(&standin_lock);
    const struct block *block = block_at(memory);
    bool known = block != NULL && attribute == CUDA_POINTER_BUFFER;
    if (known) {
        memcpy(out, &block->id, sizeof block->id);
    }
    pthread_mutex_unlock(&standin_lock);
    return known ? CUDA_OK : STANDIN_INVALID_VALUE;
}

cuda_result cuMemGetAddressRange_v2(unsigned long long *base, size_t *bytes, unsigned long long memory)
{
    struct CUctx_st *context;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_context(&context);
    const struct block *block = block_at(memory);
    if (result == CUDA_OK && block == NULL) {
        result = STANDIN_NOT_FOUND;
    }
    if (result == CUDA_OK) {
        *base = (uintptr_t)block->outside;
        *bytes = block->bytes;
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

/* Whole pages, and nothing else. */
cuda_result cuMemGetHandleForAddressRange(void *out, unsigned long long memory, size_t bytes, unsigned type,
                                          unsigned long long flags)
{
    struct CUctx_st *context;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_context(&context);
    const struct block *block = block_at(memory);
    bool whole = block != NULL && memory == (uintptr_t)block->outside && bytes % page == 0 && bytes >= block->bytes &&
                 bytes - block->bytes < page;
    if (result == CUDA_OK) {
        result = standin_unsafe();
    }
    if (result == CUDA_OK && (!whole || type != CUDA_RANGE_DMA_BUF || flags != 0)) {
        result = STANDIN_INVALID_VALUE;
    }
    if (result == CUDA_OK) {
        int fd = fcntl(block->fd, F_DUPFD_CLOEXEC, 0);
        memcpy(out, &fd, sizeof fd);
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

cuda_result cuFlushGPUDirectRDMAWrites(unsigned target, unsigned scope)
{
    struct CUctx_st *context;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_context(&context);
    if (result == CUDA_OK && (target != CUDA_FLUSH_CURRENT || scope != CUDA_ORDERED_FOR_OWNER)) {
        result = STANDIN_INVALID_VALUE;
    }
    standin_counts.flushes += result == CUDA_OK;
    pthread_mutex_unlock(&standin_lock);
    return result;
}

/* ---- copies ---- */

/* `to` or `from` is the host's. */
static cuda_result copy(struct CUstream_st *handle, struct standin_work *work, unsigned long long address, bool wait)
{
    struct CUctx_st *context;
    struct CUstream_st *stream;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_context(&context);
    if (result == CUDA_OK) {
        result = standin_stream(handle, &stream);
    }
    if (result == CUDA_OK) {
        uint8_t *inside = standin_reach(context, address, work->bytes);
        if (work->to == NULL) {
            work->to = inside;
        } else {
            work->from = inside;
        }
        result = inside == NULL ? STANDIN_INVALID_VALUE : standin_give(stream, work);
    }
    if (result == CUDA_OK && wait) {
        result = standin_drain(stream);
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

cuda_result cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, struct CUstream_st *stream)
{
    return copy(stream, &(struct standin_work){.to = to, .bytes = bytes, .can_fail = true}, from, false);
}

cuda_result cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, struct CUstream_st *stream)
{
    return copy(stream, &(struct standin_work){.from = from, .bytes = bytes, .can_fail = true}, to, false);
}

cuda_result cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes)
{
    return copy(NULL, &(struct standin_work){.to = to, .bytes = bytes}, from, true);
}

/* Like the driver's, it returns when the bytes have left `from`, which is not when they have arrived. */
cuda_result cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes)
{
    void *staged = malloc(bytes);
    if (staged == NULL) {
        abort();
    }
    memcpy(staged, from, bytes);
    struct standin_work work = {.from = staged, .staged = staged, .bytes = bytes};
    cuda_result result = copy(NULL, &work, to, false);
    if (result != CUDA_OK) {
        free(staged);
    }
    return result;
}

cuda_result cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes,
                                 struct CUstream_st *stream)
{
    struct CUctx_st *context;
    struct standin_work work = {.bytes = bytes, .can_fail = true};
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_context(&context);
    work.from = result == CUDA_OK ? standin_reach(context, from, bytes) : NULL;
    pthread_mutex_unlock(&standin_lock);
    if (result == CUDA_OK && work.from == NULL) {
        result = STANDIN_INVALID_VALUE;
    }
    return result == CUDA_OK ? copy(stream, &work, to, false) : result;
}

cuda_result cuMemsetD8Async(unsigned long long to, unsigned char value, size_t bytes, struct CUstream_st *stream)
{
    return copy(stream, &(struct standin_work){.value = value, .bytes = bytes}, to, false);
}

/* ---- registrations ---- */

cuda_result cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
    struct CUctx_st *context;
    const struct registration *other;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_context(&context);
    if (result == CUDA_OK) {
        result = standin_unsafe();
    }
    if (result == CUDA_OK) {
        result = (flags & ~7u) != 0 ? STANDIN_INVALID_VALUE : standin_settings.registration;
    }
    LIST_FOREACH(other, &registrations, entry) {
        if ((uint8_t *)memory < other->memory + other->bytes && other->memory < (uint8_t *)memory + bytes) {
            result = CUDA_ALREADY_REGISTERED;
        }
    }
    if (result == CUDA_OK) {
        struct registration *registration = calloc(1, sizeof *registration);
        *registration = (struct registration){.memory = memory, .bytes = bytes};
        LIST_INSERT_HEAD(&registrations, registration, entry);
        standin_counts.registrations++;
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}

cuda_result cuMemHostUnregister(void *memory)
{
    struct CUctx_st *context;
    struct registration *registration, *found = NULL;
    pthread_mutex_lock(&standin_lock);
    cuda_result result = standin_context(&context);
    if (result == CUDA_OK) {
        result = standin_unsafe();
    }
    LIST_FOREACH(registration, &registrations, entry) {
        if (registration->memory == memory) {
            found = registration;
        }
    }
    if (result == CUDA_OK && found == NULL) {
        result = STANDIN_NOT_REGISTERED;
    }
    if (result == CUDA_OK) {
        LIST_REMOVE(found, entry);
        free(found);
        standin_counts.registrations--;
    }
    pthread_mutex_unlock(&standin_lock);
    return result;
}
