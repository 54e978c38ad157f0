/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_kernels.c - the reductions of the reducer "cuda" give what the reducer "cpu" gives, bit by bit: every
 * type and operation, at all alignments, for what is rounded, NaN and infinite, too.
 *
 *     test_kernels                  compares
 *     test_kernels measure BYTES    prints JSON: how fast each kernel is beside a copy on the device
 *
 * The driver is the stand-in (tests/gpu/standin); with TEST_GPU=1 it is that of this machine.
 */
#include <string.h>
#include <time.h>

#include <byteps/reducer.h>

#include "tests/gpu/device_rig.h"

#define SOURCES BPS_REDUCTION_SOURCES
#define ALIGN   64u

const struct bps_module *bps_module_reducer_cpu(void);

static const uint32_t real_ops[] = {BPS_SUM, BPS_MIN, BPS_MAX, BPS_PRODUCT};

/* ---- the two reducers ---- */

static void host_log(const struct bps_host *host, uint32_t level, const char *format, ...)
{
    (void)host;
    (void)level;
    (void)format;
}

static struct bps_kernels kernels_of_cpu(uint32_t op, uint32_t dtype)
{
    static const struct bps_host host = {.size = sizeof host, .instance = "sum", .log = host_log};
    const uint32_t automatic = 0;
    const struct bps_reducer_ops *cpu = bps_module_reducer_cpu()->plugins[0]->ops;
    struct bps_report report;
    struct bps_kernels kernels;
    void *self;
    EXPECT(cpu->open(&host, &automatic, &self, &report) == BPS_OK, "%s", report.text);
    EXPECT(cpu->kernels(self, op, dtype, &kernels) == BPS_OK, "the reducer cpu has no such kernel");
    return kernels;
}

static void begin(struct bps_reduction *reduction)
{
    struct bps_report report = {""};
    reduction->done = rig_done;
    rig.left++;
    EXPECT(rig.ops->reduce(rig.instance->self, reduction, &report) == BPS_OK, "%s", report.text);
}

/* ---- data ---- */

static uint64_t draw(void)
{
    static uint64_t seed = 88172645463325252u;
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* Elements of any bits; among them many whose exponents are near, so that sums round, and the largest, so
 * that they are infinite or NaN. */
static void fill(uint8_t *memory, size_t bytes, uint32_t dtype)
{
    size_t size = bps_dtype_size(dtype);
    static const uint8_t exponents[BPS_DTYPES] = {
        [BPS_FLOAT32] = 0x3f, [BPS_FLOAT64] = 0x3f, [BPS_FLOAT16] = 0x3c, [BPS_BFLOAT16] = 0x3f};
    for (size_t i = 0; i < bytes; i++) {
        memory[i] = (uint8_t)draw();
    }
    for (size_t i = 0; exponents[dtype] != 0 && i + size <= bytes; i += size) {
        uint8_t *top = &memory[i + size - 1], sign = *top & 0x80;
        switch (draw() % 8) {
        case 0:
            break;
        case 1:
            *top = sign | 0x7f;
            memory[i + size - 2] |= 0xf0;
            break;
        case 2:
            memset(&memory[i], 0, size);
            *top = sign | (dtype != BPS_FLOAT16 && draw() % 2 ? 0x7f : 0x7c);
            memory[i + size - 2] = dtype == BPS_FLOAT16 ? 0 : dtype == BPS_FLOAT64 ? 0xf0 : 0x80;
            break;
        case 3:
            *top = sign;
            break;
        default:
            *top = sign | exponents[dtype];
        }
    }
}

/* ---- comparing ---- */

struct sample {
    uint32_t op, dtype;
    unsigned n, alignment, number;
    size_t count;
};

/* Where a source, or behind them the result, lies in its room. */
static size_t offset_of(const struct sample *s, unsigned i)
{
    size_t size = bps_dtype_size(s->dtype);
    const size_t offsets[] = {0, size, 1, i * size, 3 * i + 1};
    return offsets[s->alignment];
}

/* A reduction of rooms that begin here. Every third sample has its result in the place of a source. */
static struct bps_reduction arrange(const struct sample *s, uint8_t *base, size_t room)
{
    static const double scales[SOURCES] = {0.37, -1, 3, 1e-30, 1.0 / 3, 65504, 1, 0.5};
    static const double factors[] = {1, 0.1, -2.5};
    static const uint64_t divisors[] = {1, 2, 3, 8, 7, 1ull << 20, 1ull << 40, UINT64_MAX, 1000003};
    bool is_float = strstr(bps_dtype_name(s->dtype), "float") != NULL;
    unsigned place = s->number % 3 == 0 ? s->number % s->n : s->n;
    struct bps_reduction r = {.op = s->op, .dtype = s->dtype, .n = s->n, .count = s->count};
    for (unsigned i = 0; i < s->n; i++) {
        r.src[i] = base + i * room + offset_of(s, i);
    }
    r.dst = base + place * room + offset_of(s, place);
    r.scales = is_float && s->number % 2 == 0 ? scales : NULL;
    r.scale = is_float ? factors[s->number % 3] : 1;
    r.divisor = is_float ? divisors[s->number % 9] : 1;
    return r;
}

/* The host's memory and the device's are alike; then both reduce, and must be alike again, all around as
 * well. */
static void compare(const struct sample *s, const struct bps_kernels *cpu)
{
    size_t room = (s->count * bps_dtype_size(s->dtype) + 2 * ALIGN) / ALIGN * ALIGN, bytes = room * (s->n + 1);
    uint8_t *host = aligned_alloc(ALIGN, bytes), *back = malloc(bytes);
    unsigned long long memory;
    EXPECT(host != NULL && back != NULL, "out of memory");
    fill(host, bytes, s->dtype);
    CUDA(cuMemAlloc_v2, &memory, bytes);
    rig_write(memory, host, bytes);
    struct bps_reduction on_device = arrange(s, (uint8_t *)(uintptr_t)memory, room);
    begin(&on_device);
    rig_run();
    struct bps_reduction r = arrange(s, host, room);
    cpu->reduce(cpu->context, r.dst, r.src, r.scales, r.n, r.count, r.scale, r.divisor);
    CUDA(cuMemcpyDtoH_v2, back, memory, bytes);
    for (size_t i = 0; i < bytes; i++) {
        EXPECT(host[i] == back[i], "%s of %u x %zu %s, alignment %u, sample %u: byte %zu is %02x, expected %02x",
               bps_op_name(s->op), s->n, s->count, bps_dtype_name(s->dtype), s->alignment, s->number, i, back[i],
               host[i]);
    }
    CUDA(cuMemFree_v2, memory);
    free(host);
    free(back);
}

static void compare_kernel(uint32_t op, uint32_t dtype)
{
    static const size_t counts[] = {0, 1, 3, 17, 255, 1000, 20011};
    static const unsigned sources[] = {1, 2, 3, SOURCES};
    struct bps_kernels cpu = kernels_of_cpu(op, dtype);
    struct sample s = {.op = op, .dtype = dtype};
    EXPECT(rig.ops->can_reduce(rig.instance->self, 0, op, dtype), "there is no %s of %s", bps_op_name(op),
           bps_dtype_name(dtype));
    for (s.alignment = 0; s.alignment < 5; s.alignment++) {
        for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++) {
            s.count = counts[i];
            s.n = sources[s.number % 4];
            compare(&s, &cpu);
            s.number++;
        }
    }
}

/* ---- measuring ---- */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

#define TIMES  20 /* pieces of work in a row, */
#define ROUNDS 5  /* measured so often, after one round to warm up */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the times that a round takes, in s. */
static double seconds_of(void (*round)(const void *arg), const void *arg)
{
    double seconds[ROUNDS];
    round(arg);
    for (int i = 0; i < ROUNDS; i++) {
        double start = now();
        round(arg);
        seconds[i] = now() - start;
    }
    qsort(seconds, ROUNDS, sizeof *seconds, ascending);
    return seconds[ROUNDS / 2];
}

static void reduce_often(const void *arg)
{
    struct bps_reduction reduction = *(const struct bps_reduction *)arg;
    for (int i = 0; i < TIMES; i++) {
        begin(&reduction);
    }
    rig_run();
}

/* Bytes read and written in a second by reductions of n tensors. */
static double rate_of(uint32_t op, uint32_t dtype, unsigned n, unsigned long long memory, size_t bytes)
{
    struct bps_reduction r = {.op = op, .dtype = dtype, .n = n, .scale = 1, .divisor = 1};
    r.count = bytes / bps_dtype_size(dtype);
    r.dst = (void *)(uintptr_t)memory;
    for (unsigned i = 0; i < n; i++) {
        r.src[i] = (void *)(uintptr_t)(memory + (i + 1) * bytes);
    }
    return (n + 1.0) * (double)bytes * TIMES / seconds_of(reduce_often, &r);
}

struct span {
    unsigned long long memory;
    size_t bytes;
};

static void copy_often(const void *arg)
{
    const struct span *span = arg;
    for (int i = 0; i < TIMES; i++) {
        CUDA(cuMemcpyDtoDAsync_v2, span->memory, span->memory + span->bytes, span->bytes, NULL);
    }
    CUDA(cuStreamSynchronize, NULL);
}

static double rate_of_copies(unsigned long long memory, size_t bytes)
{
    const struct span span = {memory, bytes};
    return 2.0 * (double)bytes * TIMES / seconds_of(copy_often, &span);
}

static void measure(size_t bytes)
{
    static const unsigned sources[] = {1, 2, SOURCES};
    unsigned long long memory;
    const char *comma = "";
    CUDA(cuMemAlloc_v2, &memory, bytes * (SOURCES + 1));
    double copy = rate_of_copies(memory, bytes);
    printf("{\"bytes\": %zu, \"copy\": %.4g, \"kernels\": {", bytes, copy);
    for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
        for (unsigned op = 0; op < 4; op++) {
            printf("%s\"%s of %s\": {", comma, bps_op_name(real_ops[op]), bps_dtype_name(dtype));
            EXPECT(rig.ops->can_reduce(rig.instance->self, 0, real_ops[op], dtype), "a kernel is missing");
            for (unsigned i = 0; i < 3; i++) {
                double rate = rate_of(real_ops[op], dtype, sources[i], memory, bytes);
                printf("%s\"%u\": %.4g", i > 0 ? ", " : "", sources[i], rate / copy);
            }
            printf("}");
            comma = ", ";
        }
    }
    printf("}}\n");
    CUDA(cuMemFree_v2, memory);
}

int main(int argc, char **argv)
{
    rig_open_driver();
    rig_open_reducer();
    if (rig.ops->reduce == NULL) {
        puts("skipped: the reducer cuda was built without nvcc and has no kernels");
        return 77;
    }
    if (argc == 3 && strcmp(argv[1], "measure") == 0) {
        measure((size_t)strtoull(argv[2], NULL, 10) / ALIGN * ALIGN);
    } else {
        for (uint32_t dtype = 0; dtype < BPS_DTYPES; dtype++) {
            for (unsigned op = 0; op < 4; op++) {
                compare_kernel(real_ops[op], dtype);
            }
        }
    }
    rig_close_reducer();
    return 0;
}
