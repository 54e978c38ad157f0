/* SPDX-License-Identifier: Apache-2.0 */
/* coder.h - the libraries that code bytes, and what a thread needs while it uses one. */
#ifndef BPS_LOSSLESS_CODER_H
#define BPS_LOSSLESS_CODER_H

#include <pthread.h>

#include <byteps/compressor.h>

/* The values of the option method. */
enum coder { ZSTD, LZ4, CODERS };
#define CODER_WORDS "zstd|lz4"

/* Elements that are coded at once. */
#define CHUNK 16384u

/* What one thread needs. */
struct workspace {
    struct workspace *next;
    void *compress, *decompress; /* the library's contexts; NULL: it needs none */
    uint8_t planes[CHUNK * sizeof(double)];
};

/* Workspaces that nobody uses now. There is at least one in all. */
struct workspaces {
    const struct bps_host *host;
    enum coder coder;
    int level;
    pthread_mutex_t lock;
    pthread_cond_t returned;
    struct workspace *idle;
};

/* The highest level of a coder; 0: this build lacks it. */
int bps_lossless_levels(enum coder coder);

/* false: no memory. */
bool bps_lossless_workspaces_init(struct workspaces *all, const struct bps_host *host, enum coder coder, int level);
void bps_lossless_workspaces_fini(struct workspaces *all);
struct workspace *bps_lossless_borrow(struct workspaces *all);
void bps_lossless_return(struct workspaces *all, struct workspace *workspace);

/* How many bytes it has written, at most `room`; 0: they would be more. */
size_t bps_lossless_compress(const struct workspaces *all, struct workspace *workspace, const uint8_t *src,
                             size_t bytes, uint8_t *dst, size_t room);
/* false: the source, which is foreign, is not `bytes` bytes, no fewer and no more. */
bool bps_lossless_decompress(const struct workspaces *all, struct workspace *workspace, const uint8_t *src,
                             size_t coded, uint8_t *dst, size_t bytes);

#endif
