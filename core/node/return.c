/* SPDX-License-Identifier: Apache-2.0 */
/* return.c - see return.h. */
#include "node/return.h"

#include <openssl/evp.h>

bps_status bps_return_of(const struct bps_book *book, uint32_t rank, struct bps_return *out)
{
    struct bps_writer w;
    *out = (struct bps_return){.epoch = book->epoch, .view = book->view, .rank = rank};
    bps_writer_init(&w);
    bps_put_u32(&w, book->epoch);
    bps_put_u32(&w, book->workers);
    for (uint32_t i = 0; i < book->workers; i++) {
        bps_put_bytes(&w, book->member[i].public_key, sizeof book->member[i].public_key);
    }
    bool good = !w.failed && EVP_Digest(w.data, w.size, out->members, NULL, EVP_sha256(), NULL) == 1;
    bps_writer_fini(&w);
    return good ? BPS_OK : BPS_ERR_FAILED;
}

void bps_return_write(const struct bps_return *is, const struct bps_join *join, struct bps_writer *w)
{
    bps_put_u32(w, is->epoch);
    bps_put_u32(w, is->view);
    bps_put_u32(w, is->rank);
    bps_put_u8(w, is->leaves);
    bps_put_bytes(w, is->members, sizeof is->members);
    bps_join_write(join, w);
}

bps_status bps_return_read(struct bps_reader *r, struct bps_return *out, struct bps_join *join)
{
    out->epoch = bps_get_u32(r);
    out->view = bps_get_u32(r);
    out->rank = bps_get_u32(r);
    out->leaves = bps_get_u8(r) != 0;
    bps_get_bytes(r, out->members, sizeof out->members);
    return bps_join_read(r, join);
}
