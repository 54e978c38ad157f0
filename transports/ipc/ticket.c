/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ticket.c - frames whose payload the peer fetches. Their memory is the core's again when the peer has come
 * past their record, or, if it has kept the payload as a loan, when it returns that.
 */
#include "ipc.h"

#include <string.h>

#define FIRST_ROOM 32u
#define MOST       (1u << 20)

static bool grow(struct bps_channel *channel)
{
    const struct bps_host *host = channel->ipc->host;
    struct ipc_tickets *tickets = &channel->tickets;
    uint32_t room = tickets->room == 0 ? FIRST_ROOM : 2 * tickets->room;
    struct ipc_ticket *items = room > MOST ? NULL
                                           : bps_util_grow(host, tickets->items, tickets->room * sizeof *items,
                                                           room * sizeof *items, IPC_LINE);
    if (items == NULL) {
        return false;
    }
    for (uint32_t i = tickets->room; i < room; i++) {
        items[i] = (struct ipc_ticket){.next = i + 1 < room ? i + 1 : IPC_NONE};
    }
    tickets->free = tickets->room;
    tickets->items = items;
    tickets->room = room;
    return true;
}

uint32_t ipc_ticket_new(struct bps_channel *channel, const struct bps_frame *frame, uint8_t *slot)
{
    struct ipc_tickets *tickets = &channel->tickets;
    if (tickets->free == IPC_NONE && !grow(channel)) {
        return IPC_NONE;
    }
    uint32_t index = tickets->free;
    struct ipc_ticket *ticket = &tickets->items[index];
    tickets->free = ticket->next;
    *ticket = (struct ipc_ticket){
        .cookie = frame->cookie,
        .answer = frame->answer,
        .lendable = frame->answer != NULL || frame->lends,
        .slot = slot,
        .bytes = frame->bytes,
        .serial = ticket->serial + 1,
        .used = true,
    };
    return index;
}

void ipc_ticket_queue(struct bps_channel *channel, uint32_t ticket, uint64_t start, uint64_t end)
{
    struct ipc_tickets *tickets = &channel->tickets;
    struct ipc_ticket *item = &tickets->items[ticket];
    item->start = start;
    item->end = end;
    item->next = IPC_NONE;
    if (tickets->first == IPC_NONE) {
        tickets->first = ticket;
    } else {
        tickets->items[tickets->last].next = ticket;
    }
    tickets->last = ticket;
    tickets->bytes += item->bytes;
}

static void ticket_free(struct bps_channel *channel, uint32_t index)
{
    struct ipc_tickets *tickets = &channel->tickets;
    tickets->items[index].used = false;
    tickets->items[index].next = tickets->free;
    tickets->free = index;
}

static void slot_free(struct bps_channel *channel, struct ipc_ticket *ticket)
{
    if (ticket->slot != NULL) {
        ipc_arena_give(channel, ticket->slot, ticket->bytes);
        ticket->slot = NULL;
    }
}

/* Whether the peer has kept the payload. The record is still there: we have not written over it. */
static bool is_lent(const struct bps_channel *channel, const struct ipc_ticket *ticket)
{
    const struct ipc_ring *ring = &channel->ring;
    const struct ipc_record *record = (const void *)(ring->out + (ticket->start & (ring->bytes - 1)));
    return ticket->lendable && record->verdict == IPC_LENT;
}

/* The peer has come past the first record of the queue. */
static void take_up(struct bps_channel *channel)
{
    struct ipc_tickets *tickets = &channel->tickets;
    uint32_t index = tickets->first;
    struct ipc_ticket *ticket = &tickets->items[index];
    void *cookie = ticket->cookie;
    tickets->first = ticket->next;
    tickets->bytes -= ticket->bytes;
    if (ticket->returned) {
        ticket_free(channel, index);
    } else if (is_lent(channel, ticket)) {
        ticket->taken_up = true;
    } else {
        slot_free(channel, ticket);
        ticket_free(channel, index);
        channel->events->sent(channel->user, cookie);
    }
}

bool ipc_reap(struct bps_channel *channel)
{
    const struct ipc_tickets *tickets = &channel->tickets;
    if (!ipc_ring_refresh(&channel->ring)) {
        ipc_channel_end(channel, BPS_ERR_PROTOCOL, "the peer acknowledged data that was not sent");
        return false;
    }
    while (tickets->first != IPC_NONE && tickets->items[tickets->first].end <= channel->ring.peer_head) {
        take_up(channel);
        if (channel->state != IPC_OPEN) {
            return false;
        }
    }
    return true;
}

bps_status ipc_ticket_return(struct bps_channel *channel, uint32_t index, uint32_t serial)
{
    struct ipc_tickets *tickets = &channel->tickets;
    struct ipc_ticket *ticket = index < tickets->room ? &tickets->items[index] : NULL;
    if (ticket == NULL || !ticket->used || !ticket->lendable || ticket->returned || ticket->serial != serial) {
        return BPS_ERR_PROTOCOL;
    }
    void *cookie = ticket->cookie;
    if (ticket->slot != NULL && ticket->answer != NULL) {
        memcpy(ticket->answer, ticket->slot, ticket->bytes);
    }
    slot_free(channel, ticket);
    ticket->returned = true;
    if (ticket->taken_up) {
        ticket_free(channel, index);
    }
    channel->events->sent(channel->user, cookie);
    return BPS_OK;
}

void ipc_tickets_free(struct bps_channel *channel)
{
    channel->ipc->host->release(channel->ipc->host, channel->tickets.items);
}
