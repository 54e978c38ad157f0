/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_group.c - devices of several processes that sum among themselves. A batch begins on each device by itself,
 * which then reads what it brings; it ends on each by itself when all have begun it, and writes its results then. All
 * must have been given the same.
 */
#include <stdlib.h>
#include <string.h>

#include "device.h"

#define PLACES 16u

struct batch {
    uint32_t n;
    struct bps_group_step step[BPS_STEPS_LIMIT];
    float *brought[BPS_STEPS_LIMIT];
    bps_device_fn done;
    void *arg;
};

/* Where the devices of a group meet. */
struct room {
    LIST_ENTRY(room) entry;
    uint8_t name[BPS_GROUP_NAME_BYTES];
    struct bps_group *member[PLACES];
    uint32_t joined;
};

/* A device in it. */
struct bps_group {
    LIST_ENTRY(bps_group) entry; /* of the device */
    struct device *device;       /* NULL: it is closed */
    struct room *room;
    uint32_t place, size;
    bps_device_fn on_joined; /* NULL: it has been told */
    void *arg;
    bool fails, left, aborted;
    struct batch **batch;
    uint32_t given, begun, ended;
};

static LIST_HEAD(, room) rooms = LIST_HEAD_INITIALIZER(rooms);
static uint64_t names;

static void wake_all(const struct room *room)
{
    for (uint32_t i = 0; i < PLACES; i++) {
        if (room->member[i] != NULL && room->member[i]->device != NULL) {
            sem_post(&room->member[i]->device->work);
        }
    }
}

/* ---- batches ---- */

static void begin(struct bps_group *group)
{
    struct batch *batch = group->batch[group->begun++];
    for (uint32_t i = 0; i < batch->n; i++) {
        const struct bps_group_step *step = &batch->step[i];
        if (step->kind != BPS_STEP_BROADCAST || step->root == group->place) {
            batch->brought[i] = __real_calloc(step->count + 1, sizeof(float));
            memcpy(batch->brought[i], step->from, step->count * sizeof(float));
        }
    }
    wake_all(group->room);
}

static bool all_have_begun(const struct bps_group *group)
{
    bool all = group->room->joined == group->size;
    for (uint32_t i = 0; i < group->size && all; i++) {
        all = group->room->member[i]->begun > group->ended;
    }
    return all;
}

static bool is_same(const struct bps_group_step *a, const struct bps_group_step *b)
{
    return a->kind == b->kind && a->op == b->op && a->dtype == b->dtype && a->root == b->root && a->count == b->count;
}

/* An element of what all have brought to a step. */
static float combine(const struct bps_group *group, uint32_t i, uint64_t k)
{
    const struct bps_group_step *step = &group->batch[group->ended]->step[i];
    float sum = 0, largest = 0;
    for (uint32_t place = 0; place < group->size; place++) {
        float x = group->room->member[place]->batch[group->ended]->brought[i][k];
        sum += x;
        largest = place == 0 || x > largest ? x : largest;
    }
    return step->op == BPS_MAX ? largest : step->op == BPS_AVERAGE ? sum / (float)group->size : sum;
}

static void do_step(const struct bps_group *group, uint32_t i)
{
    const struct bps_group_step *step = &group->batch[group->ended]->step[i];
    const struct batch *root = group->room->member[step->root]->batch[group->ended];
    for (uint64_t k = 0; k < step->count && (step->kind != BPS_STEP_REDUCE || step->root == group->place); k++) {
        ((float *)step->to)[k] = step->kind == BPS_STEP_BROADCAST ? root->brought[i][k] : combine(group, i, k);
    }
}

/* True if all were given the same as this one. */
static bool agree(const struct bps_group *group)
{
    const struct batch *batch = group->batch[group->ended];
    bool same = true;
    for (uint32_t place = 0; place < group->size && same; place++) {
        const struct batch *other = group->room->member[place]->batch[group->ended];
        same = other->n == batch->n;
        for (uint32_t i = 0; i < batch->n && same; i++) {
            same = is_same(&batch->step[i], &other->step[i]);
        }
    }
    return same;
}

static void end(struct bps_group *group, bps_status status)
{
    const struct batch *batch = group->batch[group->ended];
    if (status == BPS_OK && !agree(group)) {
        sim_blame("the devices of a group were given different steps");
        status = BPS_ERR_FAILED;
    }
    for (uint32_t i = 0; i < batch->n && status == BPS_OK; i++) {
        do_step(group, i);
    }
    group->ended++;
    device_answer(group->device, batch->done, batch->arg, status);
}

/* ---- what a device does of it ---- */

static bool goes_on(struct bps_group *group)
{
    bool all_there = group->room->joined == group->size;
    if (group->on_joined != NULL && (all_there || group->fails || group->aborted)) {
        bps_device_fn fn = group->on_joined;
        group->on_joined = NULL;
        device_answer(group->device, fn, group->arg, group->fails || group->aborted ? BPS_ERR_FAILED : BPS_OK);
    } else if (group->aborted && group->ended < group->given) {
        end(group, BPS_ERR_FAILED);
    } else if (all_there && group->begun == group->ended && group->begun < group->given) {
        begin(group);
    } else if (group->ended < group->begun && all_have_begun(group)) {
        end(group, device_fails(group->device) ? BPS_ERR_FAILED : BPS_OK);
    } else {
        return false;
    }
    return true;
}

bool device_groups_go_on(struct device *device)
{
    struct bps_group *group;
    LIST_FOREACH(group, &device->groups, entry) {
        if (goes_on(group)) {
            return true;
        }
    }
    return false;
}

void device_groups_end(struct device *device)
{
    struct bps_group *group;
    LIST_FOREACH(group, &device->groups, entry) {
        group->aborted |= !group->left;
    }
}

void device_groups_part(struct device *device)
{
    while (!LIST_EMPTY(&device->groups)) {
        struct bps_group *group = LIST_FIRST(&device->groups);
        LIST_REMOVE(group, entry);
        group->device = NULL;
    }
}

/* ---- the operations ---- */

static bps_status group_query(void *instance, char *text, size_t n, struct bps_report *report)
{
    (void)instance;
    (void)report;
    snprintf(text, n, "queues");
    return BPS_OK;
}

static bool group_takes(void *instance, int32_t device, uint32_t size, uint32_t op, uint32_t dtype)
{
    (void)instance;
    (void)device;
    (void)size;
    return dtype == BPS_FLOAT32 && (op == BPS_SUM || op == BPS_MAX || op == BPS_AVERAGE);
}

static bps_status group_identify(void *instance, int32_t device, uint8_t *identity, struct bps_report *report)
{
    const struct device *one = instance;
    const void *process = sim_device_is_shared(one->process) ? NULL : one->process;
    (void)device;
    (void)report;
    memset(identity, 0, BPS_GROUP_IDENTITY_BYTES);
    memcpy(identity, &process, sizeof process);
    return BPS_OK;
}

static bps_status group_name(void *instance, uint8_t *name, struct bps_report *report)
{
    (void)instance;
    (void)report;
    memset(name, 0, BPS_GROUP_NAME_BYTES);
    names++;
    memcpy(name, &names, sizeof names);
    return BPS_OK;
}

static struct room *find_room(const uint8_t *name)
{
    struct room *room;
    LIST_FOREACH(room, &rooms, entry) {
        if (memcmp(room->name, name, sizeof room->name) == 0) {
            return room;
        }
    }
    room = __real_calloc(1, sizeof *room);
    memcpy(room->name, name, sizeof room->name);
    LIST_INSERT_HEAD(&rooms, room, entry);
    return room;
}

static bps_status group_join(void *instance, const struct bps_group_seat *seat, struct bps_group **out,
                             struct bps_report *report)
{
    struct device *device = instance;
    struct room *room = find_room(seat->name);
    if (sim_device_joins_not(device->process) && sim_chance(50)) {
        snprintf(report->text, sizeof report->text, "the device was not to join");
        return BPS_ERR_FAILED;
    }
    struct bps_group *group = __real_calloc(1, sizeof *group);
    *group = (struct bps_group){.device = device,
                                .room = room,
                                .place = seat->place,
                                .size = seat->size,
                                .on_joined = seat->joined,
                                .arg = seat->arg,
                                .fails = sim_device_joins_not(device->process)};
    if (room->member[seat->place] != NULL) {
        sim_blame("two devices have the same place in a group");
    }
    room->member[seat->place] = group;
    room->joined++;
    LIST_INSERT_HEAD(&device->groups, group, entry);
    wake_all(room);
    *out = group;
    return BPS_OK;
}

static bps_status group_run(struct bps_group *group, const struct bps_group_step *steps, uint32_t n, bps_device_fn done,
                            void *arg, struct bps_report *report)
{
    if (device_fails(group->device)) {
        snprintf(report->text, sizeof report->text, "the device was to fail");
        return BPS_ERR_FAILED;
    }
    struct batch *batch = __real_calloc(1, sizeof *batch);
    *batch = (struct batch){.n = n, .done = done, .arg = arg};
    memcpy(batch->step, steps, n * sizeof *steps);
    struct batch **more = __real_calloc(group->given + 1, sizeof *more);
    for (uint32_t i = 0; i < group->given; i++) {
        more[i] = group->batch[i];
    }
    free(group->batch);
    group->batch = more;
    group->batch[group->given++] = batch;
    sem_post(&group->device->work);
    return BPS_OK;
}

static void group_leave(struct bps_group *group)
{
    if (group->ended < group->given) {
        sim_blame("a group is left whose batches are not done");
    }
    group->left = true;
}

static void group_abort(struct bps_group *group)
{
    group->aborted = true;
    sem_post(&group->device->work);
}

const struct bps_group_ops device_group_ops = {
    .size = sizeof device_group_ops,
    .query = group_query,
    .takes = group_takes,
    .identify = group_identify,
    .name = group_name,
    .join = group_join,
    .run = group_run,
    .leave = group_leave,
    .abort = group_abort,
};

/* ---- ends ---- */

static void free_group(struct bps_group *group)
{
    for (uint32_t i = 0; group != NULL && i < group->given; i++) {
        for (uint32_t k = 0; k < group->batch[i]->n; k++) {
            free(group->batch[i]->brought[k]);
        }
        free(group->batch[i]);
    }
    if (group != NULL) {
        free(group->batch);
        free(group);
    }
}

void device_groups_reset(void)
{
    while (!LIST_EMPTY(&rooms)) {
        struct room *room = LIST_FIRST(&rooms);
        for (uint32_t i = 0; i < PLACES; i++) {
            free_group(room->member[i]);
        }
        LIST_REMOVE(room, entry);
        free(room);
    }
    names = 0;
}
