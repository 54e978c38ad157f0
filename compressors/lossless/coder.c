/* SPDX-License-Identifier: Apache-2.0 */
/* coder.c - bytes through zstd or lz4, with contexts that are kept for the next call. */
#include "coder.h"

#include <endian.h>
#include <string.h>

/* ---- zstd -------------------------------------------------------------------------------------------------- */

#ifdef HAVE_ZSTD
#include <zstd.h>

#define ZSTD_LEVELS 19

static bool zstd_open(struct workspace *w)
{
    w->compress = ZSTD_createCCtx();
    w->decompress = ZSTD_createDCtx();
    return w->compress != NULL && w->decompress != NULL;
}

static void zstd_close(struct workspace *w)
{
    ZSTD_freeCCtx(w->compress);
    ZSTD_freeDCtx(w->decompress);
}

static size_t zstd_compress(struct workspace *w, int level, const uint8_t *src, size_t bytes, uint8_t *dst, size_t room)
{
    size_t coded = ZSTD_compressCCtx(w->compress, dst, room, src, bytes, level);
    return ZSTD_isError(coded) ? 0 : coded;
}

/* One frame of today's format: not those of old versions, nor several, nor such as mean nothing. */
static bool zstd_decompress(struct workspace *w, const uint8_t *src, size_t coded, uint8_t *dst, size_t bytes)
{
    uint32_t magic = 0;
    memcpy(&magic, src, coded < sizeof magic ? coded : sizeof magic);
    return le32toh(magic) == ZSTD_MAGICNUMBER && ZSTD_findFrameCompressedSize(src, coded) == coded &&
           ZSTD_getFrameContentSize(src, coded) == bytes &&
           ZSTD_decompressDCtx(w->decompress, dst, bytes, src, coded) == bytes;
}
#else
#define ZSTD_LEVELS     0
#define zstd_open       NULL
#define zstd_close      NULL
#define zstd_compress   NULL
#define zstd_decompress NULL
#endif

/* ---- lz4 --------------------------------------------------------------------------------------------------- */

#ifdef HAVE_LZ4
#include <stdlib.h>

#include <lz4.h>
#include <lz4hc.h>

#define LZ4_LEVELS 12

/* The state of the better compressor, whose levels begin at 2 here, is the larger one. */
static bool lz4_open(struct workspace *w)
{
    int fast = LZ4_sizeofState(), better = LZ4_sizeofStateHC();
    w->compress = malloc((size_t)(fast > better ? fast : better));
    return w->compress != NULL;
}

static void lz4_close(struct workspace *w)
{
    free(w->compress);
}

static size_t lz4_compress(struct workspace *w, int level, const uint8_t *src, size_t bytes, uint8_t *dst, size_t room)
{
    const char *from = (const char *)src;
    int coded = level == 1 ? LZ4_compress_fast_extState(w->compress, from, (char *)dst, (int)bytes, (int)room, 1)
                           : LZ4_compress_HC_extStateHC(w->compress, from, (char *)dst, (int)bytes, (int)room, level);
    return coded > 0 ? (size_t)coded : 0;
}

static bool lz4_decompress(struct workspace *w, const uint8_t *src, size_t coded, uint8_t *dst, size_t bytes)
{
    (void)w;
    return LZ4_decompress_safe((const char *)src, (char *)dst, (int)coded, (int)bytes) == (int)bytes;
}
#else
#define LZ4_LEVELS     0
#define lz4_open       NULL
#define lz4_close      NULL
#define lz4_compress   NULL
#define lz4_decompress NULL
#endif

/* ---- either ------------------------------------------------------------------------------------------------ */

static const struct {
    int levels;
    bool (*open)(struct workspace *w);
    void (*close)(struct workspace *w); /* after an open that failed, too */
    size_t (*compress)(struct workspace *w, int level, const uint8_t *src, size_t bytes, uint8_t *dst, size_t room);
    bool (*decompress)(struct workspace *w, const uint8_t *src, size_t coded, uint8_t *dst, size_t bytes);
} coders[CODERS] = {
    {ZSTD_LEVELS, zstd_open, zstd_close, zstd_compress, zstd_decompress},
    {LZ4_LEVELS, lz4_open, lz4_close, lz4_compress, lz4_decompress},
};

int bps_lossless_levels(enum coder coder)
{
    return coders[coder].levels;
}

size_t bps_lossless_compress(const struct workspaces *all, struct workspace *workspace, const uint8_t *src,
                             size_t bytes, uint8_t *dst, size_t room)
{
    return room > 0 ? coders[all->coder].compress(workspace, all->level, src, bytes, dst, room) : 0;
}

bool bps_lossless_decompress(const struct workspaces *all, struct workspace *workspace, const uint8_t *src,
                             size_t coded, uint8_t *dst, size_t bytes)
{
    return coders[all->coder].decompress(workspace, src, coded, dst, bytes);
}

/* ---- workspaces -------------------------------------------------------------------------------------------- */

static void unmake(struct workspaces *all, struct workspace *w)
{
    coders[all->coder].close(w);
    all->host->release(all->host, w);
}

static struct workspace *make(struct workspaces *all)
{
    struct workspace *w = all->host->alloc(all->host, sizeof *w, 64);
    if (w == NULL) {
        return NULL;
    }
    w->next = NULL;
    w->compress = w->decompress = NULL;
    if (!coders[all->coder].open(w)) {
        unmake(all, w);
        return NULL;
    }
    return w;
}

bool bps_lossless_workspaces_init(struct workspaces *all, const struct bps_host *host, enum coder coder, int level)
{
    *all = (struct workspaces){.host = host, .coder = coder, .level = level};
    all->idle = make(all);
    if (all->idle == NULL) {
        return false;
    }
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->returned, NULL);
    return true;
}

void bps_lossless_workspaces_fini(struct workspaces *all)
{
    for (struct workspace *w = all->idle, *next; w != NULL; w = next) {
        next = w->next;
        unmake(all, w);
    }
    pthread_mutex_destroy(&all->lock);
    pthread_cond_destroy(&all->returned);
}

/* Where there is no memory for another one, it waits until one comes back: so that coding cannot fail. */
struct workspace *bps_lossless_borrow(struct workspaces *all)
{
    pthread_mutex_lock(&all->lock);
    while (all->idle == NULL && (all->idle = make(all)) == NULL) {
        pthread_cond_wait(&all->returned, &all->lock);
    }
    struct workspace *w = all->idle;
    all->idle = w->next;
    pthread_mutex_unlock(&all->lock);
    return w;
}

void bps_lossless_return(struct workspaces *all, struct workspace *workspace)
{
    pthread_mutex_lock(&all->lock);
    workspace->next = all->idle;
    all->idle = workspace;
    pthread_cond_signal(&all->returned);
    pthread_mutex_unlock(&all->lock);
}
