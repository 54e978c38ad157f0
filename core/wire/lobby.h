/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lobby.h - where accepted links wait until their HELLO has been judged.
 *
 * Bounds what strangers can take: a number of connections at a time, beside those of all members, and a time for the
 * handshake. Where there are more, the oldest makes room; whoever has proved to be a member never does. Links that were
 * let in leave the lobby and belong to its owner.
 */
#ifndef BPS_WIRE_LOBBY_H
#define BPS_WIRE_LOBBY_H

#include "wire/link.h"

#define BPS_LOBBY_STRANGERS 256u
#define BPS_LOBBY_SECONDS   10u

/* An accepted link; `owner` of the link is the guest itself. */
struct bps_guest {
    struct bps_link link;
    struct bps_lobby *lobby; /* NULL once admitted */
    void *host;              /* the lobby's owner */
    void *user;              /* the owner's, NULL at first */
    bool proved;             /* it knows the key of its link */
    uint64_t since;
    TAILQ_ENTRY(bps_guest) entry;
};

struct bps_lobby {
    const struct bps_link_handler *handler;
    const struct bps_instance *transport; /* NULL: not known before it listens */
    void *host;
    uint32_t members;  /* how many links of members may come at once */
    uint32_t unproved; /* guests */
    TAILQ_HEAD(, bps_guest) guests;
};

void bps_lobby_init(struct bps_lobby *lobby, const struct bps_link_handler *handler,
                    const struct bps_instance *transport, void *host, uint32_t members);
/*
 * Drops everybody who still waits; the handler's closed is called for each, as for all that the lobby drops.
 */
void bps_lobby_fini(struct bps_lobby *lobby);
/* A bps_accept_fn; its argument is the lobby. */
const struct bps_channel_events *bps_lobby_accept(void *lobby, struct bps_channel *channel, const char *peer,
                                                  void **user, const struct bps_channel_key **key);
/* A guest has proved to be a member, and stays for now. */
void bps_lobby_keep(struct bps_guest *guest);
/* Whether there are guests that have proved to be members: they are about to say more, or hear why they go. */
bool bps_lobby_has_members(const struct bps_lobby *lobby);
/* Lets a guest in: it no longer counts and is its owner's to free. */
void bps_lobby_admit(struct bps_guest *guest);
/* Frees a guest whose link has ended. */
void bps_guest_free(struct bps_guest *guest);
/* Drops guests that take too long; call it now and then. */
void bps_lobby_sweep(struct bps_lobby *lobby, uint64_t now);

#endif
