/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_reducer.c - how near the kernels of the reducer "cpu" come to what the memory allows.
 *
 * For each kernel there is a plain loop that moves the same bytes: as many streams, read and written, of
 * the same widths, with hardly any arithmetic. All are measured in turn, in the same rounds; a ratio is the
 * median time of the plain loop over that of the kernel, so 1.00 is the memory's limit. GB/s count bytes
 * read and written.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <byteps/plugin.h>

const struct bps_module *bps_module_reducer_cpu(void);

#define MAX_ROUNDS 1000
#define MAX_RUNS   64
#define COLUMNS    4
#define KIB        1024u
#define MIB        (1024u * KIB)

/* The plain loops are compiled for wide vectors too, or they would not be the limit in the caches. */
#if defined(__x86_64__) && defined(__clang__)
#define PLAIN __attribute__((target_clones("default", "avx2", "avx512f")))
#elif defined(__x86_64__)
#define PLAIN __attribute__((target_clones("default", "avx2", "avx512f"), optimize("O3")))
#else
#define PLAIN __attribute__((noinline))
#endif

/* Memory for all runs: sources of up to 64 MiB, and accumulators that are twice as large. */
struct buffers {
    uint8_t *a, *b, *wide, *dst;
};

enum shape { COPY, FOLD, FOLD_WIDEN, REDUCE, REDUCE_MANY, FINISH_NARROW, SHAPES };

static const char *const shape_names[SHAPES] = {"memcpy",    "a += b",         "wide a += b",
                                                "c = a + b", "a += b + c + d", "c = narrow a"};

/* Bytes read and written for each byte of a source. */
static const unsigned shape_streams[SHAPES] = {2, 3, 5, 3, 5, 3};

PLAIN static void plain_fold(uint64_t *restrict a, const uint64_t *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        a[i] += b[i];
    }
}

PLAIN static void plain_fold_widen(uint32_t *restrict a, const uint16_t *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        a[i] += b[i];
    }
}

PLAIN static void plain_reduce(uint64_t *restrict c, const uint64_t *restrict a, const uint64_t *restrict b,
                               size_t n)
{
    for (size_t i = 0; i < n; i++) {
        c[i] = a[i] + b[i];
    }
}

PLAIN static void plain_reduce_many(uint64_t *restrict a, const uint64_t *restrict b,
                                    const uint64_t *restrict c, const uint64_t *restrict d, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        a[i] += b[i] + c[i] + d[i];
    }
}

PLAIN static void plain_narrow(uint16_t *restrict c, const uint32_t *restrict a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        c[i] = (uint16_t)a[i];
    }
}

/* One thing that is measured: a plain loop, or a kernel of one instruction set. */
struct run {
    const char *isa; /* NULL for a plain loop */
    const char *type;
    enum shape shape;
    struct bps_kernels kernels;
    size_t size; /* of an element */
    double seconds[MAX_ROUNDS];
};

static void run_plain(enum shape shape, const struct buffers *m, size_t bytes)
{
    switch (shape) {
    case COPY:
        memcpy(m->dst, m->a, bytes);
        break;
    case FOLD:
        plain_fold((uint64_t *)m->wide, (const uint64_t *)m->b, bytes / 8);
        break;
    case FOLD_WIDEN:
        plain_fold_widen((uint32_t *)m->wide, (const uint16_t *)m->b, bytes / 2);
        break;
    case REDUCE:
        plain_reduce((uint64_t *)m->dst, (const uint64_t *)m->a, (const uint64_t *)m->b, bytes / 8);
        break;
    case REDUCE_MANY:
        plain_reduce_many((uint64_t *)m->dst, (const uint64_t *)m->a, (const uint64_t *)m->b,
                          (const uint64_t *)m->wide, bytes / 8);
        break;
    default:
        plain_narrow((uint16_t *)m->dst, (const uint32_t *)m->wide, bytes / 2);
    }
}

static void run_kernel(const struct run *run, const struct buffers *m, size_t bytes)
{
    const void *const sources[2] = {m->a, m->b};
    const void *const many[4] = {m->dst, m->a, m->b, m->wide};

    switch (run->shape) {
    case FOLD:
    case FOLD_WIDEN:
        run->kernels.fold(m->wide, m->b, bytes / run->size, 1);
        break;
    case REDUCE:
        run->kernels.reduce(m->dst, sources, NULL, 2, bytes / run->size, 1, 2);
        break;
    case REDUCE_MANY:
        run->kernels.reduce(m->dst, many, NULL, 4, bytes / run->size, 1, 4);
        break;
    default:
        run->kernels.finish(m->dst, m->wide, bytes / run->size, 1, 2);
    }
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run_once(const struct run *run, const struct buffers *m, size_t bytes)
{
    if (run->isa) {
        run_kernel(run, m, bytes);
    } else {
        run_plain(run->shape, m, bytes);
    }
}

/*
 * Small buffers are gone through again and again, until as much was moved as for one of 4 MiB. The first time
 * does not count: so what ran before leaves no trace in the caches.
 */
static double measure(const struct run *run, const struct buffers *m, size_t bytes)
{
    size_t repeats = bytes < 4 * MIB ? 4 * MIB / bytes : 1;
    double start;

    run_once(run, m, bytes);
    start = now();
    for (size_t i = 0; i < repeats; i++) {
        run_once(run, m, bytes);
    }
    return (now() - start) / (double)repeats;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(struct run *run, int rounds)
{
    qsort(run->seconds, (size_t)rounds, sizeof(double), by_value);
    return run->seconds[rounds / 2];
}

/* ---- the plugin ---------------------------------------------------------------------------------------- */

static void host_log(const struct bps_host *host, uint32_t level, const char *format, ...)
{
    (void)host;
    (void)level;
    (void)format;
}

static const struct bps_host host = {.size = sizeof(struct bps_host), .instance = "bench", .log = host_log};

/* The kernels of one instruction set, by its index in the option's words. False: it cannot be used here. */
static bool open_kernels(uint32_t isa, uint32_t dtype, struct bps_kernels *out)
{
    const struct bps_plugin *plugin = bps_module_reducer_cpu()->plugins[0];
    const struct bps_reducer_ops *ops = plugin->ops;
    void *instance;
    bps_status status = ops->open(&host, &isa, &instance, NULL); /* isa is the only option */

    if (status == BPS_OK) {
        status = ops->kernels(instance, BPS_SUM, dtype, out);
        ops->close(instance);
    }
    return status == BPS_OK;
}

static struct run *add(struct run *runs, size_t *n, const char *isa, const char *type, enum shape shape)
{
    struct run *run = &runs[(*n)++];

    *run = (struct run){.isa = isa, .type = type, .shape = shape};
    return run;
}

static size_t add_runs(struct run *runs)
{
    static const char *const isas[] = {"auto", "baseline", "avx2", "avx512", "avx512bf16"};
    static const struct {
        const char *name;
        uint32_t dtype;
        size_t size;
        enum shape shapes[COLUMNS];
    } types[] = {
        {"float32", BPS_FLOAT32, 4, {FOLD, REDUCE, REDUCE_MANY, COPY}},
        {"float16", BPS_FLOAT16, 2, {FOLD_WIDEN, REDUCE, REDUCE_MANY, FINISH_NARROW}},
        {"bfloat16", BPS_BFLOAT16, 2, {FOLD_WIDEN, REDUCE, REDUCE_MANY, FINISH_NARROW}},
    };
    size_t n = 0;

    for (enum shape shape = COPY; shape < SHAPES; shape++) {
        add(runs, &n, NULL, NULL, shape);
    }
    for (uint32_t isa = 1; isa < 5; isa++) {
        for (size_t t = 0; t < 3; t++) {
            for (size_t s = 0; s < COLUMNS; s++) {
                struct run *run = add(runs, &n, isas[isa], types[t].name, types[t].shapes[s]);

                run->size = types[t].size;
                if (!open_kernels(isa, types[t].dtype, &run->kernels)) {
                    n--;
                }
            }
        }
    }
    return n;
}

/* ---- tables -------------------------------------------------------------------------------------------- */

/* GB/s */
static double rate(enum shape shape, size_t bytes, double seconds)
{
    return 1e-9 * shape_streams[shape] * (double)bytes / seconds;
}

static void print_table(struct run *runs, size_t n, size_t bytes, int rounds)
{
    static const char *const columns[COLUMNS] = {"fold", "reduce 2", "reduce 4 in place", "finish"};
    double limits[SHAPES];

    printf("\n%zu KiB per buffer; plain loops:", bytes / KIB);
    for (size_t i = 0; i < SHAPES; i++) {
        limits[i] = median(&runs[i], rounds);
        printf("%s %s %.1f GB/s", i ? "," : "", shape_names[i], rate(i, bytes, limits[i]));
    }
    printf("\n%-11s %-9s", "isa", "type");
    for (size_t i = 0; i < COLUMNS; i++) {
        printf("   %-17s", columns[i]);
    }
    for (size_t i = SHAPES; i < n; i++) {
        double time = median(&runs[i], rounds);

        if ((i - SHAPES) % COLUMNS == 0) {
            printf("\n%-11s %-9s", runs[i].isa, runs[i].type);
        }
        printf("   %7.1f GB/s %4.2f", rate(runs[i].shape, bytes, time), limits[runs[i].shape] / time);
    }
    printf("\n");
}

static uint8_t *buffer(size_t bytes)
{
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        fprintf(stderr, "bench_reducer: %zu bytes: %m\n", bytes);
        exit(1);
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 0x3c, bytes); /* ordinary numbers in all three types */
    return memory;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {64 * KIB, 4 * MIB, 64 * MIB};
    static const struct option long_options[] = {{"rounds", required_argument, NULL, 'r'}, {0}};
    static struct run runs[MAX_RUNS];
    struct buffers m = {buffer(64 * MIB), buffer(64 * MIB), buffer(128 * MIB), buffer(64 * MIB)};
    int rounds = 15, c;
    size_t n;

    while ((c = getopt_long(argc, argv, "r:", long_options, NULL)) != -1) {
        rounds = c == 'r' ? atoi(optarg) : 0;
        if (rounds < 1 || rounds > MAX_ROUNDS) {
            fprintf(stderr, "usage: bench_reducer [--rounds 1..%d]\n", MAX_ROUNDS);
            return 2;
        }
    }
    n = add_runs(runs);
    printf("The reducer cpu: GB/s read and written, and the share of a plain loop's speed, %d rounds\n",
           rounds);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (int round = 0; round < rounds; round++) {
            for (size_t i = 0; i < n; i++) {
                runs[i].seconds[round] = measure(&runs[i], &m, sizes[s]);
            }
        }
        print_table(runs, n, sizes[s], rounds);
    }
    return 0;
}
