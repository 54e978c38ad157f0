/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coded.c - the policy of a sum of coded contributions: they are kept apart as they have come, which takes few bytes,
 * and when all are there, decoded into the sum in the order of their ranks. The sum is coded again for all workers
 * alike, with the error that earlier ones have left here.
 */
#include <string.h>

#include "base/assert.h"
#include "plugin/returned.h"
#include "sum/round.h"

/* A slice while it is summed. */
struct decoded {
    struct bps_sum_slice *slice;
    const struct bps_coding *coding;
    uint32_t type;         /* of the elements of the sum, */
    uint64_t first, count; /* from that of the partition */
    struct bps_block sum;
    struct bps_block one; /* of a contribution, where only a share of it is added */
    double share;
};

/* The first one decoded makes the sum, the others are added to it; shares of them, from a block of their own. */
static bps_status add_all(const struct decoded *d, struct bps_report *report)
{
    bps_assert(d->sum.data != NULL && d->count > 0);
    bps_assert(d->coding->compressor != NULL);
    struct bps_round *round = d->slice->round;
    const struct bps_compressor_ops *ops = bps_coding_ops(d->coding, round->spec.exact);
    void *self = d->coding->compressor->self, *to = d->one.data != NULL ? d->one.data : d->sum.data;
    bool empty = true;
    for (uint32_t i = 0; i < round->ranks->n; i++) {
        const struct bps_block *coded = &bps_parts(d->slice)[i].block;
        if (coded->data == NULL || bps_part_is_open(d->slice, i)) {
            continue; /* another one of its group has spoken for it, or it is late */
        }
        bool adds = !empty && to == d->sum.data;
        BPS_CALLING(d->coding->compressor, adds ? "decode_add" : "decode", NULL);
        bps_status returned =
            (adds ? ops->decode_add : ops->decode)(self, d->type, coded->data, coded->bytes, to, d->count);
        bps_status status =
            bps_returned(d->coding->compressor, adds ? "decode_add" : "decode", BPS_OK, returned, report);
        if (status != returned) {
            return status;
        }
        if (status != BPS_OK) {
            round->lost = round->ranks->rank[i];
            return BPS_ERR_PROTOCOL;
        }
        if (to != d->sum.data) {
            (empty ? round->kernels.first : round->kernels.fold)(round->kernels.context, d->sum.data, to, d->count,
                                                                 d->share);
        }
        empty = false;
    }
    return BPS_OK;
}

/*
 * Decoding adds without a scale, fast. If the sum of an average is not finite, it is made once more of shares, which
 * its type holds.
 */
static bps_status sum_all(struct decoded *d, struct bps_report *report)
{
    const struct bps_round *round = d->slice->round;
    const struct bps_spec *spec = &round->spec;
    uint32_t workers = d->slice->arrived;
    struct bps_last_factor last = {spec->postscale, spec->op == BPS_AVERAGE ? workers : 1};
    bps_status status = add_all(d, report);
    if (status == BPS_OK && last.divisor != 1 && !bps_feedback_is_finite(d->type, d->sum.data, d->count)) {
        if (bps_block_get(round->sum, &d->one, d->count * bps_dtype_size(d->type)) == NULL) {
            return BPS_ERR_NOMEM;
        }
        d->share = bps_share(spec->op, d->type, workers);
        last = bps_last_factor(spec->op, d->type, workers, spec->postscale);
        status = add_all(d, report);
        bps_block_put(round->sum, &d->one);
    }
    if (status == BPS_OK && (last.divisor != 1 || last.scale != 1.0)) {
        round->kernels.finish(round->kernels.context, d->sum.data, d->sum.data, d->count, last.scale, last.divisor);
    }
    return status;
}

/* The feedback of its partition here; *out NULL: the coding has none. */
static bps_status find_feedback(const struct decoded *d, struct bps_feedback **out)
{
    const struct bps_round *round = d->slice->round;
    *out = bps_feedback_is_of(d->coding, false) ? &round->base.key->feedback : NULL;
    return *out == NULL ? BPS_OK
                        : bps_feedback_fit(*out, d->coding, d->type, round->bytes / bps_dtype_size(round->spec.dtype),
                                           round->slices, false);
}

void bps_round_settle_before(const struct bps_round *round)
{
    struct bps_feedback *feedback = &round->base.key->feedback;
    if ((int32_t)(round->base.id.round - feedback->round) > 0) {
        bps_feedback_settle(feedback, true);
    }
}

/* Its next state is made by this round. An earlier one did not count, if nobody has said that it does. */
static void enter(struct bps_feedback *feedback, uint32_t round)
{
    bps_assert(feedback->coding != NULL);
    if (feedback->round != round) {
        bps_feedback_settle(feedback, false);
    }
    feedback->moving = true;
    feedback->round = round;
}

static bps_status code(const struct decoded *d, struct bps_report *report)
{
    const struct bps_instance *compressor = d->coding->compressor;
    struct bps_sum_slice *slice = d->slice;
    const struct bps_round *round = slice->round;
    const struct bps_round_id *id = &slice->id;
    const struct bps_feedback_slice part = {slice->index, d->first,          d->count,
                                            round->rate,  round->spec.exact, slice->brought};
    size_t room = bps_coding_bound(d->coding, round->spec.exact, round->spec.dtype, d->count);
    struct bps_feedback *feedback;
    bps_status status = find_feedback(d, &feedback);
    char *coded = status == BPS_OK ? bps_block_get(round->sum, &slice->block, room) : NULL;
    if (coded == NULL) {
        return BPS_ERR_NOMEM;
    }
    const struct bps_random random =
        bps_coding_random(d->coding, id->tensor, id->partition, id->round, slice->index, BPS_CODING_SERVER);
    if (feedback != NULL) {
        enter(feedback, id->round);
    }
    bool moves = feedback != NULL && bps_feedback_is_finite(d->type, d->sum.data, d->count);
    if (moves) {
        bps_feedback_apply(feedback, &part, d->sum.data, d->sum.data);
    }
    BPS_CALLING(compressor, "encode", NULL);
    size_t bytes = bps_coding_ops(d->coding, round->spec.exact)
                       ->encode(compressor->self, d->type, d->sum.data, d->count, &random, coded);
    status = bps_returned_bytes(compressor, "encode", bytes, room, report);
    slice->payload = coded;
    slice->payload_bytes = (uint32_t)bytes;
    if (moves && status == BPS_OK) {
        status = bps_feedback_move_from(feedback, &part, d->sum.data, coded, bytes);
        return status == BPS_OK
                   ? BPS_OK
                   : bps_blame(compressor, "decode_add", report, "returned %d for data that encode produced", status);
    }
    if (feedback != NULL) {
        bps_feedback_keep(feedback, &part);
    }
    return status;
}

static bps_status coded_sum_finish(struct bps_sum_slice *slice, struct bps_report *report)
{
    struct bps_round *round = slice->round;
    uint32_t dtype = round->spec.dtype, type = bps_coding_type(dtype), size = (uint32_t)bps_dtype_size(dtype);
    struct decoded d = {.slice = slice,
                        .coding = round->spec.coding,
                        .type = type,
                        .first = slice->offset / size,
                        .count = slice->bytes / size};
    if (bps_block_get(round->sum, &d.sum, d.count * bps_dtype_size(type)) == NULL) {
        return BPS_ERR_NOMEM;
    }
    bps_status status = sum_all(&d, report);
    if (status == BPS_OK) {
        status = code(&d, report);
    }
    bps_block_put(round->sum, &d.sum);
    bps_apart_free(slice);
    return status;
}

const void *bps_sum_error(const struct bps_sum *sum, uint32_t tensor, uint32_t partition, bool dropped, uint64_t *bytes)
{
    const struct bps_round_id id = {.tensor = tensor, .partition = partition};
    struct bps_key *key = bps_key_known(sum, &id);
    struct bps_feedback *feedback = key != NULL ? &key->feedback : NULL;
    bool there = feedback != NULL && feedback->coding != NULL && feedback->now.error != NULL;
    if (there) {
        bps_feedback_settle(feedback, !dropped);
    }
    *bytes = there ? feedback->count * bps_dtype_size(feedback->type) : 0;
    return there ? feedback->now.error : NULL;
}

const struct bps_sum_policy bps_coded = {
    .apart = true,
    .entry = bps_apart_entry,
    .take = bps_apart_take,
    .finish = coded_sum_finish,
    .free_parts = bps_apart_free,
};
