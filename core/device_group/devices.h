/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices.h - the workers of a host whose tensors lie on devices: these sum among themselves.
 *
 * A partition is combined on the device of its leader, which alone brings the sum to its host and through the
 * network, and the result then goes from there to all devices. If the group is the whole job, both are one
 * step and no host sees the tensor.
 *
 * All devices must be given the same steps in the same order. One worker, the coordinator at place 0,
 * decides: everybody tells it when a round of a tensor has begun and its input lies on the device; when all
 * have, it orders the steps in batches, the most urgent first. If only one has the tensor on the host, or
 * pushes something else, or cannot push at all, the round goes through the host for all, as if there were no
 * group of devices (local.h), and what is wrong is found out there.
 *
 * [core] Everything here belongs to the worker's loop.
 */
#ifndef BPS_DEVICE_GROUP_DEVICES_H
#define BPS_DEVICE_GROUP_DEVICES_H

#include <byteps/device.h>

#include "group/local.h"
#include "plugin/returned.h"

/* What can take a partition at the nodes device_reduce and device_broadcast. */
extern const struct bps_step_ops *const bps_device_reduce_steps[], *const bps_device_broadcast_steps[];

/*
 * Why so many workers of a host with this reducer (NULL: with none that has devices) do not sum on their devices; NULL:
 * they do, by what `text` says then. The answer may lie in the report.
 */
const char *bps_devices_obstacle(const struct bps_conf *conf, const struct bps_instance *reducer, uint32_t workers,
                                 char *text, size_t n, struct bps_report *report);
/* What the group knows of it. */
extern const struct bps_local_device_ops bps_device_group;

/* ---- for the files of this part ---- */

/* A batch on its way through the devices. */
struct bps_devices_batch {
    SLIST_ENTRY(bps_devices_batch) spare;
    TAILQ_ENTRY(bps_devices_batch) entry;
    struct bps_devices *devices;
    uint64_t begun;
    uint32_t tasks;
    struct bps_task *task[BPS_STEPS_LIMIT];
    uint8_t kind[BPS_STEPS_LIMIT]; /* BPS_STEP_* of each */
};

/* What the coordinator tells the worker that it is part of; the others get the frames that mean the same. */
struct bps_devices_orders {
    /* ORDER, FORM and HOST. */
    bps_status (*run)(struct bps_devices *devices, struct bps_reader *order);
    bps_status (*form)(struct bps_devices *devices, const uint8_t *name);
    void (*release)(struct bps_devices *devices, const struct bps_header *header);
    /* SEPARATE: everything goes through the host from now on; the log says why, or it is an error. */
    void (*separate)(struct bps_devices *devices, const char *why);
};

enum bps_devices_state {
    BPS_DEVICES_APART,   /* no group yet */
    BPS_DEVICES_FORMING, /* the devices are joining */
    BPS_DEVICES_TOGETHER,
    BPS_DEVICES_OFF, /* for good: everything goes through the host */
};

struct bps_devices {
    struct bps_local *local;
    const struct bps_devices_orders *orders;
    const struct bps_group_ops *ops;
    const struct bps_instance *reducer;
    void *self; /* the same as its operations know it */
    enum bps_devices_state state;
    char text[128];          /* what joins the devices, or why nothing does */
    bool explained;          /* why a tensor went through the host */
    struct bps_group *group; /* NULL: none yet */
    int32_t device;          /* of this worker in it */
    struct bps_path path;    /* of what they sum */
    SLIST_HEAD(, bps_devices_batch) spare;
    TAILQ_HEAD(, bps_devices_batch) under_way;
    struct bps_coordinator *coordinator; /* at place 0 */
};

/* What is written of a task in a batch. */
#define BPS_ORDER_BYTES 13u

/* ---- devices_round.c ---- */
/* The task of a header that devices of the group sum. NULL: there is none. */
struct bps_task *bps_devices_task(struct bps_worker *worker, const struct bps_header *header);
/* What this worker tells the coordinator of a round: the header of such a frame. */
struct bps_header bps_devices_header(const struct bps_operation *operation, uint8_t type);
/* To the coordinator, which is another worker. */
void bps_devices_send(struct bps_devices *devices, struct bps_header *header, const void *payload, size_t bytes);

/*
 * What the devices combine by: an average of several hosts is divided in the network, unless this group's sum
 * has to be divided before.
 */
uint32_t bps_devices_op(const struct bps_devices *devices, const struct bps_operation *operation);
/*
 * What the sum of the group's devices is divided by: their number, if that divides it as the host would, or nothing.
 * They combine float16 the first way only, which would overflow the most easily.
 */
uint32_t bps_devices_divisor(const struct bps_operation *operation);

/* ---- devices_step.c ---- */

/* What is kept of a task that the devices sum. */
struct bps_devices_round {
    uint32_t batches; /* that have it */
    uint32_t given;   /* the steps that its device was given, a bit each */
    size_t place;     /* in the coordinator's queue */
};
static inline struct bps_devices_round *bps_devices_round_of(const struct bps_task *task)
{
    return task->way->step[0].context;
}

/* True if this worker leads it, and its device has the result. */
bool bps_devices_has_result(const struct bps_task *task);
/* Its next step, if it is to be ordered, is not any more. */
void bps_devices_forget(const struct bps_task *task);

/* ---- devices_batch.c ---- */
/* Gives the batch of an ORDER to the device. */
bps_status bps_devices_run(struct bps_devices *devices, struct bps_reader *order);

/* ---- coordinator.c ---- */
bps_status bps_coordinator_new(struct bps_devices *devices, struct bps_coordinator **out);
void bps_coordinator_free(struct bps_coordinator *coordinator);
/* What the worker at a place says, this one among them. */
bps_status bps_coordinator_ready(struct bps_coordinator *coordinator, uint32_t place, const struct bps_header *header,
                                 const uint8_t *identity);
/* `why` it has not; "": it has. */
bps_status bps_coordinator_joined(struct bps_coordinator *coordinator, uint32_t place, const char *why);
bps_status bps_coordinator_fetched(struct bps_coordinator *coordinator, uint32_t place,
                                   const struct bps_header *header);
/* True if steps are to be ordered. */
bool bps_coordinator_is_busy(const struct bps_coordinator *coordinator);
/* The task ends without its next step. */
void bps_coordinator_forget(struct bps_coordinator *coordinator, const struct bps_task *task);
/* There is no group: all hear why. */
void bps_coordinator_separate(struct bps_coordinator *coordinator, const char *why);
/* A batch of this worker's device is done. */
void bps_coordinator_go_on(struct bps_coordinator *coordinator);
void bps_coordinator_tick(struct bps_coordinator *coordinator, uint64_t now);

#endif
