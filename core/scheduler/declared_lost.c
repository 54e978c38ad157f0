/* SPDX-License-Identifier: Apache-2.0 */
/* declared_lost.c - partitions whose shard is lost: their heirs sum them from now on. */
#include "node/unnamed.h"
#include "scheduler/declared.h"

static bool declared_lost_find(const struct bps_book *book, uint32_t id, uint32_t i, uint16_t *shard)
{
    bool lost = book->shard[*shard].lost;
    *shard = lost ? bps_unnamed_shard(book, book, id, i) : *shard;
    return lost;
}

void bps_declared_inherit(struct bps_declared *declared, const struct bps_book *book)
{
    bps_placement_weigh(&declared->placement, book);
    for (struct bps_declared_tensor *t = declared->ids; t != NULL; t = t->by_id.next) {
        for (uint32_t i = 0; i < t->layout.n; i++) {
            uint16_t shard = t->layout.part[i].shard;
            if (declared_lost_find(book, t->id, i, &shard)) {
                bps_placement_shift(&declared->placement, &t->layout, i, shard);
            }
        }
        for (uint32_t i = 0; i < t->before.n; i++) {
            declared_lost_find(book, t->id, i, &t->before.part[i].shard);
        }
    }
}
