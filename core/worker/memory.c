/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - bps_alloc() and bps_register(): regions that other processes of the host can map. */
#include "worker/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#define USERS 3 /* the transports to other hosts and to other processes of this one; a reducer with devices */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW) /* so that nobody who maps it can be hit by a signal */

struct shared {
    LIST_ENTRY(shared) entry;
    struct bps_region region;
    bool mapped; /* by bps_alloc() */
};

/* Guards everything here. The loop's thread never takes it. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, shared) regions = LIST_HEAD_INITIALIZER(regions);
static struct bps_loop *user_loop; /* NULL: there is nobody to tell */
static struct bps_memory_user users[USERS];
static unsigned nusers;

/* ---- telling the users ---- */

struct tell {
    struct bps_post post;
    const struct bps_region *region;
    bool attach;
    bps_status status;
    struct bps_report *report;
    sem_t done;
};

static bps_status attach(const struct bps_region *region, struct bps_report *report)
{
    bps_status status = BPS_OK;
    unsigned told = 0;
    for (; told < nusers && status == BPS_OK; told++) {
        status = users[told].attach(users[told].instance->self, region, report);
    }
    if (status != BPS_OK) {
        while (--told > 0) {
            users[told - 1].detach(users[told - 1].instance->self, region);
        }
    }
    return status;
}

static void detach(const struct bps_region *region)
{
    for (unsigned i = 0; i < nusers; i++) {
        users[i].detach(users[i].instance->self, region);
    }
}

static void on_tell(struct bps_post *post)
{
    struct tell *tell = (struct tell *)post;
    if (tell->attach) {
        tell->status = attach(tell->region, tell->report);
    } else {
        detach(tell->region);
    }
    sem_post(&tell->done);
}

static bps_status tell_users(const struct bps_region *region, bool attach, struct bps_report *report)
{
    struct tell tell = {.post = {.fn = on_tell}, .region = region, .attach = attach, .report = report};
    if (user_loop == NULL) {
        return BPS_OK;
    }
    sem_init(&tell.done, 0, 0);
    bps_loop_post(user_loop, &tell.post);
    while (sem_wait(&tell.done) != 0) {
    }
    sem_destroy(&tell.done);
    return tell.status;
}

bps_status bps_memory_join(struct bps_loop *loop, const struct bps_memory_user *user,
                           struct bps_report *report)
{
    const struct shared *shared;
    bps_status status = BPS_OK;
    pthread_mutex_lock(&mutex);
    LIST_FOREACH(shared, &regions, entry) {
        status = status == BPS_OK ? user->attach(user->instance->self, &shared->region, report) : status;
    }
    if (status == BPS_OK) {
        user_loop = loop;
        users[nusers++] = *user;
    }
    pthread_mutex_unlock(&mutex);
    return status;
}

void bps_memory_part(const struct bps_instance *instance)
{
    unsigned kept = 0;
    pthread_mutex_lock(&mutex);
    for (unsigned i = 0; i < nusers; i++) {
        if (users[i].instance != instance) {
            users[kept++] = users[i];
        }
    }
    nusers = kept;
    user_loop = nusers > 0 ? user_loop : NULL;
    pthread_mutex_unlock(&mutex);
}

/* Other threads, one of which may have held the lock, are not here, nor is the loop's. */
void bps_memory_in_child(bool job)
{
    struct shared *shared;
    pthread_mutex_init(&mutex, NULL);
    user_loop = NULL;
    nusers = 0;
    LIST_FOREACH(shared, &regions, entry) {
        if (job && shared->region.fd >= 0) {
            close(shared->region.fd);
            shared->region.fd = -1;
        }
    }
}

/* ---- regions ---- */

static bps_status add(struct shared *shared, struct bps_report *report)
{
    pthread_mutex_lock(&mutex);
    bps_status status = tell_users(&shared->region, true, report);
    if (status == BPS_OK) {
        LIST_INSERT_HEAD(&regions, shared, entry);
    }
    pthread_mutex_unlock(&mutex);
    return status;
}

/* Takes the region that begins there off the list; NULL: there is none of this kind. */
static struct shared *take(const void *memory, bool mapped)
{
    struct shared *shared;
    pthread_mutex_lock(&mutex);
    LIST_FOREACH(shared, &regions, entry) {
        if (shared->region.memory == memory && shared->mapped == mapped) {
            LIST_REMOVE(shared, entry);
            tell_users(&shared->region, false, NULL);
            break;
        }
    }
    pthread_mutex_unlock(&mutex);
    return shared;
}

static void destroy(struct shared *shared)
{
    if (shared->mapped) {
        munmap(shared->region.memory, shared->region.bytes);
    }
    if (shared->region.fd >= 0) {
        close(shared->region.fd);
    }
    free(shared);
}

/*
 * Takes all pages of a file now, because page faults cost more than the sums. Not by the mapping: one that
 * gets its pages keeps the other threads from getting theirs. In pieces, as a signal undoes the last one.
 */
static bool reserve(int fd, uint64_t bytes)
{
    const uint64_t piece = 64u << 20;
    for (uint64_t at = 0; at < bytes;) {
        uint64_t n = bytes - at < piece ? bytes - at : piece;
        if (fallocate(fd, 0, (off_t)at, (off_t)n) == 0) {
            at += n;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

static bool map(struct bps_region *region)
{
    region->fd = memfd_create("byteps", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (region->fd < 0 || !reserve(region->fd, region->bytes) ||
        fcntl(region->fd, F_ADD_SEALS, SEALS) != 0) {
        return false;
    }
    void *memory =
        mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, region->fd, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    region->memory = memory;
    madvise(memory, region->bytes, MADV_HUGEPAGE); /* only an optimisation */
    return true;
}

void *bps_alloc(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct shared *shared = bytes > 0 && bytes <= SIZE_MAX - page ? calloc(1, sizeof *shared) : NULL;
    if (shared == NULL) {
        return NULL;
    }
    shared->region.bytes = (bytes + page - 1) / page * page;
    shared->mapped = map(&shared->region);
    if (!shared->mapped || add(shared, NULL) != BPS_OK) {
        destroy(shared);
        return NULL;
    }
    return shared->region.memory;
}

void bps_free(void *memory)
{
    struct shared *shared = memory != NULL ? take(memory, true) : NULL;
    if (shared != NULL) {
        destroy(shared);
    }
}

static bps_status check_memory(const struct bps_memory *memory, struct bps_report *report)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct stat file;
    if (memory == NULL || memory->size < sizeof *memory) {
        BPS_REPORT(report, "the size of struct bps_memory is wrong; was it built for another version?");
        return BPS_ERR_INVALID;
    }
    if (memory->address == NULL || (uintptr_t)memory->address % page != 0 || memory->offset % page != 0 ||
        memory->bytes == 0 || memory->bytes % page != 0) {
        BPS_REPORT(report, "address, bytes and offset must be multiples of the page size, %lu", page);
        return BPS_ERR_INVALID;
    }
    int seals = fcntl(memory->fd, F_GET_SEALS);
    if (fstat(memory->fd, &file) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        BPS_REPORT(report,
                   "descriptor %d is not a memfd with F_SEAL_SHRINK, so that it cannot be shared safely",
                   memory->fd);
        return BPS_ERR_INVALID;
    }
    if (memory->bytes > (uint64_t)file.st_size || memory->offset > (uint64_t)file.st_size - memory->bytes) {
        BPS_REPORT(report, "%lu bytes from offset %lu are more than the file has, %lu", memory->bytes,
                   memory->offset, (uint64_t)file.st_size);
        return BPS_ERR_INVALID;
    }
    return BPS_OK;
}

bps_status bps_register(const struct bps_memory *memory, struct bps_report *report)
{
    bps_status status = check_memory(memory, report);
    if (status != BPS_OK) {
        return status;
    }
    struct shared *shared = calloc(1, sizeof *shared);
    if (shared == NULL) {
        return BPS_ERR_NOMEM;
    }
    shared->region = (struct bps_region){
        .memory = memory->address,
        .bytes = memory->bytes,
        .fd = fcntl(memory->fd, F_DUPFD_CLOEXEC, 0),
        .offset = memory->offset,
    };
    status = shared->region.fd < 0 ? BPS_ERR_IO : add(shared, report);
    if (status != BPS_OK) {
        destroy(shared);
    }
    return status;
}

bps_status bps_unregister(void *address, struct bps_report *report)
{
    struct shared *shared = take(address, false);
    if (shared == NULL) {
        BPS_REPORT(report, "%p is not the begin of registered memory", address);
        return BPS_ERR_INVALID;
    }
    destroy(shared);
    return BPS_OK;
}
