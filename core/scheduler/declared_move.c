/* SPDX-License-Identifier: Apache-2.0 */
/*
 * declared_move.c - tensors that move to other shards while a job runs.
 *
 * All workers must move a tensor in the same round, and none knows how far the others are. So they begin no rounds
 * while they are asked which they have begun, and the first one that nobody has begun is placed anew. Who has not come
 * that far makes the rounds before it as they were; a worker that declares the tensor meanwhile learns both places.
 */
#include "scheduler/declared.h"

#include <stdlib.h>
#include <string.h>

#include "wire/link.h"

#define ENTRY_BYTES 8u /* of a BEGUN message: id and rounds */

static void send_all(const struct bps_declared *declared, uint8_t frame, const struct bps_writer *w,
                     bps_declared_send_fn send, void *arg)
{
    for (uint32_t rank = 0; rank < declared->workers; rank++) {
        send(arg, rank, frame, w);
    }
}

bool bps_declared_move(struct bps_declared *declared, bps_declared_send_fn send, void *arg)
{
    struct bps_writer w;
    if (declared->move.waits > 0 || declared->changes > 0) {
        return false;
    }
    declared->move.number++;
    declared->move.waits = declared->workers;
    memset(declared->move.numbers, 0, sizeof declared->move.numbers);
    memset(declared->move.asked, true, declared->workers * sizeof *declared->move.asked);
    for (struct bps_declared_tensor *t = declared->ids; t != NULL; t = t->by_id.next) {
        t->begun = (struct bps_begun){.least = UINT32_MAX};
    }
    bps_writer_init(&w);
    bps_put_u32(&w, declared->move.number);
    send_all(declared, BPS_FRAME_MOVE, &w, send, arg);
    bps_writer_fini(&w);
    return true;
}

bps_status bps_declared_begun(struct bps_declared *declared, uint32_t rank, struct bps_reader *answer, bool *all)
{
    uint32_t number = bps_get_u32(answer), numbers[BPS_UNNAMED_KINDS];
    for (uint32_t kind = 0; kind < BPS_UNNAMED_KINDS; kind++) {
        numbers[kind] = bps_get_u32(answer) & BPS_ID_NUMBER;
    }
    uint32_t n = bps_get_u32(answer);
    *all = false;
    if (answer->bad || number == 0 || number > declared->move.number ||
        (size_t)(answer->end - answer->at) != (size_t)n * ENTRY_BYTES) {
        return BPS_ERR_PROTOCOL;
    }
    if (number < declared->move.number || declared->move.waits == 0) {
        return BPS_OK; /* to one that was given up */
    }
    if (!declared->move.asked[rank]) {
        return BPS_ERR_PROTOCOL;
    }
    bool first = declared->move.waits == declared->workers;
    declared->move.asked[rank] = false;
    for (uint32_t kind = 0; kind < BPS_UNNAMED_KINDS; kind++) {
        uint32_t *most = &declared->move.numbers[kind];
        *most = first || bps_number_is_before(*most, numbers[kind]) ? numbers[kind] : *most;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct bps_declared_tensor *t;
        uint32_t id = bps_get_u32(answer), rounds = bps_get_u32(answer);
        HASH_FIND(by_id, declared->ids, &id, sizeof id, t);
        if (t != NULL) { /* else it was forgotten meanwhile */
            t->begun.workers++;
            t->begun.least = rounds < t->begun.least ? rounds : t->begun.least;
            t->begun.most = rounds > t->begun.most ? rounds : t->begun.most;
        }
    }
    *all = --declared->move.waits == 0;
    return BPS_OK;
}

/*
 * Not one that some worker did not know when it was asked. Nor one whose last move some workers have made and others
 * have not: these know two places already.
 */
static bool may_move(const struct bps_declared_tensor *t)
{
    const struct bps_begun *begun = &t->begun;
    bool settled = t->before.n == 0 || begun->least > t->from || begun->most == t->from;
    return begun->workers == t->users && settled && t->form.coding == NULL && !t->form.keeps && t->layout.n > 0;
}

static bool uses(const struct bps_layout *layout, const struct bps_book *book)
{
    uint32_t i = 0;
    while (i < layout->n && book->shard[layout->part[i].shard].weight > 0) {
        i++;
    }
    return i < layout->n;
}

/* A worker that declares a tensor later may have to make a round in its last place. */
bool bps_declared_can_leave(const struct bps_declared *declared, const struct bps_book *book)
{
    for (const struct bps_declared_tensor *t = declared->ids; t != NULL; t = t->by_id.next) {
        bool known = t->users == declared->workers && may_move(t);
        if (!known && (uses(&t->layout, book) || uses(&t->before, book))) {
            return false;
        }
    }
    return true;
}

/* Out of its place, or of one that nobody has moved to yet. */
static void take_out(struct bps_declared *declared, struct bps_declared_tensor *t)
{
    struct bps_layout now = t->layout;
    bool unused = t->before.n > 0 && t->begun.most == t->from;
    bps_placement_remove(&declared->placement, &now);
    bps_layout_fini(unused ? &now : &t->before);
    t->before = unused ? t->before : now;
    t->layout = (struct bps_layout){.n = 0};
    t->from = t->begun.most;
}

/* Takes out the tensors that move. Returns how many; NULL in *out: no memory. */
static uint32_t take_all_out(struct bps_declared *declared, struct bps_declared_tensor ***out)
{
    uint32_t n = 0;
    struct bps_declared_tensor **moved = calloc(HASH_CNT(by_id, declared->ids) + (size_t)1, sizeof(*moved));
    for (struct bps_declared_tensor *t = declared->ids; t != NULL && moved != NULL; t = t->by_id.next) {
        if (may_move(t)) {
            take_out(declared, t);
            moved[n++] = t;
        }
    }
    *out = moved;
    return n;
}

/* Tensors that stay, and the first round of each that nobody has begun. */
static void write_staying(const struct bps_declared *declared, struct bps_writer *w)
{
    struct bps_writer entries;
    uint32_t n = 0;
    bps_writer_init(&entries);
    for (const struct bps_declared_tensor *t = declared->ids; t != NULL; t = t->by_id.next) {
        if (t->layout.move != declared->move.number && t->begun.workers > 0) {
            bps_put_u32(&entries, t->id);
            bps_put_u32(&entries, t->begun.most);
            n++;
        }
    }
    bps_put_u32(w, n);
    bps_put_bytes(w, entries.data, entries.size);
    w->failed |= entries.failed;
    bps_writer_fini(&entries);
}

static void declared_move_tell(const struct bps_declared *declared, const struct bps_book *book, uint32_t rank,
                               struct bps_declared_tensor *const *moved, uint32_t n, bps_declared_send_fn send,
                               void *arg)
{
    struct bps_writer w;
    bps_writer_init(&w);
    bps_put_u32(&w, book->shards);
    for (uint32_t i = 0; i < book->shards; i++) {
        bps_put_u32(&w, book->shard[i].weight);
    }
    bps_put_u32(&w, n);
    for (uint32_t i = 0; i < n; i++) {
        bps_put_u32(&w, moved[i]->id);
        bps_put_u32(&w, moved[i]->from);
        bps_declared_write_layout(declared, rank, &moved[i]->layout, &w);
    }
    write_staying(declared, &w);
    send(arg, rank, BPS_FRAME_MOVED, &w);
    bps_writer_fini(&w);
}

bps_status bps_declared_moved(struct bps_declared *declared, const struct bps_book *book, bps_declared_send_fn send,
                              void *arg)
{
    struct bps_declared_tensor **moved;
    uint32_t n = take_all_out(declared, &moved);
    bps_placement_weigh(&declared->placement, book);
    bps_status status = moved == NULL ? BPS_ERR_NOMEM : bps_declared_place(declared, moved, n);
    for (uint32_t rank = 0; rank < declared->workers && status == BPS_OK; rank++) {
        declared_move_tell(declared, book, rank, moved, n, send, arg);
    }
    free(moved);
    return status;
}

void bps_declared_stay(struct bps_declared *declared, bps_declared_send_fn send, void *arg)
{
    struct bps_writer w;
    if (declared->move.waits == 0) {
        return;
    }
    declared->move.waits = 0;
    bps_writer_init(&w);
    for (uint32_t i = 0; i < 3; i++) { /* neither other weights, nor tensors */
        bps_put_u32(&w, 0);
    }
    send_all(declared, BPS_FRAME_MOVED, &w, send, arg);
    bps_writer_fini(&w);
}
