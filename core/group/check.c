/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - what always holds of a group and of each worker in it, between two calls. */
#include "base/assert.h"
#include "group/local.h"

static void check_peer(const struct bps_local *local, const struct bps_local_peer *peer, uint32_t place)
{
    bool self = place == local->place;
    bps_assert(peer->local == local && peer->rank < local->worker->job.size);
    bps_assert(place == 0 || peer[-1].rank < peer->rank);
    bps_assert(self == (peer->rank == local->worker->job.rank));
    bps_assert(!self || (peer->link == NULL && !peer->reached && !peer->left));
    bps_assert(peer->link == NULL || bps_local_meets(local, place));
    bps_assert(peer->link == NULL || peer->link == &peer->dialled || peer->guest != NULL);
    bps_assert(peer->link != &peer->dialled || place < local->place);
    bps_assert(peer->guest == NULL || place > local->place);
    bps_assert(STAILQ_EMPTY(&peer->words) || !peer->reached);
    bps_assert(!local->dropped || peer->left || peer->link == NULL || local->worker->failure != BPS_OK ||
               local->worker->suspicion[0] != '\0');
}

void bps_local_check(const struct bps_local *local)
{
    const struct bps_job_info *job = &local->worker->job;
    bps_assert(local->size > 1 && local->place < local->size && local->size <= job->size);
    bps_assert(!local->final || local->size == job->size);
    bps_assert(!local->exchanges || (local->final && local->size <= BPS_EXCHANGE_WORKERS));
    bps_assert(local->all.sum != NULL && local->device_ops != NULL);
    bps_assert(local->types == bps_local_types(local->worker->conf));
    bps_assert(bps_local_links(local) < local->size);
    for (uint32_t place = 0; place < local->size; place++) {
        check_peer(local, &local->peer[place], place);
    }
}
