/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known.c - what this worker knows of tensors, for a scheduler that takes the place of one that was lost, and what it
 * asks that one again.
 *
 * All that any worker has ever been told is in what they say together. What the lost scheduler has told none of them is
 * as if it had never been.
 */
#include "flow/flow.h"
#include "node/return.h"

#define BATCH_BYTES (1u << 20) /* of a message, before the tensor that is too much */

/* A message that is being filled. */
struct known {
    struct bps_link *link;
    enum bps_known_kind kind;
    uint32_t count;
    struct bps_writer entries;
};

static void known_flush(struct known *known)
{
    struct bps_writer w;
    if (known->count == 0) {
        return;
    }
    bps_writer_init(&w);
    bps_put_u8(&w, (uint8_t)known->kind);
    bps_put_u32(&w, known->count);
    bps_put_bytes(&w, known->entries.data, known->entries.size);
    w.failed |= known->entries.failed;
    bps_link_send_message(known->link, BPS_FRAME_KNOWN, &w); /* if it cannot be, the link ends and is dialled again */
    bps_writer_fini(&w);
    bps_writer_fini(&known->entries);
    known->count = 0;
}

static void known_added(struct known *known)
{
    known->count++;
    if (known->entries.size >= BATCH_BYTES) {
        known_flush(known);
    }
}

static void put_placed(const struct bps_placed *placed, struct bps_writer *w)
{
    bps_put_u32(w, placed->view);
    bps_put_u32(w, placed->move);
    bps_put_u32(w, placed->n);
    for (uint32_t i = 0; i < placed->n; i++) {
        bps_put_u32(w, placed->partition[i].bytes);
        bps_put_u16(w, placed->partition[i].shard);
        bps_put_u16(w, placed->partition[i].lead);
    }
}

static void put_known(const struct bps_tensor_entry *tensor, struct bps_writer *w)
{
    bool moves = tensor->next.partition != NULL;
    bps_put_string(w, tensor->named.name);
    bps_put_u32(w, tensor->id);
    bps_put_u32(w, tensor->first_round);
    bps_put_u32(w, tensor->round - (tensor->operation.phase == BPS_PHASE_REPORTED)); /* that one is not over yet */
    bps_put_form(w, &tensor->job);
    bps_put_u32(w, tensor->slice);
    put_placed(&tensor->placed, w);
    bps_put_u8(w, moves);
    bps_put_u32(w, tensor->next_round);
    if (moves) {
        put_placed(&tensor->next, w);
    }
}

void bps_known_tell(void *owner, struct bps_link *link)
{
    struct bps_worker *worker = owner;
    struct known known = {.link = link, .kind = BPS_KNOWN_TENSORS};
    struct bps_writer end;
    bps_writer_init(&known.entries);
    for (const struct bps_tensor_entry *tensor = worker->ids; tensor != NULL; tensor = tensor->by_id.next) {
        if (!tensor->named.unnamed) {
            put_known(tensor, &known.entries);
            known_added(&known);
        }
    }
    known_flush(&known);
    known.kind = BPS_KNOWN_FORGOTTEN;
    for (uint32_t id = 0; id < worker->told.n; id++) {
        if (worker->told.round[id] > 0) {
            bps_put_u32(&known.entries, id);
            bps_put_u32(&known.entries, worker->told.round[id]);
            known_added(&known);
        }
    }
    known_flush(&known);
    bps_writer_fini(&worker->forgotten); /* they are among what was told just now */
    bps_writer_init(&end);
    bps_put_u8(&end, BPS_KNOWN_END);
    bps_put_u32(&end, worker->last_id);
    worker->move_asked = 0; /* by one that is lost */
    bps_put_u8(&end, worker->moving);
    bps_link_send_message(link, BPS_FRAME_KNOWN, &end);
    bps_writer_fini(&end);
}

void bps_known_returned(void *owner)
{
    struct bps_worker *worker = owner;
    struct bps_tensor_entry *tensor;
    struct bps_operation *operation;
    TAILQ_FOREACH(operation, &worker->operations, entry) {
        if (operation->phase == BPS_PHASE_REPORTED) {
            bps_change_tell(operation);
        }
        if (worker->failure != BPS_OK) {
            return;
        }
    }
    while ((tensor = TAILQ_LAST(&worker->asked, bps_tensor_list)) != NULL) {
        TAILQ_REMOVE(&worker->asked, tensor, entry);
        TAILQ_INSERT_HEAD(&worker->undeclared, tensor, entry);
        tensor->asked = false;
    }
    bps_declare_ask(worker);
}
