/* SPDX-License-Identifier: Apache-2.0 */
/* lobby.c - accepted links before they are known. */
#include "wire/lobby.h"

#include <stdlib.h>

#include "base/clock.h"

void bps_lobby_init(struct bps_lobby *lobby, const struct bps_link_handler *handler,
                    const struct bps_instance *transport, void *host, uint32_t members)
{
    lobby->handler = handler;
    lobby->transport = transport;
    lobby->host = host;
    lobby->members = members;
    lobby->unproved = 0;
    TAILQ_INIT(&lobby->guests);
}

void bps_lobby_admit(struct bps_guest *guest)
{
    if (guest->lobby != NULL) {
        TAILQ_REMOVE(&guest->lobby->guests, guest, entry);
        guest->lobby->unproved -= !guest->proved;
        guest->lobby = NULL;
    }
}

/* The owner hears of it as of any other end, and frees the guest with what it has of its own for it. */
static void evict(struct bps_guest *guest, const char *text)
{
    bps_link_drop(&guest->link);
    guest->link.handler->closed(guest, &guest->link, BPS_ERR_REFUSED, text);
}

static void make_room(struct bps_lobby *lobby)
{
    struct bps_guest *guest = TAILQ_FIRST(&lobby->guests);
    while (guest->proved) {
        guest = TAILQ_NEXT(guest, entry);
    }
    evict(guest, "too many unauthenticated connections");
}

void bps_lobby_fini(struct bps_lobby *lobby)
{
    while (!TAILQ_EMPTY(&lobby->guests)) {
        evict(TAILQ_FIRST(&lobby->guests), "the end");
    }
}

const struct bps_channel_events *bps_lobby_accept(void *arg, struct bps_channel *channel, const char *peer, void **user,
                                                  const struct bps_channel_key **key)
{
    struct bps_lobby *lobby = arg;
    if (lobby->unproved >= lobby->members + BPS_LOBBY_STRANGERS) {
        make_room(lobby);
    }
    struct bps_guest *guest = calloc(1, sizeof *guest);
    if (guest == NULL) {
        return NULL;
    }
    const struct bps_channel_events *events =
        bps_link_accept(&guest->link, lobby->handler, guest, lobby->transport, channel, peer, user, key);
    if (events == NULL) {
        free(guest);
        return NULL;
    }
    guest->lobby = lobby;
    guest->host = lobby->host;
    guest->since = bps_now();
    TAILQ_INSERT_TAIL(&lobby->guests, guest, entry);
    lobby->unproved++;
    return events;
}

void bps_lobby_keep(struct bps_guest *guest)
{
    guest->lobby->unproved -= !guest->proved;
    guest->proved = true;
}

bool bps_lobby_has_members(const struct bps_lobby *lobby)
{
    const struct bps_guest *guest = TAILQ_FIRST(&lobby->guests);
    while (guest != NULL && !guest->proved) {
        guest = TAILQ_NEXT(guest, entry);
    }
    return guest != NULL;
}

void bps_guest_free(struct bps_guest *guest)
{
    bps_lobby_admit(guest);
    free(guest);
}

void bps_lobby_sweep(struct bps_lobby *lobby, uint64_t now)
{
    struct bps_guest *guest = TAILQ_FIRST(&lobby->guests);
    while (guest != NULL && now - guest->since > BPS_LOBBY_SECONDS * BPS_S) {
        evict(guest, "handshake timed out");
        guest = TAILQ_FIRST(&lobby->guests);
    }
}
