/* SPDX-License-Identifier: Apache-2.0 */
/*
 * declared_change.c - tensors whose form changes from one round to the next.
 *
 * A worker with another form than the job knows fails the round for all; then each worker reports what it has
 * pushed. Nobody is in that round, or in the next one, when the last report is there.
 */
#include "scheduler/declared.h"

#include <stdlib.h>
#include <string.h>

#include "sum/verdict.h"
#include "wire/link.h"

/* Sends words about a tensor to a worker. */
static void tell_one(const struct bps_declared_tensor *t, uint32_t rank, uint8_t kind, const char *text,
                     bps_declared_send_fn send, void *arg)
{
    struct bps_writer w;
    bps_writer_init(&w);
    bps_put_u32(&w, t->id);
    bps_put_u8(&w, kind);
    bps_put_string(&w, text);
    send(arg, rank, BPS_FRAME_CHANGED, &w);
    bps_writer_fini(&w);
}

/* To those who wait for them. */
static void declared_change_tell(const struct bps_declared *declared, const struct bps_declared_tensor *t, uint8_t kind,
                                 const char *text, bps_declared_send_fn send, void *arg)
{
    for (uint32_t rank = 0; rank < declared->workers; rank++) {
        if (t->change->report[rank].given) {
            tell_one(t, rank, kind, text, send, arg);
        }
    }
}

static void declared_change_end(struct bps_declared *declared, struct bps_declared_tensor *t)
{
    bps_change_free(t->change);
    t->change = NULL;
    declared->changes--;
}

static void declared_change_fail(struct bps_declared *declared, struct bps_declared_tensor *t, bps_status status,
                                 const char *text, bps_declared_send_fn send, void *arg)
{
    declared_change_tell(declared, t, (uint8_t)-status, text, send, arg);
    declared_change_end(declared, t);
}

static void tell_form(const struct bps_declared *declared, const struct bps_declared_tensor *t, uint32_t rank,
                      bps_declared_send_fn send, void *arg)
{
    struct bps_writer w;
    bps_writer_init(&w);
    bps_put_u32(&w, t->id);
    bps_put_u8(&w, 0);
    bps_declared_write(declared, rank, t, &w);
    send(arg, rank, BPS_FRAME_CHANGED, &w);
    bps_writer_fini(&w);
}

/* Gives a tensor the form that all have, and another place. */
static bps_status declared_change_reform(struct bps_declared *declared, struct bps_declared_tensor *t,
                                         bps_declared_send_fn send, void *arg)
{
    struct bps_form *form = &t->change->report[0].form;
    bps_declared_unplace(declared, t);
    bps_form_fini(&t->form);
    t->form = *form;
    *form = (struct bps_form){.dtype = BPS_DTYPES};
    t->round = t->change->round + 1;
    if (bps_declared_place(declared, &t, 1) != BPS_OK) {
        return BPS_ERR_NOMEM;
    }
    for (uint32_t rank = 0; rank < declared->workers; rank++) {
        tell_form(declared, t, rank, send, arg);
    }
    return BPS_OK;
}

/* All have reported. */
static bps_status decide(struct bps_declared *declared, struct bps_declared_tensor *t, bps_declared_send_fn send,
                         void *arg)
{
    if (!bps_change_agreed(t->change)) {
        char text[BPS_TEXT_LIMIT];
        bps_change_text(t->change, text, sizeof text);
        declared_change_fail(declared, t, BPS_ERR_MISMATCH, text, send, arg);
        return BPS_OK;
    }
    bps_status status = declared_change_reform(declared, t, send, arg);
    declared_change_end(declared, t);
    return status;
}

/* The others have ended this round without the worker whose report it is, which hears how. */
static bool is_late(const struct bps_declared_tensor *t, uint32_t round)
{
    bool before = t->change == NULL || round < t->change->round;
    return t->overdue != NULL && before && round <= t->overdue_round;
}

/* One that not all have reported ends: those who come to it later hear the same. */
static void fail_overdue(struct bps_declared *declared, struct bps_declared_tensor *t, const char *text,
                         bps_declared_send_fn send, void *arg)
{
    free(t->overdue);
    t->overdue = strdup(text);
    t->overdue_round = t->change->round;
    declared_change_fail(declared, t, BPS_ERR_TIMEOUT, text, send, arg);
}

bps_status bps_declared_change(struct bps_declared *declared, uint32_t rank, uint64_t now, struct bps_reader *request,
                               bps_declared_send_fn send, void *arg)
{
    struct bps_form form = {.dtype = BPS_DTYPES};
    struct bps_declared_tensor *t;
    uint32_t id = bps_get_u32(request);
    uint32_t round = bps_get_u32(request);
    bool changed = bps_get_u8(request) != 0;
    bps_status status = bps_get_form(request, declared->partition, &form);
    HASH_FIND(by_id, declared->ids, &id, sizeof id, t);
    if (status == BPS_OK && (t == NULL || !bps_reader_done(request))) {
        status = BPS_ERR_PROTOCOL;
    }
    if (status == BPS_OK && round < t->formed) {
        bps_form_fini(&form);
        tell_form(declared, t, rank, send, arg);
        return BPS_OK;
    }
    if (status == BPS_OK && is_late(t, round)) {
        tell_one(t, rank, (uint8_t)-BPS_ERR_TIMEOUT, t->overdue, send, arg);
        bps_form_fini(&form);
        return BPS_OK;
    }
    if (status == BPS_OK && t->change == NULL) {
        t->change = bps_change_new(declared->workers, round, now);
        declared->changes += t->change != NULL;
        status = t->change == NULL ? BPS_ERR_NOMEM : BPS_OK;
    }
    if (status == BPS_OK) {
        status = bps_change_add(t->change, rank, round, changed, &form);
    }
    bps_form_fini(&form);
    if (status == BPS_OK && t->change->reports == declared->workers) {
        status = decide(declared, t, send, arg);
    }
    return status;
}

void bps_declared_refuse(struct bps_declared *declared, bps_status status, const char *text, bps_declared_send_fn send,
                         void *arg)
{
    for (struct bps_declared_tensor *t = declared->ids; t != NULL && declared->changes > 0; t = t->by_id.next) {
        if (t->change != NULL) {
            declared_change_fail(declared, t, status, text, send, arg);
        }
    }
}

static void declared_change_check_stall(struct bps_declared *declared, struct bps_declared_tensor *t, uint64_t now,
                                        uint64_t warn, uint64_t limit, bps_declared_send_fn send, void *arg)
{
    struct bps_change *change = t->change;
    uint64_t age = now > change->begun ? now - change->begun : 0;
    char missing[200], text[400];
    bps_change_missing(change, missing, sizeof missing);
    if (limit > 0 && age > limit) {
        bps_verdict_overdue(missing, limit, text, sizeof text);
        fail_overdue(declared, t, text, send, arg);
    } else if (warn > 0 && now > change->reminded && now - change->reminded > warn) {
        change->reminded = now;
        bps_verdict_waiting(missing, age, text, sizeof text);
        declared_change_tell(declared, t, BPS_WIRE_WAITING, text, send, arg);
    }
}

void bps_declared_check_stalls(struct bps_declared *declared, uint64_t now, uint64_t warn, uint64_t limit,
                               bps_declared_send_fn send, void *arg)
{
    for (struct bps_declared_tensor *t = declared->ids; t != NULL && declared->changes > 0; t = t->by_id.next) {
        if (t->change != NULL) {
            declared_change_check_stall(declared, t, now, warn, limit, send, arg);
        }
    }
}

void bps_declared_excuse(struct bps_declared *declared, uint64_t ns)
{
    for (struct bps_declared_tensor *t = declared->ids; t != NULL && declared->changes > 0; t = t->by_id.next) {
        if (t->change != NULL) {
            t->change->begun += ns;
            t->change->reminded += ns;
        }
    }
}
