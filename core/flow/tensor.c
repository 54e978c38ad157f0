/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.c - the table of this process's tensors: by name, by slot, and
 * the unnamed ones, used again and again.
 */
#include <stdlib.h>
#include <string.h>

#include "flow/step.h"

#include "base/assert.h"

bps_status bps_table_init(struct bps_tensor_table *table)
{
    memset(table, 0, sizeof *table);
    TAILQ_INIT(&table->unused);
    atomic_store(&table->count, 1); /* slot 0 is no tensor */
    return pthread_mutex_init(&table->lock, NULL) == 0 ? BPS_OK : BPS_ERR_NOMEM;
}

static void tensor_free_here(struct bps_tensor_entry *tensor)
{
    bps_tensor_strip(tensor);
    tensor->worker->memory_ops->release(tensor->worker, &tensor->operation.mark);
    free(tensor->operation.text);
    bps_form_fini(&tensor->form);
    bps_form_fini(&tensor->job);
    free(tensor->saved);
    free(tensor->words);
    free(tensor->name);
    free(tensor);
}

void bps_table_fini(struct bps_tensor_table *table)
{
    uint32_t count = atomic_load(&table->count);
    HASH_CLEAR(by_name, table->names);
    for (uint32_t slot = 1; slot < count; slot++) {
        tensor_free_here(table->chunk[slot / BPS_CHUNK_SLOTS][slot % BPS_CHUNK_SLOTS]);
    }
    for (uint32_t i = 0; i < BPS_CHUNKS_LIMIT; i++) {
        free(table->chunk[i]);
    }
    pthread_mutex_destroy(&table->lock);
}

/* Adds a tensor to the table; the lock is held. */
static struct bps_tensor_entry *tensor_add(struct bps_worker *worker, const char *name)
{
    struct bps_tensor_table *table = &worker->table;
    uint32_t slot = atomic_load_explicit(&table->count, memory_order_relaxed);
    struct bps_tensor_entry **chunk;
    if (slot / BPS_CHUNK_SLOTS >= BPS_CHUNKS_LIMIT) {
        return NULL;
    }
    chunk = table->chunk[slot / BPS_CHUNK_SLOTS];
    if (chunk == NULL) {
        chunk = table->chunk[slot / BPS_CHUNK_SLOTS] = calloc(BPS_CHUNK_SLOTS, sizeof(struct bps_tensor_entry *));
    }
    struct bps_tensor_entry *tensor = chunk != NULL ? calloc(1, sizeof *tensor) : NULL;
    if (tensor == NULL) {
        return NULL;
    }
    tensor->worker = worker;
    tensor->slot = slot;
    tensor->form.dtype = tensor->job.dtype = BPS_DTYPES;
    tensor->path_op = BPS_WIRE_OPS;
    tensor->name = strdup(name);
    if (tensor->name == NULL) {
        free(tensor);
        return NULL;
    }
    chunk[slot % BPS_CHUNK_SLOTS] = tensor;
    atomic_store_explicit(&table->count, slot + 1, memory_order_release); /* publishes the slot */
    return tensor;
}

/* A tensor of this name that is in no use: one that was put back, or a new one. The lock is held. */
void bps_tensor_replace_state(struct bps_tensor_entry *tensor, void *saved, size_t bytes)
{
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        bps_feedback_fini(&tensor->task[i].feedback);
    }
    free(tensor->saved);
    tensor->saved = saved;
    tensor->saved_bytes = bytes;
}

static struct bps_tensor_entry *tensor_take(struct bps_worker *worker, const char *name)
{
    struct bps_tensor_table *table = &worker->table;
    struct bps_tensor_entry *tensor = TAILQ_FIRST(&table->unused);
    if (tensor == NULL) {
        return tensor_add(worker, name);
    }
    char *own = strdup(name);
    if (own == NULL) {
        return NULL;
    }
    TAILQ_REMOVE(&table->unused, tensor, entry);
    free(tensor->name);
    tensor->name = own;
    tensor->id = tensor->round = 0;
    tensor->coding = tensor->choice = NULL;
    bps_form_fini(&tensor->form);
    free(tensor->words);
    tensor->words = NULL;
    bps_tensor_replace_state(tensor, NULL, 0);
    tensor->renamed = true;
    return tensor;
}

struct bps_tensor_entry *bps_tensor_of(const struct bps_worker *worker, uint32_t id)
{
    struct bps_tensor_entry *tensor;
    HASH_FIND(by_id, worker->ids, &id, sizeof id, tensor);
    return tensor;
}

void bps_tensor_put(struct bps_tensor_entry *tensor)
{
    struct bps_tensor_table *table = &tensor->worker->table;
    pthread_mutex_lock(&table->lock);
    TAILQ_INSERT_HEAD(&table->unused, tensor, entry);
    pthread_mutex_unlock(&table->lock);
}

bps_status bps_tensor_check_name(const char *name, struct bps_report *report)
{
    size_t bytes = strlen(name);
    if (bytes == 0 || bytes > BPS_NAME_LIMIT) {
        BPS_REPORT(report, "the name '%.60s%s' of a tensor has %zu bytes, expected 1 to %u", name,
                   bytes > 60 ? "..." : "", bytes, BPS_NAME_LIMIT);
        return BPS_ERR_INVALID;
    }
    return BPS_OK;
}

struct bps_tensor_entry *bps_tensor_named(struct bps_worker *worker, const char *name, struct bps_report *report)
{
    struct bps_tensor_table *table = &worker->table;
    struct bps_tensor_entry *tensor;
    HASH_FIND(by_name, table->names, name, strlen(name), tensor);
    if (tensor == NULL) {
        tensor = tensor_take(worker, name);
        if (tensor == NULL) {
            BPS_REPORT(report, "there is no memory for another tensor, or this process has %u of them",
                       BPS_CHUNKS_LIMIT * BPS_CHUNK_SLOTS - 1);
            return NULL;
        }
        tensor->unnamed = false;
        HASH_ADD_KEYPTR(by_name, table->names, tensor->name, strlen(tensor->name), tensor);
        if (tensor->by_name.tbl == NULL) {
            TAILQ_INSERT_HEAD(&table->unused, tensor, entry);
            BPS_REPORT(report, "out of memory");
            return NULL;
        }
    }
    return tensor;
}

struct bps_tensor_entry *bps_tensor_unnamed(struct bps_worker *worker, bool barrier)
{
    struct bps_tensor_table *table = &worker->table;
    char name[64];
    pthread_mutex_lock(&table->lock);
    uint32_t number = barrier ? table->barrier_count : table->unnamed_count;
    const char *form = barrier ? "barrier.%u (call %u of the barrier)" : "unnamed.%u (call %u without a name)";
    snprintf(name, sizeof name, form, number, number + 1);
    struct bps_tensor_entry *tensor = tensor_take(worker, name);
    if (tensor != NULL) {
        tensor->unnamed = true;
        tensor->id = (barrier ? BPS_ID_BARRIER : BPS_ID_UNNAMED) | (number & BPS_ID_NUMBER);
        *(barrier ? &table->barrier_count : &table->unnamed_count) = number + 1;
    }
    pthread_mutex_unlock(&table->lock);
    return tensor;
}

struct bps_tensor_entry *bps_tensor_at(struct bps_worker *worker, bps_tensor slot)
{
    struct bps_tensor_table *table = &worker->table;
    if (slot == 0 || slot >= atomic_load_explicit(&table->count, memory_order_acquire)) {
        return NULL;
    }
    return table->chunk[slot / BPS_CHUNK_SLOTS][slot % BPS_CHUNK_SLOTS];
}

/* Whether a shape has so many elements. */
static bool has_elements(uint32_t ndim, const int64_t *shape, uint64_t count)
{
    uint64_t product = 1;
    bool empty = false, valid = true;
    for (uint32_t i = 0; i < ndim; i++) {
        empty = empty || shape[i] == 0;
        valid = valid && shape[i] >= 0;
    }
    for (uint32_t i = 0; i < ndim && valid && !empty; i++) {
        valid = !__builtin_mul_overflow(product, (uint64_t)shape[i], &product);
    }
    return valid && (empty ? count == 0 : product == count);
}

bps_status bps_tensor_check(const struct bps_worker *worker, uint32_t dtype, uint64_t count, uint32_t ndim,
                            const int64_t *shape, struct bps_report *report)
{
    size_t size = bps_dtype_size(dtype);
    if (size == 0) {
        BPS_REPORT(report, "%u is not a data type", dtype);
        return BPS_ERR_INVALID;
    }
    if (count > BPS_TENSOR_LIMIT / size || !bps_is_tensor(count * size, worker->partition)) {
        BPS_REPORT(report,
                   "%lu %s are too large: a tensor has at most %u partitions, and %lu bytes; raise "
                   "worker.partition",
                   count, bps_dtype_name(dtype), BPS_PARTITIONS_LIMIT, (uint64_t)BPS_TENSOR_LIMIT);
        return BPS_ERR_INVALID;
    }
    if (shape != NULL && (ndim > BPS_DIMENSIONS || !has_elements(ndim, shape, count))) {
        BPS_REPORT(report, "a shape of %u dimensions does not have %lu elements, or more than %u dimensions", ndim,
                   count, BPS_DIMENSIONS);
        return BPS_ERR_INVALID;
    }
    return BPS_OK;
}

/* How a tensor of this form is coded. The lock is held. */
static struct bps_coding *tensor_coding_of(const struct bps_tensor_entry *tensor, const struct bps_form *form)
{
    const struct bps_tensor_info info = {
        .name = tensor->name,
        .dtype = form->dtype,
        .count = form->bytes / bps_dtype_size(form->dtype),
        .partitions = bps_partitions(form->bytes, tensor->worker->partition),
    };
    if (tensor->words == NULL) {
        return bps_graph_coding(tensor->worker->graph, &info);
    }
    return tensor->choice != NULL && bps_coding_takes(tensor->choice, form->dtype) ? tensor->choice : NULL;
}

static const char *tensor_text_of(const struct bps_coding *coding)
{
    return coding != NULL ? coding->text : NULL;
}

bps_status bps_tensor_choose(struct bps_tensor_entry *tensor, const char *text, struct bps_report *report)
{
    struct bps_coding *choice = NULL;
    struct bps_report why = {""};
    if (tensor->words != NULL && strcmp(tensor->words, text) == 0) {
        return BPS_OK; /* some declare a tensor with each of its operations */
    }
    bps_status status =
        text[0] == '\0' ? BPS_OK : bps_codings_of_text(&tensor->worker->graph->codings, text, &choice, &why);
    if (status != BPS_OK) {
        BPS_REPORT(report, "tensor '%.200s': %.800s", tensor->name, why.text);
        return status;
    }
    bool known = tensor->words != NULL || atomic_load_explicit(&tensor->formed, memory_order_relaxed);
    const struct bps_coding *before = tensor->words != NULL ? tensor->choice : tensor->coding;
    if (known && before != choice) {
        BPS_REPORT(report, "tensor '%s' was declared to be coded by %s, not by %s", tensor->name,
                   before != NULL ? before->text : "nothing", choice != NULL ? choice->text : "nothing");
        return BPS_ERR_MISMATCH;
    }
    char *own = strdup(text);
    if (own == NULL) {
        BPS_REPORT(report, "tensor '%.200s': out of memory", tensor->name);
        return BPS_ERR_NOMEM;
    }
    free(tensor->words);
    tensor->words = own;
    tensor->choice = choice;
    return BPS_OK;
}

/* The lock is held. */
static bps_status set_form(struct bps_tensor_entry *tensor, struct bps_form *form)
{
    struct bps_coding *coding = tensor_coding_of(tensor, form);
    form->coding = (char *)(uintptr_t)tensor_text_of(coding); /* it is only read */
    bps_status status = bps_form_set(&tensor->form, form);
    if (status == BPS_OK) {
        tensor->coding = coding;
        atomic_store_explicit(&tensor->formed, true, memory_order_release);
    }
    return status;
}

bps_status bps_tensor_fix(struct bps_tensor_entry *tensor, struct bps_form *form, struct bps_report *report)
{
    bps_status status = BPS_OK;
    form->coding = (char *)(uintptr_t)tensor_text_of(tensor_coding_of(tensor, form));
    if (!atomic_load_explicit(&tensor->formed, memory_order_relaxed)) {
        status = set_form(tensor, form);
    } else if (!bps_form_agrees(&tensor->form, form)) {
        char known[200], given[200];
        bps_form_text(&tensor->form, known, sizeof known);
        bps_form_text(form, given, sizeof given);
        BPS_REPORT(report, "tensor '%s' was declared with %s, not %s", tensor->name, known, given);
        status = BPS_ERR_MISMATCH;
    }
    return status;
}

bps_status bps_tensor_reform(struct bps_tensor_entry *tensor, const struct bps_push_pull *r)
{
    struct bps_form form = {.bytes = r->count * bps_dtype_size(r->dtype),
                            .dtype = r->dtype,
                            .ndim = r->shape != NULL ? r->ndim : 0,
                            .shape = (int64_t *)(uintptr_t)r->shape}; /* it is only read */
    struct bps_tensor_table *table = &tensor->worker->table;
    if (atomic_load_explicit(&tensor->formed, memory_order_acquire) &&
        bps_form_is(&tensor->form, form.dtype, form.bytes, form.ndim, form.shape)) {
        return BPS_OK;
    }
    if (tensor->unnamed) { /* never coded, and nobody else's */
        return bps_form_set(&tensor->form, &form);
    }
    pthread_mutex_lock(&table->lock);
    bps_status status = set_form(tensor, &form);
    pthread_mutex_unlock(&table->lock);
    return status;
}

static void free_ways(struct bps_tensor_entry *tensor)
{
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        struct bps_task *task = &tensor->task[i];
        bps_way_free(task->own);
        bps_way_free(task->other);
        task->own = task->other = NULL;
        task->way = NULL;
    }
}

void bps_tensor_forget_path(struct bps_tensor_entry *tensor)
{
    free_ways(tensor);
    if (tensor->path_op != BPS_WIRE_OPS) {
        bps_path_fini(&tensor->path);
        tensor->path_op = BPS_WIRE_OPS;
    }
}

/* Bytes of the partitions of a tensor that nobody else cuts: equal, but for the last one. */
static uint64_t own_size(const struct bps_tensor_entry *tensor, uint64_t bytes)
{
    const struct bps_worker *worker = tensor->worker;
    const struct bps_view *view = tensor->operation.view;
    return view == NULL ? worker->partition : bps_unnamed_size(&view->book, bytes, worker->partition);
}

uint32_t bps_tensor_partitions(const struct bps_tensor_entry *tensor, uint64_t bytes)
{
    return tensor->placed.n > 0 ? tensor->placed.n : bps_partitions(bytes, own_size(tensor, bytes));
}

uint32_t bps_tensor_size(const struct bps_tensor_entry *tensor, uint64_t bytes, uint32_t partition)
{
    bps_assert(tensor->placed.n == 0 || partition < tensor->placed.n);
    return tensor->placed.n > 0 ? tensor->placed.partition[partition].bytes
                                : bps_partition_bytes(bytes, own_size(tensor, bytes), partition);
}

static void free_tasks(struct bps_tensor_entry *tensor)
{
    bps_assert(!bps_has_begun(&tensor->operation) || tensor->operation.left == 0);
    free_ways(tensor);
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        bps_feedback_fini(&tensor->task[i].feedback);
    }
    free(tensor->task);
    tensor->task = NULL;
    tensor->tasks = 0;
}

static void forget_next(struct bps_tensor_entry *tensor)
{
    free(tensor->next.partition);
    tensor->next.partition = NULL;
}

void bps_tensor_strip(struct bps_tensor_entry *tensor)
{
    free_tasks(tensor);
    free(tensor->placed.partition);
    forget_next(tensor);
    tensor->placed = (struct bps_placed){.n = 0};
    tensor->slice = 0;
    bps_tensor_forget_path(tensor);
}

/* Whether its tasks are those of a tensor of so many bytes. */
static bool has_tasks(const struct bps_tensor_entry *tensor, uint64_t bytes, uint32_t n)
{
    bool same = tensor->tasks == n && tensor->path_bytes == bytes;
    for (uint32_t i = 0; same && tensor->recut && i < n; i++) {
        same = tensor->task[i].bytes == bps_tensor_size(tensor, bytes, i);
    }
    return same;
}

bps_status bps_tensor_tasks(struct bps_tensor_entry *tensor, uint64_t bytes)
{
    uint32_t n = bps_tensor_partitions(tensor, bytes);
    uint64_t offset = 0;
    bool same = has_tasks(tensor, bytes, n);
    tensor->recut = false;
    if (same) {
        return BPS_OK;
    }
    free_tasks(tensor);
    tensor->task = calloc(n, sizeof *tensor->task);
    if (tensor->task == NULL) {
        return BPS_ERR_NOMEM;
    }
    tensor->tasks = n;
    tensor->path_bytes = bytes;
    for (uint32_t i = 0; i < n; i++) {
        tensor->task[i].tensor = tensor;
        tensor->task[i].partition = i;
        tensor->task[i].bytes = bps_tensor_size(tensor, bytes, i);
        tensor->task[i].offset = offset;
        offset += tensor->task[i].bytes;
    }
    return BPS_OK;
}

void bps_tensor_place(struct bps_tensor_entry *tensor, const struct bps_placed *placed)
{
    bps_assert(placed->n > 0 && placed->partition != NULL);
    bps_tensor_forget_path(tensor); /* ways depend on the place */
    tensor->recut = true;           /* results of its last operation may still be leaving its tasks */
    free(tensor->placed.partition);
    forget_next(tensor);
    tensor->placed = *placed;
}

void bps_tensor_place_from(struct bps_tensor_entry *tensor, const struct bps_placed *placed, uint32_t round)
{
    bps_assert(placed->n > 0 && placed->partition != NULL);
    forget_next(tensor);
    tensor->next = *placed;
    tensor->next_round = round;
}

void bps_tensor_turn(struct bps_tensor_entry *tensor)
{
    struct bps_placed next = tensor->next;
    if (next.partition != NULL && tensor->round >= tensor->next_round) {
        tensor->next.partition = NULL;
        bps_tensor_place(tensor, &next);
    }
}

const struct bps_placed *bps_tensor_placed(const struct bps_tensor_entry *tensor, uint32_t round)
{
    return tensor->next.partition != NULL && round >= tensor->next_round ? &tensor->next : &tensor->placed;
}

bps_status bps_tensor_ways(struct bps_tensor_entry *tensor)
{
    for (uint32_t i = tensor->tasks; i-- > 0;) { /* the first one comes last: it stands for all */
        struct bps_task *task = &tensor->task[i];
        if (tensor->task[0].own != NULL) {
            return BPS_OK;
        }
        bps_way_free(task->own); /* of an attempt that had no memory */
        task->own = bps_way_new(task, &tensor->path);
        if (task->own == NULL) {
            return BPS_ERR_NOMEM;
        }
    }
    return BPS_OK;
}
