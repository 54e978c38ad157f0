/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.h - tensors in device memory: their way to the host and back, and those that stay.
 *
 * Such a tensor has a place in host memory of its size, which all workers of the host can map (staging.c). An
 * operation waits until the device has computed its input. Then each partition passes the stage copy_to_host,
 * and everything up to copy_to_device happens in host memory. A few copies in each direction are under way at
 * a time; what waits goes by priority, so that an urgent tensor overtakes a large one here as well.
 *
 * Slices that the network reads and writes on the device (direct.c) are not copied: the stages copy what is
 * left of a partition, if anything is.
 *
 * The operation ends when the last copy to the device has begun: the application's stream waits for its end,
 * the host does not.
 *
 * In a job of one worker the result is the worker's own tensor, scaled at most. If the reducer can do that on
 * the device, and no plugin is listed in worker.graph, the tensor stays there: its only stage is
 * reduce_on_device, which counts as a copy to the device.
 */
#ifndef BPS_DEVICE_COPY_H
#define BPS_DEVICE_COPY_H

#include "base/heap.h"
#include "flow/step.h"

/* Copies in one direction. */
struct bps_copier {
    struct bps_heap queue; /* tasks, the most urgent first */
    uint64_t under_way;    /* bytes */
};

/* Host memory for tensors on devices, in slabs. */
struct bps_staging {
    pthread_mutex_t lock;
    LIST_HEAD(, bps_slab) slabs; /* the newest first */
};

/* Device memory that the network reaches. */
struct bps_direct {
    pthread_mutex_t lock; /* guards `pieces` and `explained` */
    LIST_HEAD(, bps_direct_piece) pieces;
    bool explained; /* why some cannot be reached */
    uint32_t least; /* [const] once joined: bytes of a payload there; 0: none is there */
    bool always;    /* [const] once joined: of all partitions that are large enough */
};

struct bps_device_memory {
    struct bps_copier to_host, to_device; /* [core] */
    struct bps_staging staging;           /* [app] */
    struct bps_direct direct;             /* [app] */
};

/* ---- copy.c ---- */

/* Opens the reducer that brings devices: the first usable one of worker.use. None is no error. */
bps_status bps_copy_open(struct bps_worker *worker, struct bps_report *report);
/* Waits for the copies under way, and frees the staging memory. The transports have been closed before. */
void bps_copy_close(struct bps_worker *worker);

extern const struct bps_step_ops *const bps_copy_to_host_steps[], *const bps_copy_to_device_steps[],
                                                                      *const bps_reduce_on_device_steps[];
/* True if tensors on the reducer's devices stay there in a job of one worker, as far as devices can compute. */
bool bps_copy_may_stay(const struct bps_instance *reducer, const struct bps_graph *graph);
/* What the flow knows of it. */
extern const struct bps_device_memory_ops bps_device_memory;

/* ---- staging.c ---- */

/* [app] Room for the tensor of an operation that is being prepared; it may be that there is none. */
void bps_staging_reserve(struct bps_tensor_entry *tensor, uint64_t bytes);
void bps_staging_init(struct bps_staging *staging);
void bps_staging_fini(struct bps_staging *staging);

/* ---- direct.c ---- */

void bps_direct_init(struct bps_direct *direct);
/* Called when the transport between hosts is closed. */
void bps_direct_fini(struct bps_direct *direct);
/*
 * Why the network does not reach the memory of the reducer's devices; NULL: it may, in payloads of at least so many
 * bytes.
 */
const char *bps_direct_obstacle(const struct bps_instance *reducer, const struct bps_instance *transport,
                                const struct bps_graph *graph, uint32_t *least);
/* [core] The job has begun: finds out what the network can reach. */
void bps_direct_joined(struct bps_worker *worker);
/* [app] True if the network reaches input and result of the operation on their device. */
bool bps_direct_reaches(struct bps_worker *worker, const struct bps_operation *operation);
/* True if of an operation that it reaches nothing is copied. */
bool bps_direct_has_all(const struct bps_worker *worker, const struct bps_operation *operation);
/* [core] How much of a task, which is about to be sent, the network itself reads and writes on the device. */
uint32_t bps_direct_bytes(const struct bps_task *task);
/* [core] Work on the device that begins later sees what the network has written. */
bps_status bps_direct_flush(const struct bps_operation *operation, struct bps_report *report);

#endif
