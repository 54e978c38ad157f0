/* SPDX-License-Identifier: Apache-2.0 */
/* process_group.c - see process_group.h. */
#include "flow/process_group.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/report.h"
#include "flow/flow.h"
#include "wire/message.h"

/* The id of a message has its tag above its number. */
#define TAG_SHIFT   20u
#define TAG_NUMBERS ((1u << TAG_SHIFT) - 1)

_Static_assert(BPS_TAGS - 1 <= BPS_ID_NUMBER >> TAG_SHIFT, "tags fit into ids");

static bool is_pair_id(uint32_t id)
{
    return id >= BPS_GROUP_PAIRS;
}

void bps_process_groups_init(struct bps_process_groups *groups)
{
    *groups = (struct bps_process_groups){.made = 0};
    pthread_mutex_init(&groups->lock, NULL);
}

static void group_free(struct bps_process_group *group)
{
    free(group->rank);
    free(group->calls);
    free(group->announced);
    free(group);
}

void bps_process_groups_fini(struct bps_process_groups *groups)
{
    struct bps_process_group *group, *next;
    HASH_ITER(hh, groups->by_id, group, next) {
        HASH_DEL(groups->by_id, group);
        group_free(group);
    }
    pthread_mutex_destroy(&groups->lock);
}

bool bps_process_groups_any(struct bps_process_groups *groups)
{
    pthread_mutex_lock(&groups->lock);
    bool any = groups->by_id != NULL;
    pthread_mutex_unlock(&groups->lock);
    return any;
}

/* ---- making ---- */

static bps_status check_group_ranks(const struct bps_worker *worker, const uint32_t *rank, uint32_t n,
                                    struct bps_report *report)
{
    uint32_t size = worker->job.size;
    if (n == 0 || n > size || rank == NULL) {
        return bps_fail(report, BPS_ERR_INVALID, "a process group has %u workers, expected 1 to %u", n, size);
    }
    bool *seen = calloc(size, sizeof *seen);
    bps_status status = seen != NULL ? BPS_OK : bps_fail(report, BPS_ERR_NOMEM, "out of memory");
    for (uint32_t i = 0; i < n && status == BPS_OK; i++) {
        if (rank[i] >= size || seen[rank[i]]) {
            status = bps_fail(report, BPS_ERR_INVALID, "rank %u of a process group is %s", rank[i],
                              rank[i] >= size ? "not a worker of this job" : "listed twice");
        } else {
            seen[rank[i]] = true;
        }
    }
    free(seen);
    return status;
}

/* Adds a group with one user. The lock is held. NULL: no memory. */
static struct bps_process_group *group_add(struct bps_worker *worker, uint32_t id, const uint32_t *rank, uint32_t n)
{
    struct bps_process_groups *groups = &worker->process_groups;
    struct bps_process_group *group = calloc(1, sizeof *group);
    if (group == NULL) {
        return NULL;
    }
    *group = (struct bps_process_group){.worker = worker, .id = id, .n = n, .own = UINT32_MAX};
    atomic_init(&group->users, 1);
    group->rank = calloc(n, sizeof *group->rank);
    group->calls = calloc(is_pair_id(id) ? BPS_TAGS : 1, sizeof *group->calls);
    if (group->rank != NULL && group->calls != NULL) {
        HASH_ADD(hh, groups->by_id, id, sizeof group->id, group);
    }
    if (group->hh.tbl == NULL) {
        group_free(group);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        group->rank[i] = rank[i];
        group->own = rank[i] == worker->job.rank ? i : group->own;
    }
    return group;
}

bps_status bps_process_group_new(struct bps_worker *worker, const uint32_t *rank, uint32_t n,
                                 struct bps_process_group **out, struct bps_report *report)
{
    struct bps_process_groups *groups = &worker->process_groups;
    bps_status status = check_group_ranks(worker, rank, n, report);
    pthread_mutex_lock(&groups->lock);
    uint32_t id = ++groups->made;
    if (status == BPS_OK && id >= BPS_GROUP_OPENED) {
        status =
            bps_fail(report, BPS_ERR_UNSUPPORTED, "this job has made %u process groups, which is the maximum", id - 1);
    }
    if (status == BPS_OK) {
        *out = group_add(worker, id, rank, n);
        status = *out != NULL ? BPS_OK : bps_fail(report, BPS_ERR_NOMEM, "out of memory");
    }
    pthread_mutex_unlock(&groups->lock);
    return status;
}

bps_status bps_process_group_open(struct bps_worker *worker, uint32_t number, const uint32_t *rank, uint32_t n,
                                  struct bps_process_group **out, struct bps_report *report)
{
    struct bps_process_groups *groups = &worker->process_groups;
    uint32_t id = BPS_GROUP_OPENED | number;
    bps_status status = check_group_ranks(worker, rank, n, report);
    if (status == BPS_OK && number >= BPS_GROUP_NUMBERS) {
        status = bps_fail(report, BPS_ERR_INVALID, "process group number %u is out of range; expected 0..%u", number,
                          BPS_GROUP_NUMBERS - 1);
    }
    pthread_mutex_lock(&groups->lock);
    struct bps_process_group *other = NULL;
    HASH_FIND(hh, groups->by_id, &id, sizeof id, other);
    if (status == BPS_OK && other != NULL) {
        status = bps_fail(report, BPS_ERR_INVALID, "process group %u already exists", number);
    }
    if (status == BPS_OK) {
        *out = group_add(worker, id, rank, n);
        status = *out != NULL ? BPS_OK : bps_fail(report, BPS_ERR_NOMEM, "out of memory");
    }
    pthread_mutex_unlock(&groups->lock);
    return status;
}

/* ---- using ---- */

/* The lock is held. NULL: there is none, or its application has freed it. */
static struct bps_process_group *group_known(struct bps_process_groups *groups, uint32_t id)
{
    struct bps_process_group *group;
    HASH_FIND(hh, groups->by_id, &id, sizeof id, group);
    return group != NULL && !group->freed ? group : NULL;
}

bps_status bps_process_group_use(struct bps_worker *worker, uint32_t id, struct bps_process_group **out,
                                 struct bps_report *report)
{
    struct bps_process_groups *groups = &worker->process_groups;
    *out = NULL;
    if (id == 0) {
        return BPS_OK;
    }
    pthread_mutex_lock(&groups->lock);
    *out = is_pair_id(id) ? NULL : group_known(groups, id);
    if (*out != NULL) {
        bps_process_group_again(*out);
    }
    pthread_mutex_unlock(&groups->lock);
    if (*out == NULL) {
        return bps_fail(report, BPS_ERR_INVALID, "%u is not a process group of this job, or it was freed", id);
    }
    return BPS_OK;
}

bps_status bps_process_group_pair(struct bps_worker *worker, uint32_t from, uint32_t to, struct bps_process_group **out,
                                  struct bps_report *report)
{
    struct bps_process_groups *groups = &worker->process_groups;
    const uint32_t rank[] = {from, to}, size = worker->job.size;
    bps_assert(from < size && to < size);
    if (from == to) {
        return bps_fail(report, BPS_ERR_INVALID, "worker %u would send to itself", from);
    }
    if (size > BPS_PAIRS_RANKS) {
        return bps_fail(report, BPS_ERR_UNSUPPORTED,
                        "this job has %u workers; messages between workers are limited to jobs of at most %u", size,
                        BPS_PAIRS_RANKS);
    }
    uint32_t id = BPS_GROUP_PAIRS + from * size + to;
    pthread_mutex_lock(&groups->lock);
    *out = group_known(groups, id);
    *out = *out != NULL ? *out : group_add(worker, id, rank, 2); /* stays: its first user is never gone */
    if (*out != NULL) {
        bps_process_group_again(*out);
    }
    pthread_mutex_unlock(&groups->lock);
    return *out != NULL ? BPS_OK : bps_fail(report, BPS_ERR_NOMEM, "out of memory");
}

struct bps_tensor_entry *bps_process_group_tensor(struct bps_process_group *group, uint32_t tag)
{
    struct bps_worker *worker = group->worker;
    char name[96];
    bool pair = is_pair_id(group->id);
    pthread_mutex_lock(&worker->process_groups.lock);
    uint32_t number = group->calls[tag];
    if (pair) {
        snprintf(name, sizeof name, "message.%u (from worker %u to worker %u, tag %u)", number, group->rank[0],
                 group->rank[1], tag);
    } else {
        snprintf(name, sizeof name, "unnamed.%u (call %u in process group %u)", number, number + 1, group->id);
    }
    struct bps_tensor_entry *tensor = (struct bps_tensor_entry *)bps_names_call(&worker->names, name);
    group->calls[tag] += tensor != NULL;
    pthread_mutex_unlock(&worker->process_groups.lock);
    if (tensor != NULL) {
        uint32_t own = pair ? tag << TAG_SHIFT | (number & TAG_NUMBERS) : number & BPS_ID_NUMBER;
        tensor->id = BPS_ID_UNNAMED | own;
    }
    return tensor;
}

struct bps_tensor_entry *bps_process_group_find(struct bps_worker *worker, uint32_t group, uint32_t id)
{
    struct bps_process_groups *groups = &worker->process_groups;
    struct bps_process_group *of;
    struct bps_tensor_entry *tensor = NULL;
    pthread_mutex_lock(&groups->lock);
    HASH_FIND(hh, groups->by_id, &group, sizeof group, of);
    pthread_mutex_unlock(&groups->lock);
    if (of != NULL) { /* only this thread ends it */
        HASH_FIND(by_id, of->ids, &id, sizeof id, tensor);
    }
    return tensor;
}

void bps_process_group_write(const struct bps_process_group *group, struct bps_writer *out)
{
    bps_writer_init(out);
    bps_put_u32(out, group->n);
    for (uint32_t i = 0; i < group->n; i++) {
        bps_put_u32(out, group->rank[i]);
    }
}

/* ---- the end ---- */

static void finish_group(struct bps_post *post)
{
    struct bps_process_group *group = (struct bps_process_group *)post;
    struct bps_process_groups *groups = &group->worker->process_groups;
    bps_assert(group->ids == NULL);
    pthread_mutex_lock(&groups->lock);
    HASH_DEL(groups->by_id, group);
    pthread_mutex_unlock(&groups->lock);
    for (uint32_t i = 0; i < BPS_TOLD; i++) {
        if (group->take_back[i] != NULL) {
            group->take_back[i](group);
        }
    }
    group_free(group);
}

void bps_process_group_end(struct bps_process_group *group)
{
    group->post.fn = finish_group;
    bps_loop_post(group->worker->loop, &group->post);
}

bps_status bps_process_group_free(struct bps_worker *worker, uint32_t id, struct bps_report *report)
{
    struct bps_process_groups *groups = &worker->process_groups;
    pthread_mutex_lock(&groups->lock);
    struct bps_process_group *group = is_pair_id(id) ? NULL : group_known(groups, id);
    if (group != NULL) {
        group->freed = true;
    }
    pthread_mutex_unlock(&groups->lock);
    if (group == NULL) {
        return bps_fail(report, BPS_ERR_INVALID, "%u is not a process group of this job, or it was freed", id);
    }
    bps_process_group_leave(group);
    return BPS_OK;
}
