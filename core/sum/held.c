/* SPDX-License-Identifier: Apache-2.0 */
/*
 * held.c - rounds that another shard has begun, which is lost: some workers have results of theirs already.
 *
 * Who has the result of a slice contributes nothing to it, and gets nothing. If others lack it, it is fetched from one
 * that has it, whatever has been contributed here: so all have the same. What workers have is noted of a key, as they
 * may tell it before anybody contributes to the round, and often nobody will.
 */
#include <stdlib.h>
#include <string.h>

#include "base/rows.h"
#include "sum/round.h"

#define ROUNDS_OF_A_RANK 2u /* that it can tell of: its last one, and that under way */

static bool has_slice(const struct bps_held_note *note, uint32_t i)
{
    return (note->bits[i / 8] >> (i % 8) & 1) != 0;
}

/* It takes part in the round, though it has not contributed. */
static bps_status take_part(struct bps_round *round, const struct bps_held_note *note)
{
    if (bps_bit(round->spoke_bits, note->rank)) {
        return bps_bit(round->for_group_bits, note->rank) == note->for_group ? BPS_OK : BPS_ERR_PROTOCOL;
    }
    bps_status status = bps_round_speak(round, note->rank, note->for_group);
    if (status == BPS_OK && round->base.failure != NULL) {
        bps_round_tell(round, note->rank, BPS_NOTICE_FAILED, round->base.failure);
    }
    return status;
}

static bps_status mark_slices(struct bps_round *round, const struct bps_held_note *note)
{
    size_t words = (size_t)round->slices * round->sum->words;
    uint64_t *bits = (uint64_t *)(void *)bps_block_get(round->sum, &round->held, words * sizeof *bits);
    if (bits == NULL) {
        return BPS_ERR_NOMEM;
    }
    if (!round->has_held) {
        memset(bits, 0, words * sizeof *bits);
        round->has_held = true;
    }
    for (uint32_t i = 0; i < round->slices && round->base.failure == NULL; i++) {
        struct bps_sum_slice *slice = &round->slice[i];
        if (!has_slice(note, i)) {
            continue;
        }
        if (bps_bit(bps_begun(round, i), note->rank)) {
            return BPS_ERR_PROTOCOL; /* it has contributed to it */
        }
        bps_set_bit(bps_begun(round, i), note->rank);
        bps_set_bit(bits + (size_t)i * round->sum->words, note->rank);
        slice->holder = slice->holder == 0 ? note->rank + 1 : slice->holder;
        bps_slice_arrived(slice, note->rank, note->for_group);
    }
    return BPS_OK;
}

static bps_status note_apply(struct bps_round *round, struct bps_held_note *note, bool ends)
{
    const struct bps_round_id *id = &round->base.id;
    note->applied = true;
    bps_status status = take_part(round, note);
    if (status != BPS_OK || round->base.failure != NULL || round->odds > 0 || ends) {
        return status;
    }
    if (round->bytes != note->size || round->grid != note->grid) {
        return BPS_ERR_PROTOCOL;
    }
    if (id->tensor >= BPS_ID_UNNAMED) { /* who has it does not say what has ended there */
        round->mark = (id->tensor - BPS_ID_NUMBER / 4) & BPS_ID_NUMBER; /* long before */
    }
    return mark_slices(round, note);
}

bps_status bps_round_apply_held(struct bps_round *round, bool ends)
{
    bps_status status = BPS_OK;
    bps_round_hold(round);
    for (struct bps_held_note *note = round->base.key->notes; note != NULL && status == BPS_OK; note = note->next) {
        if (note->round == round->base.id.round && !note->applied) {
            status = note_apply(round, note, ends);
        }
    }
    if (status == BPS_OK && !ends) {
        bps_round_go_on(round);
    }
    round->base.holds--; /* not collected: the caller still has it */
    return status;
}

/* Whether it may tell of one more. */
static bool may_note(const struct bps_key *key, uint32_t rank, uint32_t round)
{
    uint32_t rounds = 0;
    for (const struct bps_held_note *note = key->notes; note != NULL; note = note->next) {
        if (note->rank == rank && note->round == round) {
            return false;
        }
        rounds += note->rank == rank;
    }
    return rounds < ROUNDS_OF_A_RANK;
}

bps_status bps_sum_hold(struct bps_sum *sum, uint32_t rank, const struct bps_held *held)
{
    struct bps_key *key;
    uint32_t slices = held->grid > 0 ? bps_partitions(held->size, held->grid) : 0;
    size_t bytes = ((size_t)slices + 7) / 8;
    bps_status status =
        bps_aggregates(sum) || slices == 0 || held->id.kind != BPS_KEY_ROUNDS || !bps_ranks_has(&sum->all, rank)
            ? BPS_ERR_PROTOCOL
            : bps_key_find(sum, &held->id, held->bytes, held->size, &key);
    if (status != BPS_OK || held->id.round < key->done) {
        return status;
    }
    if (!may_note(key, rank, held->id.round)) {
        return BPS_ERR_PROTOCOL;
    }
    struct bps_held_note *note = calloc(1, sizeof *note + bytes);
    if (note == NULL) {
        return BPS_ERR_NOMEM;
    }
    *note = (struct bps_held_note){.next = key->notes,
                                   .rank = rank,
                                   .round = held->id.round,
                                   .size = held->size,
                                   .grid = held->grid,
                                   .for_group = bps_is_for_group(sum, rank, held->for_group)};
    if (held->bits != NULL) {
        memcpy(note->bits, held->bits, bytes);
    } else {
        memset(note->bits, 0xff, bytes);
    }
    key->notes = note;
    struct bps_round *round = (struct bps_round *)bps_key_open_round(key, held->id.round);
    if (round != NULL) {
        bps_round_hold(round);
        status = bps_round_apply_held(round, false);
        bps_round_release(round);
    }
    return status;
}

/* ---- slices that some have, and others lack ---- */

/* Whether it can be the result of the slice. */
static bool fits_slice(const struct bps_sum_slice *slice, uint32_t bytes)
{
    const struct bps_spec *spec = &slice->round->spec;
    if (spec->row > 0) {
        return bytes >= BPS_ROWS_HEAD && bytes <= bps_rows_bound(slice->bytes, spec->row);
    }
    if (spec->coding == NULL || spec->coding->compressor == NULL) {
        return bytes == slice->bytes;
    }
    return bytes > 0 && bytes <= bps_coding_bound(spec->coding, spec->exact, spec->dtype,
                                                  slice->bytes / bps_dtype_size(spec->dtype));
}

bps_status bps_sum_final(struct bps_sum *sum, uint32_t rank, const struct bps_round_id *id, uint32_t offset, bool codes,
                         const void *data, uint32_t bytes)
{
    struct bps_key *key = id->kind == BPS_KEY_ROUNDS ? bps_key_known(sum, id) : NULL;
    struct bps_round *round = key != NULL ? (struct bps_round *)bps_key_open_round(key, id->round) : NULL;
    if (round == NULL || round->base.failure != NULL) {
        return BPS_OK;
    }
    uint32_t index = offset / round->grid;
    struct bps_sum_slice *slice = index < round->slices ? &round->slice[index] : NULL;
    if (slice == NULL || offset % round->grid != 0 || slice->holder != rank + 1 || !slice->wanted ||
        !fits_slice(slice, bytes)) {
        return BPS_ERR_PROTOCOL;
    }
    slice->wanted = false;
    if (round->policy->apart) {
        round->policy->free_parts(slice);
    }
    bps_block_put(sum, &slice->block);
    void *block = bytes > 0 ? bps_block_get(sum, &slice->block, bytes) : NULL;
    if (bytes > 0 && block == NULL) {
        return BPS_ERR_NOMEM;
    }
    if (bytes > 0) {
        memcpy(block, data, bytes);
    }
    slice->payload = block;
    slice->payload_bytes = bytes;
    slice->codes = codes;
    bps_round_hold(round);
    bps_slice_deliver(slice);
    bps_round_release(round);
    return BPS_OK;
}
