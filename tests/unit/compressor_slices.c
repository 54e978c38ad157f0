/* SPDX-License-Identifier: Apache-2.0 */
/* compressor_slices.c - slices that the tests of compressors code and decode, and what is in them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compressor_tests.h"

const struct promise *promised;
struct bps_random slice_draw;

bps_status open_variant(struct rig *rig, int variant, const double *method)
{
    struct rig_setting settings[METHOD_OPTIONS + 1];
    size_t n = 0;
    while (n < METHOD_OPTIONS && promised->options[n] != NULL) {
        settings[n] = (struct rig_setting){promised->options[n], method[n]};
        n++;
    }
    if (promised->variant != NULL) {
        settings[n++] = (struct rig_setting){promised->variant, variant};
    }
    return rig_open(rig, promised->module(), settings, n);
}

struct slice make_slice(int variant, const double *method, uint32_t dtype, size_t count)
{
    struct slice s = {.method = method, .dtype = dtype, .count = count};
    ck_assert_int_eq(open_variant(&s.rig, variant, method), BPS_OK);
    s.room = s.bytes = s.rig.ops->bound(s.rig.instance, dtype, count);
    s.from = rig_odd(count * rig_size(dtype), &s.base[0]);
    s.code = rig_odd(s.room, &s.base[1]);
    s.to = rig_odd(count * rig_size(dtype), &s.base[2]);
    memset(s.code, 0xa5, s.room);
    calm(&s);
    for (size_t i = 0; i < count; i++) {
        rig_put(dtype, s.to, i, (double)i - 100);
    }
    return s;
}

void free_slice(struct slice *s)
{
    for (int i = 0; i < 3; i++) {
        free(s->base[i]);
    }
    s->rig.ops->close(s->rig.instance);
}

void encode(struct slice *s)
{
    s->bytes = s->rig.ops->encode(s->rig.instance, s->dtype, s->from, s->count, &slice_draw, s->code);
    ck_assert_uint_le(s->bytes, s->room);
    ck_assert_uint_ge(s->bytes, promised->exact ? s->room : s->count > 0);
}

bps_status decode(struct slice *s)
{
    return s->rig.ops->decode(s->rig.instance, s->dtype, s->code, s->bytes, s->to, s->count);
}

bps_status decode_add(struct slice *s)
{
    return s->rig.ops->decode_add(s->rig.instance, s->dtype, s->code, s->bytes, s->to, s->count);
}

#define FENCED ((size_t)2 << 20)

uint8_t *make_fence(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *all = mmap(NULL, FENCED + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(all != MAP_FAILED);
    ck_assert_int_eq(mprotect(all + page, FENCED, PROT_READ | PROT_WRITE), 0);
    return all + page;
}

uint8_t *fenced_place(uint8_t *fenced, size_t bytes, bool at_the_end)
{
    ck_assert_uint_le(bytes, FENCED);
    return fenced + (at_the_end ? FENCED - bytes : 0);
}

bps_status decode_bytes(const struct slice *s, const uint8_t *code, size_t bytes)
{
    static uint8_t *fence; /* for reads behind the end, which nothing else sees without a sanitizer */
    struct slice once = *s, sum = *s;
    void *base[2];
    fence = fence != NULL ? fence : make_fence();
    once.code = rig_odd(bytes, &base[0]);
    sum.code = memcpy(fenced_place(fence, bytes, true), code, bytes);
    sum.to = rig_odd(s->count * rig_size(s->dtype), &base[1]);
    once.bytes = sum.bytes = bytes;
    memcpy(once.code, code, bytes);
    memset(sum.to, 0, s->count * rig_size(s->dtype));
    bps_status status = decode(&once);
    ck_assert_int_eq(decode_add(&sum), status);
    ck_assert(status == BPS_OK ? bytes <= s->room : status == BPS_ERR_PROTOCOL);
    for (size_t i = 0; status == BPS_OK && i < s->count; i++) {
        double x = rig_get(s->dtype, once.to, i), y = rig_get(s->dtype, sum.to, i);
        ck_assert(x == y || (isnan(x) && isnan(y)));
    }
    free(base[0]);
    free(base[1]);
    return status;
}

void calm(struct slice *s)
{
    for (size_t i = 0; i < s->count; i++) {
        double x = (double)((int)(i * 7919 % 2003) - 1000) * 1e-3;
        rig_put(s->dtype, s->from, i, i % 11 == 0 ? 0 : x * x * x);
    }
}

void any_bits(struct slice *s, unsigned which, unsigned *seed)
{
    static const double special[] = {0.0, -0.0, 1e-45,    -1e-38,    1,        -1,    0.5,
                                     NAN, -NAN, INFINITY, -INFINITY, 65519.99, 65520, 0x1.fffffep127};
    int spread = rand_r(seed) % 4 * (s->dtype == BPS_FLOAT32 ? 40 : 300);
    bool broken = rand_r(seed) % 2;
    (void)which;
    for (size_t i = 0; i < s->count; i++) {
        double x = (rand_r(seed) / (double)RAND_MAX - 0.5) * ldexp(1, rand_r(seed) % (spread + 5) - spread / 2);
        double other = special[rand_r(seed) % SIZE_OF(special)];
        bool take = rand_r(seed) % (isfinite(other) ? 9 : 400) == 0 && (broken || isfinite(other));
        rig_put(s->dtype, s->from, i, take ? other : x);
    }
}

void put_all(struct slice *s, const double *elements)
{
    for (size_t i = 0; i < s->count; i++) {
        rig_put(s->dtype, s->from, i, elements[i]);
    }
}

size_t itself_alone(const double *method)
{
    (void)method;
    return 1;
}

double unchanged(double broken)
{
    return broken;
}

double nan_of(double broken)
{
    (void)broken;
    return NAN;
}

uint32_t philox(uint64_t key, uint64_t counter, size_t word)
{
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0}, k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    for (int i = 0; i < 10; i++) {
        uint64_t a = (uint64_t)c[0] * 0xd2511f53, b = (uint64_t)c[2] * 0xcd9e8d57;
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1],
                            (uint32_t)a};
        memcpy(c, next, sizeof c);
        k[0] += 0x9e3779b9;
        k[1] += 0xbb67ae85;
    }
    return c[word];
}

bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

double typed(uint32_t dtype, double x)
{
    return dtype == BPS_FLOAT32 ? (double)(float)x : x;
}
