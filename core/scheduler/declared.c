/* SPDX-License-Identifier: Apache-2.0 */
/* declared.c - names of tensors, their ids and where their partitions are summed. */
#include "scheduler/declared.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "wire/frame.h"

bps_status bps_declared_init(struct bps_declared *declared, const struct bps_book *book, uint64_t partition)
{
    memset(declared, 0, sizeof *declared);
    declared->partition = partition;
    declared->workers = book->workers;
    declared->group = calloc(book->workers, sizeof *declared->group);
    declared->move.asked = calloc(book->workers, sizeof *declared->move.asked);
    bool memory = declared->group != NULL && declared->move.asked != NULL;
    bps_status status = !memory ? BPS_ERR_NOMEM : bps_placement_init(&declared->placement, book);
    for (uint32_t rank = 0; rank < book->workers && status == BPS_OK; rank++) {
        declared->groups += book->member[rank].group == rank;
        declared->group[rank] = bps_placement_group(&declared->placement, bps_book_group_size(book, rank));
    }
    return status;
}

static void declared_tensor_free(struct bps_declared_tensor *t)
{
    bps_change_free(t->change);
    free(t->overdue);
    bps_form_fini(&t->form);
    bps_layout_fini(&t->layout);
    bps_layout_fini(&t->before);
    free(t->name);
    free(t->user_bits);
    free(t);
}

void bps_declared_fini(struct bps_declared *declared)
{
    struct bps_declared_tensor *t, *next;
    HASH_CLEAR(by_name, declared->names);
    HASH_ITER(by_id, declared->ids, t, next) {
        HASH_DELETE(by_id, declared->ids, t);
        declared_tensor_free(t);
    }
    free(declared->group);
    free(declared->move.asked);
    free(declared->free);
    bps_placement_fini(&declared->placement);
    memset(declared, 0, sizeof *declared);
}

/* ---- tensors that come and go ---- */

static bool declared_index_tensor(struct bps_declared *declared, struct bps_declared_tensor *t)
{
    HASH_ADD(by_id, declared->ids, id, sizeof t->id, t);
    if (t->by_id.tbl == NULL) {
        return false;
    }
    HASH_ADD_KEYPTR(by_name, declared->names, t->name, strlen(t->name), t);
    if (t->by_name.tbl == NULL) {
        HASH_DELETE(by_id, declared->ids, t);
        return false;
    }
    return true;
}

struct bps_declared_tensor *bps_declared_add(struct bps_declared *declared, char *name, struct bps_form *form,
                                             uint32_t id, uint32_t round)
{
    struct bps_declared_tensor *t = calloc(1, sizeof *t);
    if (t == NULL) {
        free(name);
        return NULL;
    }
    t->name = name;
    t->id = id;
    t->round = round;
    t->form = *form;
    *form = (struct bps_form){.dtype = BPS_DTYPES};
    t->user_bits = calloc((declared->workers + 63) / 64, sizeof *t->user_bits);
    if (t->id >= BPS_ID_UNNAMED || t->user_bits == NULL || !declared_index_tensor(declared, t)) {
        declared_tensor_free(t);
        return NULL;
    }
    return t;
}

/* One that is not placed yet. Takes over name and form. NULL: no memory, or no id. */
static struct bps_declared_tensor *tensor_new(struct bps_declared *declared, char *name, struct bps_form *form)
{
    bool again = declared->frees > 0;
    const struct bps_free_id fresh = {.id = declared->last + 1};
    const struct bps_free_id place = again ? declared->free[declared->frees - 1] : fresh;
    struct bps_declared_tensor *t = bps_declared_add(declared, name, form, place.id, place.round);
    declared->frees -= t != NULL && again;
    declared->last += t != NULL && !again;
    return t;
}

void bps_declared_unplace(struct bps_declared *declared, struct bps_declared_tensor *t)
{
    bps_placement_remove(&declared->placement, &t->layout);
    bps_layout_fini(&t->layout);
    bps_layout_fini(&t->before);
    t->from = 0;
}

bps_status bps_declared_free_id(struct bps_declared *declared, uint32_t id, uint32_t round)
{
    if (!bps_array_reserve(declared->free, declared->free_room, declared->frees + 1)) {
        return BPS_ERR_NOMEM;
    }
    declared->free[declared->frees++] = (struct bps_free_id){id, round};
    return BPS_OK;
}

/* No worker knows it any more. */
static bps_status tensor_remove(struct bps_declared *declared, struct bps_declared_tensor *t)
{
    bps_status status = bps_declared_free_id(declared, t->id, t->round);
    HASH_DELETE(by_name, declared->names, t);
    HASH_DELETE(by_id, declared->ids, t);
    bps_declared_unplace(declared, t);
    declared_tensor_free(t);
    return status;
}

static bool is_user(const struct bps_declared_tensor *t, uint32_t rank)
{
    return (t->user_bits[rank / 64] >> (rank % 64) & 1) != 0;
}

void bps_declared_use(struct bps_declared_tensor *t, uint32_t rank)
{
    t->users += !is_user(t, rank);
    t->user_bits[rank / 64] |= 1ull << (rank % 64);
}

/* Workers part only by rounds that have failed: whoever declares it again begins with the latest. */
static bps_status forget_one(struct bps_declared *declared, uint32_t rank, uint32_t id, uint32_t round)
{
    struct bps_declared_tensor *t;
    HASH_FIND(by_id, declared->ids, &id, sizeof id, t);
    if (t == NULL || !is_user(t, rank)) {
        return BPS_ERR_PROTOCOL;
    }
    t->round = round > t->round ? round : t->round;
    t->user_bits[rank / 64] &= ~(1ull << (rank % 64));
    return --t->users == 0 ? tensor_remove(declared, t) : BPS_OK;
}

bps_status bps_declared_forget(struct bps_declared *declared, uint32_t rank, struct bps_reader *request)
{
    bps_status status = BPS_OK;
    for (uint32_t n = bps_get_u32(request); n > 0 && !request->bad && status == BPS_OK; n--) {
        uint32_t id = bps_get_u32(request);
        uint32_t round = bps_get_u32(request);
        status = request->bad ? BPS_ERR_PROTOCOL : forget_one(declared, rank, id, round);
    }
    return status == BPS_OK && !bps_reader_done(request) ? BPS_ERR_PROTOCOL : status;
}

/* ---- answering ---- */

/* The tensors of a message, in its order, NULL for one that is refused; and those of them that are new. */
struct asked {
    struct bps_declared_tensor **tensor, **fresh;
    uint32_t count, nfresh;
};

bps_status bps_declared_learn(struct bps_declared_tensor *t, const struct bps_form *form)
{
    if (t->form.shape != NULL || form->shape == NULL || !bps_form_agrees(&t->form, form)) {
        return BPS_OK;
    }
    return bps_form_set(&t->form, form);
}

static bps_status read_one(struct bps_declared *declared, uint32_t rank, struct bps_reader *request,
                           struct asked *asked)
{
    struct bps_form form = {.dtype = BPS_DTYPES};
    bool closed = declared->closed[0] != '\0';
    char *name = bps_get_string_new(request, BPS_NAME_LIMIT);
    bps_status status = name == NULL ? BPS_ERR_PROTOCOL : bps_get_form(request, declared->partition, &form);
    struct bps_declared_tensor *t = NULL;
    if (status == BPS_OK) {
        HASH_FIND(by_name, declared->names, name, strlen(name), t);
    }
    if (status == BPS_OK && t == NULL && !closed) {
        t = tensor_new(declared, name, &form);
        name = NULL;
        if (t == NULL) {
            status = BPS_ERR_NOMEM;
        } else {
            asked->fresh[asked->nfresh++] = t;
        }
    } else if (t != NULL) {
        status = bps_declared_learn(t, &form);
    }
    free(name);
    bps_form_fini(&form);
    if (status == BPS_OK && t != NULL) {
        bps_declared_use(t, rank);
    }
    if (status == BPS_OK) {
        asked->tensor[asked->count++] = t;
    }
    return status;
}

/* The largest first, else in the order of declaration. */
static int declared_by_size(const void *left, const void *right)
{
    const struct bps_declared_tensor *a = *(struct bps_declared_tensor *const *)left;
    const struct bps_declared_tensor *b = *(struct bps_declared_tensor *const *)right;
    uint64_t x = a->form.bytes, y = b->form.bytes;
    return x != y ? (x < y ? 1 : -1) : a->id < b->id ? -1 : a->id > b->id;
}

/*
 * When the last slice of all is summed, its server sends it to each group of workers, one after the other, and before
 * the first one is, it comes from each: that is to be a small part of what a link carries.
 */
#define PARTS 32u

static uint32_t choose_slice(const struct bps_declared *declared)
{
    uint64_t slice = declared->placement.expected / (PARTS * (uint64_t)declared->groups) / 1024 * 1024;
    return slice < BPS_LEAST_SLICE ? BPS_LEAST_SLICE : slice > UINT32_MAX / 1024 * 1024 ? 0 : (uint32_t)slice;
}

/*
 * Small tensors come last: they fill what the large ones have left uneven. One that is coded is cut into whole
 * partitions only, so that what coding makes of it does not depend on the servers of a job.
 */
bps_status bps_declared_place(struct bps_declared *declared, struct bps_declared_tensor **fresh, uint32_t n)
{
    bps_status status = BPS_OK;
    for (uint32_t i = 0; i < n; i++) {
        bps_placement_expect(&declared->placement, fresh[i]->form.bytes);
    }
    if (n > 1) {
        qsort(fresh, n, sizeof(*fresh), declared_by_size);
    }
    for (uint32_t i = 0; i < n && status == BPS_OK; i++) {
        const struct bps_form *form = &fresh[i]->form;
        status = bps_placement_add(&declared->placement, form->bytes, declared->partition, form->coding != NULL,
                                   &fresh[i]->layout);
        fresh[i]->layout.move = declared->move.number;
        if (fresh[i]->before.n == 0) { /* else its workers know it */
            fresh[i]->slice = choose_slice(declared);
        }
    }
    return status;
}

void bps_declared_write_layout(const struct bps_declared *declared, uint32_t rank, const struct bps_layout *layout,
                               struct bps_writer *w)
{
    uint16_t group = declared->group[rank];
    bps_put_u32(w, layout->view);
    bps_put_u32(w, layout->move);
    bps_put_u32(w, layout->n);
    for (uint32_t i = 0; i < layout->n; i++) {
        bps_put_u32(w, layout->part[i].bytes);
        bps_put_u16(w, layout->part[i].shard);
        uint32_t leader = layout->lead[(size_t)i * declared->placement.sizes + group];
        bps_put_u16(w, (uint16_t)bps_leader_place(declared->placement.group[group].size, leader));
    }
}

void bps_declared_write(const struct bps_declared *declared, uint32_t rank, const struct bps_declared_tensor *tensor,
                        struct bps_writer *w)
{
    bool moved = tensor->before.n > 0;
    bps_put_u32(w, tensor->id);
    bps_put_u32(w, tensor->round);
    bps_put_form(w, &tensor->form);
    bps_put_u32(w, tensor->slice);
    bps_declared_write_layout(declared, rank, moved ? &tensor->before : &tensor->layout, w);
    bps_put_u8(w, moved);
    if (moved) {
        bps_put_u32(w, tensor->from);
        bps_declared_write_layout(declared, rank, &tensor->layout, w);
    }
}

static void write_answer(const struct bps_declared *declared, uint32_t rank, const struct bps_declared_tensor *tensor,
                         struct bps_writer *w)
{
    if (tensor != NULL) {
        bps_declared_write(declared, rank, tensor, w);
    } else {
        bps_put_u32(w, 0);
        bps_put_string(w, declared->closed);
    }
}

bps_status bps_declared_answer(struct bps_declared *declared, uint32_t rank, struct bps_reader *request,
                               struct bps_writer *reply)
{
    uint32_t n = bps_get_u32(request);
    if (n > (size_t)(request->end - request->at)) { /* each has more than one byte */
        return BPS_ERR_PROTOCOL;
    }
    struct asked asked = {.tensor = calloc(2 * (size_t)n + 1, sizeof *asked.tensor)};
    if (asked.tensor == NULL) {
        return BPS_ERR_NOMEM;
    }
    asked.fresh = asked.tensor + n;
    bps_status status = BPS_OK;
    for (uint32_t i = 0; i < n && status == BPS_OK; i++) {
        status = read_one(declared, rank, request, &asked);
    }
    bps_status placed = bps_declared_place(declared, asked.fresh, asked.nfresh);
    status = status == BPS_OK ? placed : status;
    bps_put_u32(reply, n);
    for (uint32_t i = 0; i < asked.count && status == BPS_OK; i++) {
        write_answer(declared, rank, asked.tensor[i], reply);
        status = reply->failed ? BPS_ERR_NOMEM : BPS_OK;
    }
    free(asked.tensor);
    return status == BPS_OK && !bps_reader_done(request) ? BPS_ERR_PROTOCOL : status;
}
