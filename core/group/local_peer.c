/* SPDX-License-Identifier: Apache-2.0 */
/* local_peer.c - the others of the group: who leads what, and what is to be sent to whom. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "group/local.h"
#include "shards/shards.h"

bool bps_local_has_peers(const struct bps_local *local)
{
    return local != NULL && local->all.sum != NULL;
}

bool bps_local_is_final(const struct bps_local *local)
{
    return bps_local_has_peers(local) && local->final;
}

/* ---- what is summed here, and who leads ---- */

/* All workers of the job, or of a process group, are here. They know it alike, from the book. */
static bool has_all(const struct bps_local *local, const struct bps_process_group *group)
{
    if (group == NULL) {
        return local->final;
    }
    bool all = local->ends && group->n <= local->size;
    for (uint32_t i = 0; i < group->n && all; i++) {
        all = local->group_of[group->rank[i]] == local->config.only;
    }
    return all;
}

bool bps_local_ends(const struct bps_tensor_entry *tensor)
{
    return has_all(tensor->worker->local, tensor->operation.group);
}

/*
 * Blocks, and operations of process groups: where all who take part are here, and everybody has a link to everybody.
 * Else each worker sends its own to the shards.
 */
static bool goes_within_host(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    const struct bps_local *local = tensor->worker->local;
    const struct bps_process_group *group = tensor->operation.group;
    bool alone = (group != NULL && group->n == 1) || bps_is_own_block(tensor, partition);
    return !alone && bps_leaders(local->size) == local->size && bps_local_ends(tensor);
}

bool bps_local_sums(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    const struct bps_local *local = tensor->worker->local;
    if (!bps_local_has_peers(local) || tensor->named.form.keeps || tensor->job.row > 0) {
        return false;
    }
    if (partition >= BPS_BLOCKS || tensor->operation.group != NULL) {
        return goes_within_host(tensor, partition);
    }
    return local->final || (!tensor->named.unnamed && (local->types & BPS_DTYPE_BIT(tensor->job.dtype)) != 0);
}

uint32_t bps_local_divisor(const struct bps_operation *operation)
{
    bps_assert(bps_container(operation, const struct bps_tensor_entry, operation)->worker->local->size > 1);
    const struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    return bps_group_divisor(operation->op, operation->request.dtype, tensor->worker->local->size);
}

/* The rank of the one of all, or of a process group, whose it is: of blocks see node/unnamed.h; messages meet there. */
static uint32_t leading_rank(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    const struct bps_process_group *group = tensor->operation.group;
    uint32_t n = group != NULL ? group->n : tensor->worker->local->size;
    uint32_t number = partition >= BPS_BLOCKS ? partition - BPS_BLOCKS : tensor->id + partition;
    number = tensor->operation.kind == BPS_KIND_MESSAGE ? 1 : number;
    return bps_process_group_rank(group, number % n);
}

struct bps_local_peer *bps_local_leader_of(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    bps_assert(bps_local_has_peers(tensor->worker->local));
    bps_assert(tensor->named.unnamed || partition < tensor->placed.n);
    struct bps_local *local = tensor->worker->local;
    if (partition >= BPS_BLOCKS || tensor->operation.group != NULL) {
        return bps_local_peer_of(local, leading_rank(tensor, partition));
    }
    uint32_t leader = (uint32_t)(((uint64_t)tensor->id + partition) % bps_leaders(local->size));
    return &local->peer[tensor->named.unnamed ? bps_leader_place(local->size, leader)
                                              : tensor->placed.partition[partition].lead];
}

bool bps_local_leads(const struct bps_tensor_entry *tensor, uint32_t partition)
{
    return bps_local_leader_of(tensor, partition)->rank == tensor->worker->job.rank;
}

void bps_local_leader_left(struct bps_task *task)
{
    bps_assert(task->state == BPS_TASK_WAITING);
    char text[80];
    uint32_t rank = bps_local_leader_of(task->tensor, task->partition)->rank;
    snprintf(text, sizeof text, "worker %u has left the job", rank);
    bps_task_done(task, BPS_ERR_LOST, text);
}

/* ---- peers ---- */

struct bps_local_peer *bps_local_peer_of(struct bps_local *local, uint32_t rank)
{
    for (uint32_t place = 0; place < local->size; place++) {
        if (local->peer[place].rank == rank) {
            return &local->peer[place];
        }
    }
    return NULL;
}

bool bps_local_meets(const struct bps_local *local, uint32_t place)
{
    bps_assert(place < local->size);
    return place != local->place && (bps_leads(local->size, place) || bps_leads(local->size, local->place));
}

bool bps_local_gets(const struct bps_task *task)
{
    return task->roles.to == BPS_EVERYBODY || task->roles.to == task->tensor->worker->job.rank;
}

void bps_local_kick(struct bps_local_peer *peer)
{
    if (peer->link != NULL) {
        bps_link_kick(peer->link);
    }
}

void bps_local_push_header(const struct bps_task *task, uint8_t flags, struct bps_header *out)
{
    bool brings = bps_brings(&task->roles, task->tensor->worker->job.rank);
    bps_push_header(task, 0, task->bytes, (uint8_t)(flags | (brings ? 0 : BPS_FLAG_EMPTY)), out);
}

bool bps_local_enqueue(struct bps_local_peer *peer, struct bps_task *task, size_t *place)
{
    bps_assert(task->tensor->worker == peer->local->worker && task->state == BPS_TASK_WAITING);
    struct bps_worker *worker = peer->local->worker;
    if (!bps_heap_push(&peer->pushes, task->tensor->operation.request.priority, worker->sequence++, task, place)) {
        bps_worker_fail(worker, BPS_ERR_NOMEM, "out of memory");
        return false;
    }
    bps_local_kick(peer);
    return true;
}

/* ---- failures, told now or later ---- */

bool bps_local_keep(struct bps_local *local, struct bps_unsent_list *list, const struct bps_header *header,
                    const char *text)
{
    struct bps_unsent *unsent = calloc(1, sizeof *unsent);
    if (unsent == NULL || (unsent->text = strdup(text)) == NULL) {
        free(unsent);
        bps_worker_fail(local->worker, BPS_ERR_NOMEM, "out of memory");
        return false;
    }
    unsent->header = *header;
    STAILQ_INSERT_TAIL(list, unsent, entry);
    return true;
}

void bps_local_forget(struct bps_unsent_list *list)
{
    while (!STAILQ_EMPTY(list)) {
        struct bps_unsent *unsent = STAILQ_FIRST(list);
        STAILQ_REMOVE_HEAD(list, entry);
        free(unsent->text);
        free(unsent);
    }
}

static void send_words(struct bps_local_peer *peer, const struct bps_header *header, const char *text)
{
    if (peer->link != NULL) {
        bps_link_send(peer->link, header, text, strnlen(text, BPS_TEXT_LIMIT));
    }
}

/* Others may have joined, and have begun, while we still wait for the link to one of them. */
void bps_local_tell(struct bps_local_peer *peer, const struct bps_header *header, const char *text)
{
    if (peer->reached) {
        send_words(peer, header, text);
    } else {
        bps_local_keep(peer->local, &peer->words, header, text);
    }
}

void bps_local_tell_waiting(struct bps_local_peer *peer)
{
    const struct bps_unsent *unsent;
    STAILQ_FOREACH(unsent, &peer->words, entry) {
        send_words(peer, &unsent->header, unsent->text);
    }
    bps_local_forget(&peer->words);
}
