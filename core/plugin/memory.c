/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - bps_alloc() and bps_register(): regions that other processes of the host can map; and regions on
 * devices, that a transport reaches.
 */
#include "plugin/memory.h"

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

#include <byteps/byteps.h>

#include "base/log.h"
#include "base/report.h"
#include "base/sized.h"
#include "plugin/returned.h"

#define USERS 3 /* the transports to other hosts and to other processes of this one; a reducer with devices */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW) /* so that nobody who maps it can be hit by a signal */

struct bps_shared {
    LIST_ENTRY(bps_shared) entry;
    struct bps_region region;
    bool mapped;                       /* by bps_alloc() */
    const struct bps_instance *reader; /* of a device's memory: it alone is told; NULL: all are */
};

/* Guards everything here. The loop's thread never takes it: who holds it may wait for that thread. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t may_tell = PTHREAD_COND_INITIALIZER;
static LIST_HEAD(, bps_shared) regions = LIST_HEAD_INITIALIZER(regions);
static struct bps_loop *user_loop; /* NULL: it does not run */
static struct bps_memory_user users[USERS];
static unsigned nusers;

/*
 * Locks when all users can be told, or there is none. A job that begins or ends has users whose loop does not
 * run, and its thread may need the lock before the loop does; so it is not held meanwhile.
 */
static void shared_memory_lock(void)
{
    pthread_mutex_lock(&mutex);
    while (nusers > 0 && user_loop == NULL) {
        pthread_cond_wait(&may_tell, &mutex);
    }
}

/* ---- telling the users ---- */

struct tell {
    struct bps_post post;
    const struct bps_shared *shared;
    bool attach;
    bps_status status;
    struct bps_report *report;
    sem_t done;
};

/* True if the user hears of the region. */
static bool concerns(const struct bps_memory_user *user, const struct bps_shared *shared)
{
    return shared->reader == NULL || shared->reader == user->instance;
}

static void detach(const struct bps_shared *shared, unsigned told)
{
    for (unsigned i = 0; i < told; i++) {
        if (concerns(&users[i], shared)) {
            BPS_CALLING(users[i].instance, "detach", NULL);
            users[i].detach(users[i].instance->self, &shared->region);
        }
    }
}

static bps_status attach_to(const struct bps_memory_user *user, const struct bps_shared *shared,
                            struct bps_report *report)
{
    BPS_CALLING(user->instance, "attach", NULL);
    bps_status status = user->attach(user->instance->self, &shared->region, report);
    return bps_returned_told(user->instance, "attach", status, report);
}

static bps_status attach(const struct bps_shared *shared, struct bps_report *report)
{
    for (unsigned i = 0; i < nusers; i++) {
        bps_status status = concerns(&users[i], shared) ? attach_to(&users[i], shared, report) : BPS_OK;
        if (status != BPS_OK) {
            detach(shared, i);
            return status;
        }
    }
    return BPS_OK;
}

static void on_tell(struct bps_post *post)
{
    struct tell *tell = (struct tell *)post;
    if (tell->attach) {
        tell->status = attach(tell->shared, tell->report);
    } else {
        detach(tell->shared, nusers);
    }
    sem_post(&tell->done);
}

static bps_status shared_memory_tell_users(const struct bps_shared *shared, bool attach, struct bps_report *report)
{
    struct tell tell = {.post = {.fn = on_tell}, .shared = shared, .attach = attach, .report = report};
    if (nusers == 0) {
        return BPS_OK;
    }
    sem_init(&tell.done, 0, 0);
    bps_loop_post(user_loop, &tell.post);
    while (sem_wait(&tell.done) != 0) {
    }
    sem_destroy(&tell.done);
    return tell.status;
}

bps_status bps_memory_join(const struct bps_memory_user *user, struct bps_report *report)
{
    const struct bps_shared *shared;
    bps_status status = BPS_OK;
    pthread_mutex_lock(&mutex);
    LIST_FOREACH(shared, &regions, entry) {
        if (status == BPS_OK && concerns(user, shared)) {
            status = attach_to(user, shared, report);
        }
    }
    if (status == BPS_OK) {
        users[nusers++] = *user;
    }
    pthread_mutex_unlock(&mutex);
    return status;
}

void bps_memory_run(struct bps_loop *loop)
{
    pthread_mutex_lock(&mutex);
    user_loop = loop;
    pthread_cond_broadcast(&may_tell);
    pthread_mutex_unlock(&mutex);
}

void bps_memory_halt(void)
{
    pthread_mutex_lock(&mutex);
    user_loop = NULL;
    pthread_mutex_unlock(&mutex);
}

void bps_memory_close(struct bps_instance *instance)
{
    unsigned kept = 0;
    pthread_mutex_lock(&mutex);
    for (unsigned i = 0; i < nusers; i++) {
        if (users[i].instance != instance) {
            users[kept++] = users[i];
        }
    }
    nusers = kept;
    bps_instance_close(instance);
    pthread_cond_broadcast(&may_tell);
    pthread_mutex_unlock(&mutex);
}

/* Other threads, one of which may have held the lock, are not here, nor is the loop's. */
void bps_memory_in_child(bool job)
{
    struct bps_shared *shared;
    pthread_mutex_init(&mutex, NULL);
    pthread_cond_init(&may_tell, NULL);
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

static bps_status shared_memory_add(struct bps_shared *shared, struct bps_report *report)
{
    shared_memory_lock();
    bps_status status = shared_memory_tell_users(shared, true, report);
    if (status == BPS_OK) {
        LIST_INSERT_HEAD(&regions, shared, entry);
    }
    pthread_mutex_unlock(&mutex);
    return status;
}

/* Takes the region that begins there off the list; NULL: there is none of this kind. */
static struct bps_shared *shared_memory_take(const void *memory, bool mapped)
{
    struct bps_shared *shared;
    shared_memory_lock();
    LIST_FOREACH(shared, &regions, entry) {
        if (shared->region.memory == memory && shared->mapped == mapped && shared->reader == NULL) {
            LIST_REMOVE(shared, entry);
            shared_memory_tell_users(shared, false, NULL);
            break;
        }
    }
    pthread_mutex_unlock(&mutex);
    return shared;
}

static void destroy(struct bps_shared *shared)
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
    if (region->fd < 0 || !reserve(region->fd, region->bytes) || fcntl(region->fd, F_ADD_SEALS, SEALS) != 0) {
        return false;
    }
    void *memory = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, region->fd, 0);
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
    struct bps_shared *shared = bytes > 0 && bytes <= SIZE_MAX - page ? calloc(1, sizeof *shared) : NULL;
    if (shared == NULL) {
        return NULL;
    }
    shared->region.bytes = (bytes + page - 1) / page * page;
    struct bps_report report = {""};
    shared->mapped = map(&shared->region);
    if (!shared->mapped || shared_memory_add(shared, &report) != BPS_OK) {
        bps_warn("memory", "cannot share %zu bytes of memory: %s", bytes,
                 shared->mapped ? report.text : strerror(errno));
        destroy(shared);
        return NULL;
    }
    return shared->region.memory;
}

void bps_free(void *memory)
{
    struct bps_shared *shared = memory != NULL ? shared_memory_take(memory, true) : NULL;
    if (shared != NULL) {
        destroy(shared);
    }
}

static bps_status check_memory(const struct bps_memory *memory, struct bps_report *report)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct stat file;
    if (memory->address == NULL || (uintptr_t)memory->address % page != 0 || memory->offset % page != 0 ||
        memory->bytes == 0 || memory->bytes % page != 0) {
        return bps_fail(report, BPS_ERR_INVALID, "address, bytes and offset must be multiples of a page, %lu", page);
    }
    int seals = fcntl(memory->fd, F_GET_SEALS);
    if (fstat(memory->fd, &file) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        return bps_fail(report, BPS_ERR_INVALID,
                        "descriptor %d is not a memfd with F_SEAL_SHRINK, so that it cannot be shared safely",
                        memory->fd);
    }
    if (memory->bytes > (uint64_t)file.st_size || memory->offset > (uint64_t)file.st_size - memory->bytes) {
        return bps_fail(report, BPS_ERR_INVALID, "%lu bytes from offset %lu are more than the file has, %lu",
                        memory->bytes, memory->offset, (uint64_t)file.st_size);
    }
    return BPS_OK;
}

bps_status bps_register(const struct bps_memory *given, struct bps_report *report)
{
    struct bps_memory own, *memory = &own;
    bps_status status = BPS_SIZED(bps_memory, given, &own, report);
    if (status == BPS_OK) {
        status = check_memory(memory, report);
    }
    if (status != BPS_OK) {
        return status;
    }
    struct bps_shared *shared = calloc(1, sizeof *shared);
    if (shared == NULL) {
        return BPS_ERR_NOMEM;
    }
    shared->region = (struct bps_region){
        .memory = memory->address,
        .bytes = memory->bytes,
        .fd = fcntl(memory->fd, F_DUPFD_CLOEXEC, 0),
        .offset = memory->offset,
    };
    status = shared->region.fd < 0 ? BPS_ERR_IO : shared_memory_add(shared, report);
    if (status != BPS_OK) {
        destroy(shared);
    }
    return status;
}

bps_status bps_unregister(void *address, struct bps_report *report)
{
    struct bps_shared *shared = shared_memory_take(address, false);
    if (shared == NULL) {
        return bps_fail(report, BPS_ERR_INVALID, "%p is not the start of registered memory", address);
    }
    destroy(shared);
    return BPS_OK;
}

/* ---- on devices ---- */

bps_status bps_memory_share(const struct bps_instance *reader, const struct bps_region *region, struct bps_shared **out,
                            struct bps_report *report)
{
    struct bps_shared *shared = calloc(1, sizeof *shared);
    if (shared == NULL) {
        close(region->fd);
        return bps_out_of_memory(report);
    }
    *shared = (struct bps_shared){.region = *region, .reader = reader};
    bps_status status = shared_memory_add(shared, report);
    if (status == BPS_OK) {
        *out = shared;
    } else {
        destroy(shared);
    }
    return status;
}

void bps_memory_unshare(struct bps_shared *shared)
{
    shared_memory_lock();
    LIST_REMOVE(shared, entry);
    shared_memory_tell_users(shared, false, NULL);
    pthread_mutex_unlock(&mutex);
    destroy(shared);
}
