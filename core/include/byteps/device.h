/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - what a reducer does with tensors in device memory.
 *
 * It gets them to the host and back, combines them on the device or among devices, and lets others reach them. Work on
 * a device is ordered by streams, the application's and the reducer's own ones for its copies. A mark is a point in
 * that work: it is reached when everything before it is done. Its operations are named by struct bps_reducer_ops.
 */
#ifndef BYTEPS_DEVICE_H
#define BYTEPS_DEVICE_H

#include <byteps/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- marks, copies and reductions ---------------------------------------------------------------------- */

struct bps_mark; /* the reducer's */

/* An error means that the device does not work any more; `text` has the reason. */
typedef void (*bps_device_fn)(void *arg, bps_status status, const char *text);

/* A copy between a device and the host. Its memory stays valid until `done` is called, or close returns. */
struct bps_copy {
    int32_t device; /* its index */
    bool to_device;
    void *to;
    const void *from;
    uint64_t bytes;
    bps_device_fn done; /* called once, on the loop and never from within `copy`, when the bytes are there */
    void *arg;
};

/* A reduction on a device, where all of its memory lies until `done` is called, or close returns. */
#define BPS_REDUCTION_SOURCES 8u
struct bps_reduction {
    int32_t device; /* its index */
    uint32_t op, dtype;
    unsigned n; /* sources, 1 to BPS_REDUCTION_SOURCES */
    const void *src[BPS_REDUCTION_SOURCES];
    void *dst;            /* may be equal to one of the sources */
    const double *scales; /* one for each source, or NULL for all 1; read within the call */
    uint64_t count;
    double scale;
    uint64_t divisor;   /* at least 1; for integers and bool 1 */
    bps_device_fn done; /* called once, on the loop and never from within `reduce`, when it is done */
    void *arg;
};

/* ---- groups -------------------------------------------------------------------------------------------- */

/*
 * Groups: operations among the devices of several processes of one host, one device of each. Their places
 * count from 0. What a group is to do comes in batches of steps, the same in all its processes and in the
 * same order; only the addresses differ. One batch follows the other; the steps of a batch have nothing to do
 * with each other, and are done in any order.
 */
struct bps_group; /* the reducer's */

#define BPS_GROUP_NAME_BYTES     128u
#define BPS_GROUP_IDENTITY_BYTES 16u

struct bps_group_seat {
    const uint8_t *name; /* BPS_GROUP_NAME_BYTES, that one of them has made */
    uint32_t place, size;
    int32_t device;
    /* Called once, on the loop and never from within `join`: all are there, or the group does not work. */
    bps_device_fn joined;
    void *arg;
};

#define BPS_STEP_REDUCE     0u /* `from` of all, combined, goes to `to` of the root; no other `to` is used */
#define BPS_STEP_BROADCAST  1u /* `from` of the root goes to `to` of all; no other `from` is used */
#define BPS_STEP_ALL_REDUCE 2u /* `from` of all, combined, goes to `to` of all */

#define BPS_STEPS_LIMIT 64u /* of a batch */

/* `from` and `to` lie on the device of this process, and may be the same. */
struct bps_group_step {
    uint32_t kind; /* BPS_STEP_* */
    uint32_t op;   /* BPS_SUM and so on; an average is divided by the size of the group */
    uint32_t dtype, root;
    const void *from;
    void *to;
    uint64_t count; /* elements */
};

/* None of them is optional. All are called on the loop. */
struct bps_group_ops {
    size_t size;
    /* Are there groups in this process? The text names the library, such as "NCCL 2.21.5"; the report why not. */
    bps_status (*query)(void *instance, char *text, size_t n, struct bps_report *report);
    /*
     * True if the steps of a group of this size may combine this type so, with the results of `reduce`, but
     * for the order of a sum. It answers alike each time; the first time may take as long as loading kernels.
     */
    bool (*takes)(void *instance, int32_t device, uint32_t size, uint32_t op, uint32_t dtype);
    /* What tells a device from all others of this host, in all its processes: BPS_GROUP_IDENTITY_BYTES. */
    bps_status (*identify)(void *instance, int32_t device, uint8_t *identity, struct bps_report *report);
    /* A name for a new group: BPS_GROUP_NAME_BYTES. */
    bps_status (*name)(void *instance, uint8_t *name, struct bps_report *report);
    /* Batches may be given as soon as this has returned. The group is there until the instance is closed. */
    bps_status (*join)(void *instance, const struct bps_group_seat *seat, struct bps_group **out,
                       struct bps_report *report);
    /*
     * Gives a batch of 1 to BPS_STEPS_LIMIT steps. `done` is called once, on the loop and never from within
     * this call, when its memory is not used any more: the steps are done, or the group has failed.
     */
    bps_status (*run)(struct bps_group *group, const struct bps_group_step *steps, uint32_t n, bps_device_fn done,
                      void *arg, struct bps_report *report);
    /* Nothing follows: all batches are done, here and elsewhere. */
    void (*leave)(struct bps_group *group);
    /* Others may be lost: nothing waits for them any more, and what is not done fails. */
    void (*abort)(struct bps_group *group);
};

/* ---- sharing ------------------------------------------------------------------------------------------- */

/* Memory of a device that others reach: none of these operations is optional. */
struct bps_share_ops {
    size_t size;
    /*
     * What was allocated at once, around an address: a number that no other piece has or has had in this
     * process; 0: it is not known. Any thread.
     */
    uint64_t (*allocation)(void *instance, int32_t device, const void *memory);
    /*
     * A region on the device: whole pages of one allocation, that have all of these bytes. The caller closes
     * its descriptor. BPS_ERR_UNSUPPORTED: others cannot reach it. Any thread.
     */
    bps_status (*region)(void *instance, int32_t device, const void *memory, uint64_t bytes, struct bps_region *out,
                         struct bps_report *report);
    /* What others have written to the device is seen by all its work that begins from now on. On the loop. */
    bps_status (*flush)(void *instance, int32_t device, struct bps_report *report);
};

/* ---- the operations of a reducer ----------------------------------------------------------------------- */

struct bps_device_ops {
    size_t size;
    uint32_t type; /* of the devices: BPS_DEVICE_CUDA */
    /*
     * A mark behind all work that the stream of `device` has been given so far; the caller owns it. Any
     * thread. BPS_ERR_INVALID: there is no such device. BPS_ERR_STATE: the stream is being captured into a
     * graph, whose later runs would leave this out. The report has the reason.
     */
    bps_status (*mark)(void *instance, const struct bps_device *device, struct bps_mark **out,
                       struct bps_report *report);
    /* A mark behind all copies to the device and reductions that were begun so far. On the loop. */
    bps_status (*mark_copies)(void *instance, int32_t device, struct bps_mark **out, struct bps_report *report);
    /* What the stream is given from now on waits for the mark. The host does not wait. Any thread. */
    bps_status (*follow)(void *instance, const struct bps_device *device, struct bps_mark *mark,
                         struct bps_report *report);
    /* Calls `reached` once, on the loop and never from within this call. On the loop. */
    bps_status (*await)(void *instance, struct bps_mark *mark, bps_device_fn reached, void *arg,
                        struct bps_report *report);
    /* Gives back a mark that nobody awaits. Any thread. */
    void (*release)(void *instance, struct bps_mark *mark);
    /*
     * Begins a copy, on the loop. Those of one direction are done in the order of these calls; both
     * directions run at once.
     */
    bps_status (*copy)(void *instance, const struct bps_copy *copy, struct bps_report *report);
    /*
     * Copies may be from and to this region of host memory from now on, so that the reducer can prepare for
     * it; without attach they may as well. detach: none does any more. On the loop, or before it runs.
     */
    bps_status (*attach)(void *instance, const struct bps_region *region, struct bps_report *report);
    void (*detach)(void *instance, const struct bps_region *region);
    /*
     * Optional, both or neither. Whether this device reduces such elements itself; it answers alike each
     * time, and the first time may take as long as loading its kernels does. Any thread.
     */
    bool (*can_reduce)(void *instance, int32_t device, uint32_t op, uint32_t dtype);
    /*
     * Begins a reduction that can_reduce() has allowed: what `reduce` of struct bps_kernels does, to the bit.
     * On the loop. Reductions and copies to the device are done in the order of these calls.
     */
    bps_status (*reduce)(void *instance, const struct bps_reduction *reduction, struct bps_report *report);
    /* Optional: its devices can form groups. */
    const struct bps_group_ops *group;
    /* Optional: other devices, such as those of the network, can read and write its memory. */
    const struct bps_share_ops *share;
};

#ifdef __cplusplus
}
#endif
#endif
