/* SPDX-License-Identifier: Apache-2.0 */
/* late_message.c - see late_message.h. Of the many buckets only those with something in them travel. */
#include "node/late_message.h"

#define LIMIT (8u << 20) /* bytes: far below what a message may have */

static uint32_t write_counts(const struct bps_lateness *l, struct bps_writer *w)
{
    uint32_t n = 0;
    for (uint32_t who = 0; l->count != NULL && who < 2 * l->workers; who++) {
        for (uint32_t i = 0; l->count[who] != NULL && i < BPS_LATE_BUCKETS; i++) {
            if (l->count[who][i] > 0 && w->size < LIMIT) {
                bps_put_u32(w, who);
                bps_put_u32(w, i);
                bps_put_u32(w, l->count[who][i]);
                n++;
            }
        }
    }
    return n;
}

void bps_lateness_write(const struct bps_lateness *l, struct bps_writer *w)
{
    struct bps_writer counts;
    bps_writer_init(&counts);
    uint32_t n = write_counts(l, &counts);
    bps_put_u32(w, l->engines);
    bps_put_u64(w, l->span);
    bps_put_u32(w, n);
    bps_put_bytes(w, counts.data, counts.size);
    w->failed |= counts.failed;
    bps_writer_fini(&counts);
}

bps_status bps_lateness_read(struct bps_reader *r, struct bps_lateness *into)
{
    into->engines += bps_get_u32(r);
    into->span += bps_get_u64(r);
    uint32_t n = bps_get_u32(r);
    for (uint32_t i = 0; i < n && !r->bad; i++) {
        uint32_t who = bps_get_u32(r), bucket = bps_get_u32(r), times = bps_get_u32(r);
        if (r->bad || who >= 2 * into->workers || bucket >= BPS_LATE_BUCKETS) {
            return BPS_ERR_PROTOCOL;
        }
        bps_lateness_count(into, who, bucket, times);
    }
    return bps_reader_done(r) ? BPS_OK : BPS_ERR_PROTOCOL;
}
