/* SPDX-License-Identifier: Apache-2.0 */
/*
 * declare.c - asking the scheduler for ids and placement, many tensors at a time.
 *
 * While one question is on its way, further tensors gather for the next: declaring costs round trips by time,
 * not by number.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/report.h"
#include "base/sized.h"
#include "flow/step.h"

#define BATCH_LIMIT      8192u /* tensors in one message, */
#define MANY_NAMES       10000u
#define PARTITIONS_LIMIT (1u << 20) /* and their partitions: the answer has size and place of each */

/* ---- [core] ---- */

/* Returns how many partitions the tensor has at most. An application may change its form meanwhile. */
static uint32_t put_one(struct bps_worker *worker, struct bps_tensor_entry *tensor, struct bps_writer *w)
{
    bps_put_string(w, tensor->named.name);
    pthread_mutex_lock(&worker->names.lock);
    bps_put_form(w, &tensor->named.form);
    uint64_t least = worker->partition < BPS_SPREAD_BYTES ? worker->partition : BPS_SPREAD_BYTES;
    uint32_t partitions = 2 * bps_partitions(tensor->named.form.bytes, least);
    pthread_mutex_unlock(&worker->names.lock);
    return partitions;
}

void bps_declare_ask(void *arg)
{
    struct bps_worker *worker = arg;
    struct bps_tensor_entry *tensor;
    struct bps_writer w, names;
    uint32_t n = 0, partitions = 0;
    bps_forget_flush(worker);
    if (worker->failure != BPS_OK || !TAILQ_EMPTY(&worker->asked) || TAILQ_EMPTY(&worker->undeclared)) {
        return;
    }
    bps_writer_init(&w);
    bps_writer_init(&names);
    while ((tensor = TAILQ_FIRST(&worker->undeclared)) != NULL && n < BATCH_LIMIT && partitions < PARTITIONS_LIMIT) {
        TAILQ_REMOVE(&worker->undeclared, tensor, entry);
        TAILQ_INSERT_TAIL(&worker->asked, tensor, entry);
        tensor->asked = true;
        partitions += put_one(worker, tensor, &names);
        n++;
    }
    bps_put_u32(&w, n);
    bps_put_bytes(&w, names.data, names.size);
    bps_status status = names.failed ? BPS_ERR_NOMEM : bps_member_send(worker->member, BPS_FRAME_DECLARE, &w);
    bps_writer_fini(&names);
    bps_writer_fini(&w);
    if (status != BPS_OK) {
        bps_worker_fail(worker, status, "could not declare tensors");
    }
}

/* In a job of one worker there is nobody to ask. */
static void declare_alone(struct bps_tensor_entry *tensor)
{
    static const uint32_t any = 1;
    tensor->id = any;
    if (tensor->operation.phase == BPS_PHASE_PENDING) {
        bps_tasks_begin(&tensor->operation);
    }
}

void bps_declare_later(struct bps_tensor_entry *tensor)
{
    struct bps_worker *worker = tensor->worker;
    if (tensor->id != 0 || tensor->declaring) {
        return;
    }
    if (bps_worker_alone(worker)) {
        declare_alone(tensor);
        return;
    }
    tensor->declaring = true;
    TAILQ_INSERT_TAIL(&worker->undeclared, tensor, entry);
    bps_loop_defer(worker->loop, bps_declare_ask, worker);
}

/* Notes a named tensor under its id, so that results find it. */
static bps_status declare_index_tensor(struct bps_worker *worker, struct bps_tensor_entry *tensor)
{
    bps_assert(tensor->id != 0 && tensor->id < BPS_ID_UNNAMED);
    HASH_ADD(by_id, worker->ids, id, sizeof tensor->id, tensor);
    if (tensor->by_id.tbl == NULL) {
        tensor->id = 0;
        return BPS_ERR_NOMEM;
    }
    worker->last_id = tensor->id > worker->last_id ? tensor->id : worker->last_id;
    return BPS_OK;
}

bps_status bps_placed_read(const struct bps_worker *worker, struct bps_reader *r, struct bps_placed *out)
{
    const struct bps_book *book = &worker->view->book;
    uint32_t group = bps_book_group_size(book, worker->job.rank), view = bps_get_u32(r), move = bps_get_u32(r);
    uint32_t n = bps_get_u32(r);
    bool valid = !r->bad && n > 0 && (size_t)(r->end - r->at) / 8 >= n && view <= book->view;
    *out = (struct bps_placed){
        .view = view, .move = move, .n = n, .partition = valid ? calloc(n, sizeof *out->partition) : NULL};
    if (out->partition == NULL) {
        return valid ? BPS_ERR_NOMEM : BPS_ERR_PROTOCOL;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct bps_partition *p = &out->partition[i];
        p->bytes = bps_get_u32(r);
        p->shard = bps_get_u16(r);
        p->lead = bps_get_u16(r);
        out->bytes += p->bytes;
        valid &= p->shard < book->shards && bps_leads(group, p->lead);
    }
    for (uint32_t i = 0; i < n; i++) {
        valid &= bps_is_partition(out->bytes, worker->partition, i, out->partition[i].bytes);
    }
    if (!valid) {
        free(out->partition);
    }
    return valid ? BPS_OK : BPS_ERR_PROTOCOL;
}

/* Where it is, and where it is going to be. */
static bps_status read_places(struct bps_tensor_entry *tensor, struct bps_reader *reply)
{
    struct bps_placed placed;
    bps_status status = bps_placed_read(tensor->worker, reply, &placed);
    if (status != BPS_OK) {
        return status;
    }
    uint64_t bytes = placed.bytes;
    bps_tensor_place(tensor, &placed);
    if (bps_get_u8(reply) != 0) {
        uint32_t from = bps_get_u32(reply);
        status = bps_placed_read(tensor->worker, reply, &placed);
        if (status != BPS_OK) {
            return status;
        }
        bytes = placed.bytes == bytes ? bytes : UINT64_MAX;
        bps_tensor_place_from(tensor, &placed, from);
    }
    return bytes == tensor->job.bytes && !reply->bad ? BPS_OK : BPS_ERR_PROTOCOL;
}

bps_status bps_declare_read(struct bps_tensor_entry *tensor, struct bps_reader *reply)
{
    struct bps_worker *worker = tensor->worker;
    uint32_t id = bps_get_u32(reply);
    tensor->round = tensor->first_round = tensor->next_round = bps_get_u32(reply);
    bps_status status = bps_get_form(reply, worker->partition, &tensor->job);
    uint32_t slice = bps_get_u32(reply);
    if (status != BPS_OK) {
        return status;
    }
    if (reply->bad || id == 0 || id >= BPS_ID_UNNAMED || !bps_is_slice(slice, UINT64_MAX)) {
        return BPS_ERR_PROTOCOL;
    }
    status = read_places(tensor, reply);
    if (status != BPS_OK) {
        return status;
    }
    tensor->slice = slice < worker->slice ? slice : 0;
    worker->declared += tensor->job.bytes;
    tensor->id = id;
    status = declare_index_tensor(worker, tensor);
    if (status == BPS_OK && worker->hooks != NULL) {
        worker->hooks->declared(worker);
    }
    return status;
}

/* Names with the number of a step in them are used once and kept for ever: says so, once. */
static void look_at_names(struct bps_worker *worker)
{
    uint32_t names = HASH_CNT(by_id, worker->ids), once = 0, again = 0;
    if (names < worker->names_looked_at || names < MANY_NAMES) {
        return;
    }
    worker->names_looked_at = 2 * names;
    for (const struct bps_tensor_entry *tensor = worker->ids; tensor != NULL; tensor = tensor->by_id.next) {
        uint32_t rounds = tensor->round - tensor->first_round;
        once += rounds == 1;
        again += rounds > 1;
    }
    if (once > names / 2 && (again > 0 || names >= 10 * MANY_NAMES)) {
        bps_warn("worker",
                 "%u tensors have names in this job, and most were used only once; each name takes about 1.5 kB on "
                 "every worker until the job ends, so use the same name in each step, or none",
                 names);
        worker->names_looked_at = UINT32_MAX;
    }
}

/* Whether nobody can declare it in this job any more, as a worker is lost that would take part. */
static bool read_refusal(struct bps_reader *reply, char *why, size_t room)
{
    struct bps_reader r = *reply;
    if (bps_get_u32(&r) != 0 || r.bad) {
        return false;
    }
    bps_get_string(&r, why, room);
    *reply = r;
    return true;
}

/* `why` it is refused, or NULL. */
static void declare_take(struct bps_tensor_entry *tensor, const char *why)
{
    TAILQ_REMOVE(&tensor->worker->asked, tensor, entry);
    tensor->declaring = tensor->asked = false;
    if (tensor->forgotten) {
        bps_forget_declared(tensor);
    } else if (tensor->operation.phase == BPS_PHASE_PENDING && why != NULL) {
        bps_operation_error(&tensor->operation, BPS_ERR_MEMBERSHIP, why);
        bps_operation_end(&tensor->operation);
    } else if (tensor->operation.phase == BPS_PHASE_PENDING) {
        bps_tasks_begin(&tensor->operation);
    }
}

bps_status bps_declare_reply(void *owner, struct bps_reader *reply)
{
    struct bps_worker *worker = owner;
    char why[BPS_TEXT_LIMIT + 1];
    uint32_t n = bps_get_u32(reply);
    for (uint32_t i = 0; i < n; i++) {
        struct bps_tensor_entry *tensor = TAILQ_FIRST(&worker->asked);
        if (tensor == NULL) {
            return BPS_ERR_PROTOCOL;
        }
        bool refused = read_refusal(reply, why, sizeof why);
        bps_status status = refused ? BPS_OK : bps_declare_read(tensor, reply);
        if (status != BPS_OK || reply->bad) {
            return status != BPS_OK ? status : BPS_ERR_PROTOCOL;
        }
        declare_take(tensor, refused ? why : NULL);
    }
    if (!bps_reader_done(reply) || !TAILQ_EMPTY(&worker->asked)) {
        return BPS_ERR_PROTOCOL;
    }
    look_at_names(worker);
    bps_declare_ask(worker);
    return BPS_OK;
}

/* ---- [app] ---- */

static void declare_arrive(struct bps_post *post)
{
    struct bps_tensor_entry *tensor = bps_container(post, struct bps_tensor_entry, declare_post);
    atomic_store(&tensor->declare_posted, false);
    if (tensor->worker->failure == BPS_OK) {
        bps_declare_later(tensor);
    }
}

/* The lock is held: nobody forgets a tensor between its being found and its being declared. */
static bps_status declare_one(struct bps_worker *worker, const struct bps_declaration *d, bps_tensor *out,
                              struct bps_report *report)
{
    if (d->name == NULL) {
        return bps_fail(report, BPS_ERR_INVALID, "the name of a declaration is NULL, expected a string");
    }
    if (bps_names_check(d->name, report) != BPS_OK) {
        return BPS_ERR_INVALID;
    }
    size_t size = bps_dtype_size(d->dtype);
    struct bps_report why = {""};
    if (d->dtype != BPS_DTYPES &&
        bps_names_check_form(&worker->names, d->dtype, d->count, d->ndim, d->shape, &why) != BPS_OK) {
        BPS_REPORT(report, "tensor '%.200s': %.800s", d->name, why.text);
        return BPS_ERR_INVALID;
    }
    struct bps_tensor_entry *tensor = bps_tensor_named(worker, d->name, report);
    if (tensor == NULL) {
        return BPS_ERR_NOMEM;
    }
    bps_status status = bps_named_choose_mode(&tensor->named, d->mode, report);
    if (status == BPS_OK && d->coding != NULL) {
        status = bps_named_choose(&tensor->named, d->coding, report);
    }
    if (status != BPS_OK) {
        return status;
    }
    if (size > 0) {
        struct bps_form form = {.bytes = d->count * size,
                                .dtype = d->dtype,
                                .ndim = d->shape != NULL ? d->ndim : 0,
                                .shape = (int64_t *)(uintptr_t)d->shape};
        status = bps_named_fix(&tensor->named, &form, report);
        if (status != BPS_OK) {
            return status;
        }
        if (!atomic_exchange(&tensor->declare_posted, true)) {
            tensor->declare_post.fn = declare_arrive;
            bps_loop_post(worker->loop, &tensor->declare_post);
        }
    }
    *out = tensor->named.slot;
    return BPS_OK;
}

bps_status bps_worker_declare(struct bps_worker *worker, const struct bps_declaration *declarations, size_t n,
                              bps_tensor *out, struct bps_report *report)
{
    size_t step = n > 0 ? declarations->size : 0; /* of the version of whoever has made the array */
    for (size_t i = 0; i < n; i++) {
        struct bps_declaration own;
        bps_tensor slot;
        bps_status status = BPS_SIZED(bps_declaration, (const char *)declarations + i * step, &own, report);
        if (status != BPS_OK) {
            return status;
        }
        pthread_mutex_lock(&worker->names.lock);
        status = atomic_load(&worker->closing) ? bps_fail(report, BPS_ERR_STATE, "the worker is shutting down")
                                               : declare_one(worker, &own, &slot, report);
        pthread_mutex_unlock(&worker->names.lock);
        if (status != BPS_OK) {
            return status;
        }
        if (out != NULL) {
            out[i] = slot;
        }
    }
    return BPS_OK;
}
