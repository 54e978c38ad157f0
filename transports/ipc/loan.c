/* SPDX-License-Identifier: Apache-2.0 */
/* loan.c - payloads that the peer has lent: in pages that are mapped here, or in its own memory. */
#include "ipc.h"

#include <string.h>

static void count_in_region(struct ipc_loan *loan, bool more)
{
    struct ipc_region *data = ipc_region_get(loan->channel, loan->region);
    struct ipc_region *answer = ipc_region_get(loan->channel, loan->answer_region);
    if (data != NULL) {
        data->loans += more ? 1 : -1u;
    }
    if (answer != NULL) {
        answer->loans += more ? 1 : -1u;
    }
}

static void loan_free(struct ipc_loan *loan)
{
    const struct bps_host *host = loan->channel->ipc->host;
    count_in_region(loan, false);
    LIST_REMOVE(loan, entry);
    host->release(host, loan);
}

/* Where the record says that the payload and the answer lie. */
static bps_status locate(struct ipc_loan *loan, const struct ipc_record *record)
{
    struct bps_channel *channel = loan->channel;
    if (record->kind == IPC_REMOTE) {
        loan->at = record->at;
        loan->answer = record->answer;
        return BPS_OK;
    }
    /*
     * Looking for a region may read messages, and one of them may end the other region: so the second look.
     */
    bool answered = (record->flags & IPC_UNANSWERED) == 0;
    (void)ipc_region_address(channel, record->region, record->at, loan->loan.bytes);
    if (answered) {
        loan->loan.answer = ipc_region_address(channel, record->answer_region, record->answer, loan->loan.bytes);
    }
    loan->loan.data = ipc_region_address(channel, record->region, record->at, loan->loan.bytes);
    if (loan->loan.data == NULL || (answered && loan->loan.answer == NULL)) {
        return BPS_ERR_PROTOCOL;
    }
    loan->region = record->region;
    loan->answer_region = answered ? record->answer_region : IPC_NONE;
    return BPS_OK;
}

bps_status ipc_loan_offer(struct bps_channel *channel, struct bps_sink *sink, const struct ipc_record *record,
                          uint32_t bytes)
{
    const struct bps_host *host = channel->ipc->host;
    struct ipc_loan *loan = sink->lend != NULL ? host->alloc(host, sizeof *loan, 8) : NULL;
    if (loan == NULL) {
        return BPS_AGAIN;
    }
    *loan = (struct ipc_loan){
        .loan = {.size = sizeof loan->loan, .bytes = bytes},
        .channel = channel,
        .ticket = record->ticket,
        .serial = record->serial,
        .region = IPC_NONE,
        .answer_region = IPC_NONE,
    };
    bps_status status = locate(loan, record);
    if (status != BPS_OK) {
        host->release(host, loan);
        return status;
    }
    LIST_INSERT_HEAD(&channel->loans, loan, entry);
    count_in_region(loan, true);
    status = sink->lend(sink, &loan->loan);
    /* A loan that was returned meanwhile is gone already; so is the whole channel if it was dropped. */
    if (status == BPS_OK) {
        ++*channel->ipc->count.loans;
    } else {
        loan_free(loan);
    }
    return status;
}

void ipc_loan_end(struct ipc_loan *loan)
{
    loan_free(loan);
}

void ipc_loans_free(struct bps_channel *channel)
{
    while (!LIST_EMPTY(&channel->loans)) {
        loan_free(LIST_FIRST(&channel->loans));
    }
}

static bool is_within(const struct bps_loan *loan, uint32_t offset, uint32_t bytes)
{
    return offset <= loan->bytes && bytes <= loan->bytes - offset;
}

bps_status ipc_loan_read(struct bps_channel *channel, struct bps_loan *loan, uint32_t offset, void *to, uint32_t bytes)
{
    const struct ipc_loan *own = (const struct ipc_loan *)loan;
    if (own->channel != channel || !is_within(loan, offset, bytes)) {
        return BPS_ERR_INVALID;
    }
    if (loan->data != NULL) {
        memcpy(to, (const uint8_t *)loan->data + offset, bytes);
        return BPS_OK;
    }
    return ipc_remote_read(channel, own->at + offset, to, bytes);
}

bps_status ipc_loan_write(struct bps_channel *channel, struct bps_loan *loan, uint32_t offset, const void *from,
                          uint32_t bytes)
{
    const struct ipc_loan *own = (const struct ipc_loan *)loan;
    if (own->channel != channel || !is_within(loan, offset, bytes)) {
        return BPS_ERR_INVALID;
    }
    if (loan->answer != NULL) {
        memcpy((uint8_t *)loan->answer + offset, from, bytes);
        return BPS_OK;
    }
    if (own->answer == 0) {
        return BPS_ERR_INVALID; /* there is no place for one */
    }
    return ipc_remote_write(channel, own->answer + offset, from, bytes);
}
