/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forget.c - tensors that this process does not push any more: their names, memory and ids go to others.
 *
 * A tensor in flight is forgotten when it is no longer. The scheduler learns the number of the next round, with
 * which the id goes on when all workers have forgotten it.
 */
#include <string.h>

#include "flow/flow.h"

#include "base/array.h"
#include "base/assert.h"

#define ENTRY_BYTES 8u /* of a FORGET message: id and round */

/* ---- [core] ---- */

/* As a new one, before it can be taken again. */
static void recycle(struct bps_tensor_entry *tensor)
{
    bps_assert(!tensor->asked && tensor->operation.phase == BPS_PHASE_OFF);
    bps_tensor_strip(tensor);
    bps_named_strip(&tensor->named);
    bps_form_fini(&tensor->job);
    atomic_store(&tensor->unwanted, false);
    tensor->forgotten = false;
    atomic_store(&tensor->operation.state, tensor->operation.use | BPS_OP_FREE);
    bps_names_put(&tensor->named);
}

void bps_forget_flush(void *arg)
{
    struct bps_worker *worker = arg;
    struct bps_writer w;
    bool nothing = worker->forgotten.size == 0 && !worker->forgotten.failed;
    if (nothing || worker->failure != BPS_OK || bps_member_is_away(worker->member)) {
        return;
    }
    bps_writer_init(&w);
    bps_put_u32(&w, (uint32_t)(worker->forgotten.size / ENTRY_BYTES));
    bps_put_bytes(&w, worker->forgotten.data, worker->forgotten.size);
    if (w.failed || worker->forgotten.failed || bps_member_send(worker->member, BPS_FRAME_FORGET, &w) != BPS_OK) {
        bps_worker_fail(worker, BPS_ERR_NOMEM, "out of memory to forget tensors");
    }
    bps_writer_fini(&w);
    bps_writer_fini(&worker->forgotten);
}

/* The scheduler is going to be told; and another one, which takes its place, what was told last of each id. */
static void note_told(struct bps_worker *worker, uint32_t id, uint32_t round)
{
    uint32_t n = worker->told.n;
    if (id >= n && !bps_array_reserve(worker->told.round, worker->told.room, (size_t)id + 1)) {
        worker->forgotten.failed = true;
        return;
    }
    for (; n <= id; n++) {
        worker->told.round[n] = 0;
    }
    worker->told.n = n;
    worker->told.round[id] = round;
}

void bps_forget_declared(struct bps_tensor_entry *tensor)
{
    struct bps_worker *worker = tensor->worker;
    if (tensor->id == 0) { /* it was refused */
        recycle(tensor);
        return;
    }
    if (worker->forgotten.size == 0) {
        bps_loop_defer(worker->loop, bps_forget_flush, worker);
    }
    bps_put_u32(&worker->forgotten, tensor->id);
    bps_put_u32(&worker->forgotten, tensor->round);
    note_told(worker, tensor->id, tensor->round);
    HASH_DELETE(by_id, worker->ids, tensor);
    recycle(tensor);
}

static void forget_arrive(struct bps_post *post)
{
    struct bps_operation *operation = (struct bps_operation *)post;
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    struct bps_worker *worker = tensor->worker;
    if (tensor->asked && worker->failure == BPS_OK) {
        tensor->forgotten = true; /* its id is on the way */
        return;
    }
    if (tensor->declaring && !tensor->asked) {
        tensor->declaring = false;
        TAILQ_REMOVE(&worker->undeclared, tensor, entry);
    }
    if (tensor->id != 0 && !bps_worker_alone(worker)) {
        bps_forget_declared(tensor);
    } else if (!tensor->asked) {
        recycle(tensor);
    }
}

/* ---- [app] ---- */

/*
 * The lock is held: the core thread knows of this before it knows what is declared under the name next. Of a tensor
 * in flight bps_forget_unwanted() will be called.
 */
static void do_forget(struct bps_tensor_entry *tensor)
{
    struct bps_worker *worker = tensor->worker;
    if (bps_operation_claim(&tensor->operation)) {
        bps_names_forget(&tensor->named);
        tensor->operation.post.fn = forget_arrive;
        bps_loop_post(worker->loop, &tensor->operation.post);
    }
}

void bps_worker_forget(struct bps_worker *worker, const char *name)
{
    if (worker->conf->server.backups > 0) {
        return; /* who is late may not have heard of it yet, and is to begin with its first round */
    }
    pthread_mutex_lock(&worker->names.lock);
    struct bps_tensor_entry *tensor = bps_tensor_known(worker, name);
    if (tensor != NULL) {
        atomic_store(&tensor->unwanted, true);
        do_forget(tensor);
    }
    pthread_mutex_unlock(&worker->names.lock);
}

void bps_forget_unwanted(struct bps_tensor_entry *tensor)
{
    pthread_mutex_lock(&tensor->named.names->lock);
    if (atomic_load(&tensor->unwanted)) { /* else it was forgotten meanwhile */
        do_forget(tensor);
    }
    pthread_mutex_unlock(&tensor->named.names->lock);
}
