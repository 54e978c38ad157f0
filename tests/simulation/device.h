/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - what the two files of the reducer "device" know of each other. */
#ifndef DEVICE_H
#define DEVICE_H

#include <semaphore.h>
#include <sys/queue.h>

#include <byteps/device.h>
#include <byteps/reducer.h>

#include "simulation.h"

/* Work that is done in its order: that of the application's stream, and copies in each direction. */
enum { DEVICE_STREAM, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEVICE_QUEUES };
struct device_queue {
    STAILQ_HEAD(, device_item) items;
    uint64_t given, done;
};

/* Of a process, with a thread of its own that does what it is given. */
struct device {
    LIST_ENTRY(device) entry;
    const struct bps_host *host;
    struct sim_process *process;
    int event;
    struct bps_watch *watch;
    sem_t work;
    bool closing, failed; /* failed: it does nothing right any more */
    uint32_t pause;       /* ns between two pieces of work, at most */
    struct device_queue queue[DEVICE_QUEUES];
    LIST_HEAD(, bps_mark) marks;
    LIST_HEAD(, bps_group) groups;
    STAILQ_HEAD(, device_answer) answers; /* that its loop is to give */
};

/* Whether what it is about to do fails. */
bool device_fails(struct device *device);
/* Later, from the loop. */
void device_answer(struct device *device, bps_device_fn fn, void *arg, bps_status status);

extern const struct bps_group_ops device_group_ops;
/* Does a piece of what the groups of this device were given. False: there is nothing that can be done. */
bool device_groups_go_on(struct device *device);
/* The device is about to be closed: groups that have not been left are aborted. */
void device_groups_end(struct device *device);
/* It is closed: its groups are nobody's. */
void device_groups_part(struct device *device);
/* Forgets those of a job. */
void device_groups_reset(void);

#endif
