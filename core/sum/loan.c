/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loan.c - memory that contributors have lent: read, written, returned. Mapped, or reached by way of its
 * owner's link.
 */
#include <string.h>

#include "sum/round.h"

#include "base/assert.h"

struct bps_loan *bps_sum_loan(const struct bps_sum_slice *slice, uint32_t rank)
{
    const struct bps_round *round = slice->round;
    uint32_t slot = bps_ranks_slot(round->ranks, rank);
    bps_assert(slot < round->ranks->n);
    return round->policy->apart ? bps_parts(slice)[slot].loan : NULL;
}

const char *bps_loan_data(struct bps_sum_slice *slice, uint32_t rank, uint32_t offset, uint32_t bytes, char *scratch)
{
    bps_assert(offset <= slice->bytes && bytes <= slice->bytes - offset);
    const struct bps_sum_config *config = &slice->round->sum->config;
    struct bps_loan *loan = bps_sum_loan(slice, rank);
    if (loan->data != NULL) {
        return (const char *)loan->data + offset;
    }
    if (config->events->loan_read(config->owner, rank, loan, offset, scratch, bytes) != BPS_OK) {
        slice->round->lost = rank;
        return NULL;
    }
    return scratch;
}

bps_status bps_loan_write(struct bps_sum_slice *slice, uint32_t rank, uint32_t offset, uint32_t bytes, const char *data)
{
    bps_assert(offset <= slice->bytes && bytes <= slice->bytes - offset);
    const struct bps_sum_config *config = &slice->round->sum->config;
    struct bps_loan *loan = bps_sum_loan(slice, rank);
    if (loan == NULL) {
        return BPS_OK; /* it gets the payload */
    }
    if (loan->answer != NULL) {
        char *to = (char *)loan->answer + offset;
        if (to != data) {
            memcpy(to, data, bytes);
        }
        return BPS_OK;
    }
    if (config->events->loan_write(config->owner, rank, loan, offset, data, bytes) != BPS_OK) {
        slice->round->lost = rank;
        return BPS_ERR_LOST;
    }
    return BPS_OK;
}

bps_status bps_loans_write(struct bps_sum_slice *slice, uint32_t except, uint32_t offset, uint32_t bytes,
                           const char *data)
{
    const struct bps_ranks *ranks = slice->round->ranks;
    bps_status status = BPS_OK;
    for (uint32_t i = 0; i < ranks->n && status == BPS_OK; i++) {
        uint32_t rank = ranks->rank[i];
        if (rank != except && bps_slice_wants(slice, rank)) {
            status = bps_loan_write(slice, rank, offset, bytes, data);
        }
    }
    return status;
}

void bps_loans_release(struct bps_round *round)
{
    const struct bps_sum *sum = round->sum;
    for (uint32_t s = 0; bps_aggregates(sum) && round->policy->apart && s < round->slices; s++) {
        for (uint32_t i = 0; i < round->ranks->n; i++) {
            struct bps_part *part = &bps_parts(&round->slice[s])[i];
            struct bps_loan *loan = part->loan;
            part->loan = NULL;
            if (loan != NULL) {
                sum->config.events->released(sum->config.owner, round->ranks->rank[i], loan);
            }
        }
    }
}

void bps_loans_forget(struct bps_round *round, uint32_t rank)
{
    bool has = round->policy->apart && bps_ranks_has(round->ranks, rank);
    for (uint32_t i = 0; has && i < round->slices; i++) {
        bps_parts(&round->slice[i])[bps_ranks_slot(round->ranks, rank)].loan = NULL;
    }
}
