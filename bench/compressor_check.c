/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compressor_check.c - whether a compressor does what its interface promises, whatever its method is.
 *
 * Its buffers end where a page ends, and the next page cannot be touched: so nothing is read or written behind them
 * unseen. What it decodes is compared with what it adds, and with what the kernels of the baseline make.
 */
#include "bench/compressor_check.h"

#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- memory with a fence ---- */

struct fenced {
    uint8_t *map, *at; /* `at` has as many bytes as were asked for */
    size_t mapped;
};

/* Without memory `map` is MAP_FAILED. */
static struct fenced fence(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
    struct fenced out = {.mapped = room + page};
    out.map = mmap(NULL, out.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (out.map != MAP_FAILED) {
        out.at = out.map + room - bytes;
        mprotect(out.map + room, page, PROT_NONE);
    }
    return out;
}

static void unfence(struct fenced *memory)
{
    if (memory->map != MAP_FAILED) {
        munmap(memory->map, memory->mapped);
    }
}

static sigjmp_buf beyond;

static void on_fault(int signal)
{
    (void)signal;
    siglongjmp(beyond, 1);
}

/* ---- what is promised ---- */

enum { SRC, CODED, WIRE, DST, AGAIN, SUM, BUFFERS };

struct check {
    struct bps_bench_coder coder, baseline;
    size_t count, bytes, bound;
    struct fenced memory[BUFFERS];
};

static const struct bps_random draws = {.shared = 1, .own = 2};

static size_t encode(struct check *c, struct bps_bench_coder with, int to)
{
    return with.ops->encode(with.self, BPS_FLOAT32, c->memory[SRC].at, c->count, &draws, c->memory[to].at);
}

/* What is on the wire, into memory full of `before`. */
static bool decodes(struct check *c, struct bps_bench_coder with, size_t coded, int to, int before)
{
    memset(c->memory[to].at, before, c->bytes);
    return with.ops->decode(with.self, BPS_FLOAT32, c->memory[WIRE].at, coded, c->memory[to].at, c->count) == BPS_OK;
}

static bool same(const struct check *c, int a, int b)
{
    return memcmp(c->memory[a].at, c->memory[b].at, c->bytes) == 0;
}

/* Whether decode_add to the elements gives them and what decode has made. */
static bool adds(struct check *c, struct bps_bench_coder with, size_t coded)
{
    const float *src = (const float *)c->memory[SRC].at, *dst = (const float *)c->memory[DST].at;
    float *sum = (float *)c->memory[SUM].at;
    memcpy(sum, src, c->bytes);
    bool right = with.ops->decode_add(with.self, BPS_FLOAT32, c->memory[WIRE].at, coded, sum, c->count) == BPS_OK;
    for (size_t i = 0; i < c->count && right; i++) {
        right = sum[i] == src[i] + dst[i];
    }
    return right;
}

/* The bytes on the wire, and what was made of them, are the baseline's. */
static const char *check_baseline(struct check *c, size_t coded)
{
    if (encode(c, c->baseline, CODED) != coded || memcmp(c->memory[CODED].at, c->memory[WIRE].at, coded) != 0) {
        return "codes other bytes than with isa = \"baseline\"";
    }
    if (!decodes(c, c->baseline, coded, AGAIN, 0) || !same(c, DST, AGAIN)) {
        return "decodes other elements than with isa = \"baseline\"";
    }
    return adds(c, c->baseline, coded) ? NULL : "adds other elements than with isa = \"baseline\"";
}

static const char *check(struct check *c)
{
    size_t coded = encode(c, c->coder, CODED);
    if (coded > c->bound) {
        return "has coded more bytes than its bound() says";
    }
    c->memory[WIRE].at += c->bound - coded; /* the last byte is before the fence */
    memcpy(c->memory[WIRE].at, c->memory[CODED].at, coded);
    if (!decodes(c, c->coder, coded, DST, 0xff) || !decodes(c, c->coder, coded, AGAIN, 0)) {
        return "refuses what it has coded itself";
    }
    if (!same(c, DST, AGAIN)) {
        return "decodes the same bytes to other elements, or not to all";
    }
    if (!adds(c, c->coder, coded)) {
        return "adds something else than it decodes";
    }
    return c->baseline.ops != NULL ? check_baseline(c, coded) : NULL;
}

/* ---- the whole ---- */

static const char *check_with_fences(struct check *c)
{
    struct sigaction caught = {.sa_handler = on_fault}, before;
    const char *wrong = "touches memory outside its buffers";
    sigaction(SIGSEGV, &caught, &before);
    if (sigsetjmp(beyond, 1) == 0) {
        wrong = check(c);
    }
    sigaction(SIGSEGV, &before, NULL);
    return wrong;
}

const char *bps_bench_check_compressor(struct bps_bench_coder coder, struct bps_bench_coder baseline, const float *src,
                                       size_t count)
{
    struct check c = {.coder = coder, .baseline = baseline, .count = count, .bytes = count * sizeof *src};
    const char *wrong = "cannot be checked: no memory";
    bool all = true;
    c.bound = coder.ops->bound(coder.self, BPS_FLOAT32, count);
    for (int i = 0; i < BUFFERS; i++) {
        c.memory[i] = fence(i == CODED || i == WIRE ? c.bound : c.bytes);
        all = all && c.memory[i].map != MAP_FAILED;
    }
    if (all) {
        memcpy(c.memory[SRC].at, src, c.bytes);
        wrong = check_with_fences(&c);
    }
    for (int i = 0; i < BUFFERS; i++) {
        unfence(&c.memory[i]);
    }
    return wrong;
}
