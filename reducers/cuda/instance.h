/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instance.h - what the files of this plugin share: an instance, its devices, and what waits for them.
 *
 * Marks are made, followed and released on any thread; all else belongs to the loop, and the callbacks of the
 * driver come on threads of its own. What several of them touch has a lock, named beside it.
 */
#ifndef CUDA_INSTANCE_H
#define CUDA_INSTANCE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "driver.h"
#include "nccl.h"

struct cuda_device;

STAILQ_HEAD(cuda_waits, cuda_wait);

/* notice.c: what is awaited of one stream, in its order. */
struct cuda_lane {
    SLIST_ENTRY(cuda_lane) entry;
    struct cuda_device *device;
    uintptr_t origin; /* whose work that is, see struct bps_mark */
    bool bound;       /* for good, to a stream of our own */
    struct cuda_waits waits;
    uint64_t delivered;         /* waits that have ended */
    uint64_t armed;             /* the number of the last wait that had a callback */
    struct CUstream_st *stream; /* of the callbacks */
    uint64_t calls;             /* callbacks asked for */
    uint64_t called;            /* those that have come; guarded by notice_lock */
};

/* One direction of copies. */
struct cuda_way {
    struct CUstream_st *stream;
    struct cuda_lane *lane;
};

/* kernel.c: the kernels in the context of a device. */
struct cuda_kernels {
    bool tried, usable; /* guarded by the instance's lock; the fields below hold where it is usable */
    struct CUmod_st *module;
    struct CUfunc_st *function[BPS_OPS][BPS_DTYPES];
};

struct cuda_device {
    struct cuda *cuda;
    int32_t index;
    atomic_bool open; /* the fields below hold; set under lock */
    int handle;
    bool shared;  /* others can reach its memory, if it has a dma-buf */
    bool flushed; /* what they write there has to be flushed */
    struct CUctx_st *context;
    struct cuda_way to_host, to_device; /* reductions go the second one's way */
    struct cuda_kernels kernels;
    SLIST_HEAD(, cuda_lane) lanes;
    struct cuda_waits spare_waits;
    SLIST_HEAD(, bps_mark) marks; /* spare ones; guarded by lock */
    cuda_result failure;          /* of its work */
};

struct cuda {
    const struct bps_host *host;
    struct cuda_driver driver;
    pthread_mutex_t lock;
    pthread_mutex_t notice_lock; /* never held in a call of the driver, since its callbacks take it */
    int event;                   /* of the callbacks, for the loop */
    struct bps_watch *watch;
    struct bps_poller *poller;
    uint64_t awaited; /* waits on all lanes */
    LIST_HEAD(, cuda_region) regions;
    bool regions_wait; /* some have not been registered yet */
    bool regions_warned;
    struct nccl nccl; /* filled in by cuda_group_query() */
    LIST_HEAD(, bps_group) groups;
    uint64_t *bytes_to_host, *bytes_to_device, *bytes_reduced;
    int32_t devices;
    struct cuda_device device[];
};

/* A point in the work of a stream. */
struct bps_mark {
    SLIST_ENTRY(bps_mark) entry;
    struct cuda_device *device;
    struct CUevent_st *event;
    uintptr_t origin; /* the stream: marks of equal origin are reached in their order */
};

/* ---- device.c ---- */

/* The device of this index, opened on first use. Any thread. */
bps_status cuda_device_get(struct cuda *cuda, int32_t index, struct cuda_device **out, struct bps_report *report);
/* Waits for all work that was begun on an open device. */
void cuda_device_wait(struct cuda_device *device);
/*
 * Closes an open device, after that. False: it has failed and owes callbacks, and what they touch must not be
 * freed.
 */
bool cuda_device_close(struct cuda_device *device);

/* A stay in a device's context; calls of the driver are made in one. Any thread. */
struct cuda_stay {
    struct cuda_device *device;
    unsigned capture_mode; /* that the thread had before */
};
cuda_result cuda_enter(struct cuda_device *device, struct cuda_stay *stay);
void cuda_leave(struct cuda_stay *stay);

/* In a stay: a stream that waits for no default stream, and whose work goes before that of the application.
 */
cuda_result cuda_stream_open(const struct cuda_device *device, struct CUstream_st **out);

/* Reports "device 0: WHAT: why", and says which status that is. */
bps_status cuda_failed(const struct cuda_device *device, const char *what, cuda_result result,
                       struct bps_report *report);

/*
 * In a stay, when the way's stream was given something, or not, as `given` says: calls `done` on the loop
 * when all that the stream has is done. If that cannot be, waits for it, and reports "device 0: WHAT: why".
 */
bps_status cuda_way_follow(struct cuda_way *way, cuda_result given, const char *what, bps_device_fn done, void *arg,
                           struct bps_report *report);

/* ---- notice.c ---- */

bps_status cuda_notices_open(struct cuda *cuda, struct bps_report *report);
void cuda_notices_close(struct cuda *cuda);
/* Instead of that, where the driver still owes callbacks: the loop does not ask any more. */
void cuda_notices_ignore(struct cuda *cuda);

/* In a stay, as all of these but cuda_lane_await(). The lane is the device's. */
cuda_result cuda_lane_open(struct cuda_device *device, uintptr_t origin, bool bound, struct cuda_lane **out);
/*
 * Calls fn on the loop when the event is reached, or the device has failed. Until then the event is neither
 * recorded anew nor destroyed.
 */
cuda_result cuda_lane_await(struct cuda_lane *lane, struct CUevent_st *event, bps_device_fn fn, void *arg);
/* The same when all that the stream has been given so far is done. */
cuda_result cuda_lane_follow(struct cuda_lane *lane, struct CUstream_st *stream, bps_device_fn fn, void *arg);
/* The lane for work of this origin: one that has it, else one at rest, else a new one. */
cuda_result cuda_lane_of(struct cuda_device *device, uintptr_t origin, struct cuda_lane **out);
/* Waits for what our own stream of the lane has been given, and for callbacks. */
void cuda_lane_wait(struct cuda_lane *lane);
/* False as cuda_device_close(). */
bool cuda_lanes_close(struct cuda_device *device);

/* ---- kernel.c, where the build has a compiler for kernels ---- */

/* The kernels of an open device, loaded on first use. NULL: it has none, and the log says why. Any thread. */
const struct cuda_kernels *cuda_kernels_get(struct cuda_device *device);

/* ---- group.c: the operations of struct bps_group_ops ---- */

struct cuda_batch {
    SLIST_ENTRY(cuda_batch) next;   /* of all of the group */
    STAILQ_ENTRY(cuda_batch) entry; /* of those in the same state */
    struct bps_group *group;
    struct CUevent_st *event; /* behind its steps */
    bps_device_fn done;
    void *arg;
    uint32_t steps;
    struct bps_group_step step[BPS_STEPS_LIMIT];
};
STAILQ_HEAD(cuda_batches, cuda_batch);

/* A communicator of NCCL's and the thread that alone uses it. */
struct bps_group {
    LIST_ENTRY(bps_group) entry;
    struct cuda *cuda;
    struct cuda_device *device;
    struct nccl_name name;
    uint32_t place, size;
    bps_device_fn joined; /* NULL once it has been called */
    void *arg;
    struct CUstream_st *stream;
    struct cuda_lane *lane;
    int event; /* of the thread, for the loop */
    struct bps_watch *watch;
    pthread_t thread;
    bool running;
    struct ncclComm *communicator;    /* the thread's */
    uint8_t *room;                    /* the thread's, on the device (exact.c) */
    SLIST_HEAD(, cuda_batch) batches; /* the loop's */
    struct cuda_batches spare;        /* the loop's */
    atomic_bool aborted;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct cuda_batches queue, given; /* for the thread; on the stream, which the loop has not seen yet */
    uint32_t under_way;               /* batches whose `done` has not been called */
    bool leaving, together, over;     /* over: the thread uses neither stream nor communicator any more */
    bps_status status;                /* why the group has failed */
    char text[256];
};

bps_status cuda_group_query(void *instance, char *text, size_t n, struct bps_report *report);
bool cuda_group_takes(void *instance, int32_t device, uint32_t size, uint32_t op, uint32_t dtype);
bps_status cuda_group_identify(void *instance, int32_t device, uint8_t *identity, struct bps_report *report);
bps_status cuda_group_name(void *instance, uint8_t *name, struct bps_report *report);
bps_status cuda_group_join(void *instance, const struct bps_group_seat *seat, struct bps_group **out,
                           struct bps_report *report);
bps_status cuda_group_run(struct bps_group *group, const struct bps_group_step *steps, uint32_t n, bps_device_fn done,
                          void *arg, struct bps_report *report);
void cuda_group_leave(struct bps_group *group);
void cuda_group_abort(struct bps_group *group);
/* Ends the threads of all groups; those that have not been left are aborted. */
void cuda_groups_end(struct cuda *cuda);
/* After that, and once their devices are at rest. */
void cuda_groups_free(struct cuda *cuda);

/* ---- communicator.c: what the thread of a group does ---- */

void *cuda_communicator_work(void *group);
/* Waits until NCCL is not in progress any more. True: it has worked; else the group has failed. */
bool cuda_communicator_settle(struct bps_group *group, nccl_result result);
/* The group has failed: "device 0: WHAT: why". */
void cuda_communicator_fail(struct bps_group *group, const char *what, cuda_result result);

/* ---- exact.c, where the build has a compiler for kernels: steps that NCCL does not combine as we do ---- */

#ifdef CUDA_KERNELS
bool cuda_exact_takes(struct cuda *cuda, int32_t device, uint32_t size, uint32_t op, uint32_t dtype);
/* The thread's: gives the stream those steps of a batch. False: the group has failed. */
bool cuda_exact_give(struct bps_group *group, const struct bps_group_step *steps, uint32_t n);
/* In a stay: gets the memory that it needs on the device, and gives it back. */
cuda_result cuda_exact_open(struct bps_group *group);
void cuda_exact_close(struct bps_group *group);
#else
static inline bool cuda_exact_takes(struct cuda *cuda, int32_t device, uint32_t size, uint32_t op, uint32_t dtype)
{
    (void)cuda, (void)device, (void)size, (void)op, (void)dtype;
    return false;
}

static inline bool cuda_exact_give(struct bps_group *group, const struct bps_group_step *steps, uint32_t n)
{
    (void)group, (void)steps, (void)n;
    return true;
}

static inline cuda_result cuda_exact_open(struct bps_group *group)
{
    (void)group;
    return CUDA_OK;
}

static inline void cuda_exact_close(struct bps_group *group)
{
    (void)group;
}
#endif

/* ---- share.c: the operations of struct bps_share_ops ---- */

/* Others can reach the memory of this device. */
bool cuda_share_supported(const struct cuda_driver *driver, int handle);
/* Finds out how, for a device that is being opened. */
void cuda_share_learn(struct cuda_device *device);
uint64_t cuda_share_allocation(void *instance, int32_t device, const void *memory);
bps_status cuda_share_region(void *instance, int32_t device, const void *memory, uint64_t bytes, struct bps_region *out,
                             struct bps_report *report);
bps_status cuda_share_flush(void *instance, int32_t device, struct bps_report *report);

/* ---- mark.c, copy.c, reduce.c, region.c: the operations of struct bps_device_ops ---- */

bps_status cuda_mark(void *instance, const struct bps_device *device, struct bps_mark **out, struct bps_report *report);
bps_status cuda_mark_copies(void *instance, int32_t device, struct bps_mark **out, struct bps_report *report);
bps_status cuda_follow(void *instance, const struct bps_device *device, struct bps_mark *mark,
                       struct bps_report *report);
bps_status cuda_await(void *instance, struct bps_mark *mark, bps_device_fn reached, void *arg,
                      struct bps_report *report);
void cuda_release(void *instance, struct bps_mark *mark);
/* In a stay: frees the spare marks. */
void cuda_marks_close(struct cuda_device *device);

bps_status cuda_copy(void *instance, const struct bps_copy *copy, struct bps_report *report);

/* reduce.c, where the build has a compiler for kernels; in a stay: gives a stream a reduction. */
cuda_result cuda_launch(const struct cuda_device *device, struct CUstream_st *stream,
                        const struct bps_reduction *reduction);
uint32_t cuda_element_bytes(uint32_t dtype);
bool cuda_can_reduce(void *instance, int32_t device, uint32_t op, uint32_t dtype);
bps_status cuda_reduce(void *instance, const struct bps_reduction *reduction, struct bps_report *report);

bps_status cuda_attach(void *instance, const struct bps_region *region, struct bps_report *report);
void cuda_detach(void *instance, const struct bps_region *region);
/* In a stay: registers the regions that have not been yet. */
void cuda_regions_register(struct cuda_device *device);
void cuda_regions_free(struct cuda *cuda);

#endif
