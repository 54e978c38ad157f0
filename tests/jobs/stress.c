/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stress.c - a worker for test_stress.py:  stress SEED STEPS GENERATIONS
 *
 * Several threads start random operations: named and unnamed tensors of all types and many sizes, in place or
 * not, with scales, priorities, callbacks, broadcasts, barriers, disagreements. All workers draw the same
 * plan from the seed, so that everybody knows what everybody has pushed, and compare every element of every
 * result. Meanwhile one thread polls the operations of the others. At the end of a generation threads start
 * operations until shutdown stops them. Prints "stress: ok", or what was wrong.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <byteps/byteps.h>

#define THREADS 3
#define NAMES   8 /* of each thread */
#define FLIGHT  6 /* operations of a thread at a time */

static uint64_t seed;
static int steps, rank, size;
static _Atomic bps_handle shared; /* an operation that the meddler asks for */
static atomic_bool stop;
static atomic_int generation;

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "stress: line %d: %s: ", __LINE__, #condition);                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fprintf(stderr, "\n");                                                                                     \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* ---- the plan: the same on all workers ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint32_t draw(uint64_t *state, uint32_t limit)
{
    *state += 0x9e3779b97f4a7c15u;
    return (uint32_t)(mix(*state) % limit);
}

struct plan {
    char name[32]; /* "": unnamed */
    uint32_t dtype, op, root;
    uint64_t count, salt;
    bool broadcast, in_place, callback;
    double postscale;
    int32_t priority;
};

static bool is_float(uint32_t dtype)
{
    return strstr(bps_dtype_name(dtype), "float") != NULL;
}

static uint64_t draw_count(uint64_t *state)
{
    static const uint32_t limits[] = {1, 2, 40, 3000, 3000, 40000, 120000};
    return draw(state, limits[draw(state, sizeof limits / sizeof *limits)]);
}

static struct plan draw_plan(uint64_t *state, int thread, uint32_t name)
{
    struct plan p = {.salt = (uint64_t)draw(state, UINT32_MAX)};
    uint64_t other = draw(state, 4) == 0 ? 1 + draw(state, 3) : 0; /* else a name keeps its form */
    uint64_t shape = mix(seed + 1000u * (uint64_t)thread + 100u * other + name);
    if (name < NAMES) {
        snprintf(p.name, sizeof p.name, "thread.%d.tensor.%u", thread, name);
    } else {
        shape = p.salt;
    }
    p.count = draw_count(&shape);
    p.dtype = draw(&shape, BPS_DTYPES);
    p.broadcast = draw(state, 5) == 0;
    p.root = draw(state, (uint32_t)size);
    do {
        p.op = draw(state, BPS_OPS);
    } while (p.op == BPS_AVERAGE && p.dtype == BPS_BOOL);
    p.in_place = draw(state, 2) != 0;
    p.callback = draw(state, 3) == 0;
    p.priority = (int32_t)draw(state, 7) - 3;
    p.postscale = p.dtype != BPS_BOOL && draw(state, 4) == 0 ? 0.5 : 1.0;
    return p;
}

/* What worker r multiplies by; min and max of negative factors would only be harder to read. */
static double prescale_of(const struct plan *p, int r)
{
    bool narrow = p->dtype == BPS_FLOAT8_E4M3FN || !is_float(p->dtype);
    bool fits = p->dtype != BPS_BOOL && !(narrow && p->op == BPS_PRODUCT);
    bool scaled = fits && p->salt % 4 == 0 && !p->broadcast;
    return scaled ? (double)(1 << ((uint64_t)r + p->salt / 4) % 3) : 1.0;
}

/* A small whole number, so that sums and products are exact in every type. */
static int value_of(const struct plan *p, int r, uint64_t i)
{
    uint32_t v = (uint32_t)(mix(p->salt + (uint64_t)r * 7919u + i) >> 40);
    return p->dtype == BPS_BOOL ? (int)(v % 2) : p->op == BPS_PRODUCT ? 1 + (int)(v % 2) : (int)(v % 4);
}

static void store(uint8_t *at, uint32_t dtype, int value)
{
    const float f = (float)value;
    static const uint16_t half[] = {0, 0x3c00, 0x4000, 0x4200};
    static const uint8_t e4m3[] = {0, 0x38, 0x40, 0x44};
    const double d = value;
    const int64_t l = value;
    const int32_t w = value;
    const int16_t s = (int16_t)value;
    uint32_t bits;
    switch (dtype) {
    case BPS_FLOAT32:
        memcpy(at, &f, 4);
        break;
    case BPS_FLOAT64:
        memcpy(at, &d, 8);
        break;
    case BPS_FLOAT16:
        memcpy(at, &half[value], 2);
        break;
    case BPS_FLOAT8_E4M3FN:
        *at = e4m3[value];
        break;
    case BPS_FLOAT8_E5M2:
        *at = (uint8_t)(half[value] >> 8);
        break;
    case BPS_BFLOAT16:
        memcpy(&bits, &f, 4);
        bits >>= 16;
        memcpy(at, &bits, 2);
        break;
    case BPS_INT64:
        memcpy(at, &l, 8);
        break;
    case BPS_INT32:
        memcpy(at, &w, 4);
        break;
    case BPS_INT16:
        memcpy(at, &s, 2);
        break;
    default:
        *at = (uint8_t)value;
    }
}

/* Of numbers that are positive, and not tiny. */
static double read_half(uint16_t half)
{
    return half == 0 ? 0 : ldexp(1024 + half % 1024, half / 1024 - 25);
}

static double read_e4m3(uint8_t bits)
{
    return bits == 0 ? 0 : ldexp(8 + bits % 8, bits / 8 - 10);
}

static double load(const uint8_t *at, uint32_t dtype)
{
    float f;
    uint16_t half;
    double d;
    int64_t l;
    int32_t w;
    int16_t s;
    uint32_t bits = 0;
    switch (dtype) {
    case BPS_FLOAT32:
        memcpy(&f, at, 4);
        return (double)f;
    case BPS_FLOAT64:
        memcpy(&d, at, 8);
        return d;
    case BPS_FLOAT16:
        memcpy(&half, at, 2);
        return read_half(half);
    case BPS_FLOAT8_E4M3FN:
        return read_e4m3(*at);
    case BPS_FLOAT8_E5M2:
        return read_half((uint16_t)(*at << 8));
    case BPS_BFLOAT16:
        memcpy(&bits, at, 2);
        bits <<= 16;
        memcpy(&f, &bits, 4);
        return (double)f;
    case BPS_INT64:
        memcpy(&l, at, 8);
        return (double)l;
    case BPS_INT32:
        memcpy(&w, at, 4);
        return w;
    case BPS_INT16:
        memcpy(&s, at, 2);
        return s;
    case BPS_INT8:
        return (double)(int8_t)*at;
    default:
        return *at;
    }
}

static double fold(const struct plan *p, double a, double b)
{
    switch (p->op) {
    case BPS_MIN:
        return fmin(a, b);
    case BPS_MAX:
        return fmax(a, b);
    case BPS_PRODUCT:
        return a * b;
    default:
        return p->dtype == BPS_BOOL ? fmax(a, b) : a + b;
    }
}

static double expected(const struct plan *p, uint64_t i)
{
    if (p->broadcast) {
        return value_of(p, (int)p->root, i);
    }
    double result = value_of(p, 0, i) * prescale_of(p, 0);
    for (int r = 1; r < size; r++) {
        result = fold(p, result, value_of(p, r, i) * prescale_of(p, r));
    }
    if (p->op == BPS_AVERAGE) {
        result /= size;
    }
    return is_float(p->dtype) ? result * p->postscale : floor(result * p->postscale);
}

/* ---- one operation ---- */

struct flight {
    struct plan plan;
    uint8_t *memory, *in, *out;
    bps_handle handle;
    atomic_int called;
    bps_status status;
};

static void on_done(void *arg, bps_status status, const char *text)
{
    struct flight *f = arg;
    CHECK(status == BPS_OK, "%s: %s", f->plan.name, text);
    f->status = status;
    atomic_fetch_add(&f->called, 1);
}

static struct bps_push_pull request_of(struct flight *f)
{
    const struct plan *p = &f->plan;
    return (struct bps_push_pull){
        .size = sizeof(struct bps_push_pull),
        .name = p->name[0] != '\0' ? p->name : NULL,
        .in = f->in,
        .out = f->out,
        .count = p->count,
        .dtype = p->dtype,
        .op = p->op,
        .priority = p->priority,
        .prescale = prescale_of(p, rank),
        .postscale = p->broadcast ? 1.0 : p->postscale,
        .done = p->callback ? on_done : NULL,
        .arg = f,
    };
}

static void launch(struct flight *f, uint64_t *state)
{
    struct bps_report report = {""};
    const struct plan *p = &f->plan;
    size_t element = bps_dtype_size(p->dtype), bytes = p->count * element, shift = draw(state, 9);
    f->memory = malloc(2 * bytes + 64);
    CHECK(f->memory != NULL, "no memory");
    f->in = f->memory + shift;
    f->out = p->in_place ? f->in : f->in + bytes;
    for (uint64_t i = 0; i < p->count; i++) {
        store(f->in + i * element, p->dtype, value_of(p, rank, i));
    }
    const struct bps_push_pull request = request_of(f);
    bps_status status = p->broadcast ? bps_broadcast_async(&request, p->root, &f->handle, &report)
                                     : bps_push_pull_async(&request, &f->handle, &report);
    CHECK(status == BPS_OK, "%s", report.text);
    if (!p->callback) {
        atomic_store(&shared, f->handle);
        if (request.name != NULL) {
            status = bps_push_pull_async(&request, NULL, NULL);
            CHECK(status == BPS_ERR_BUSY, "%s was started twice: %s", p->name, bps_strerror(status));
        }
    }
}

static void land(struct flight *f)
{
    struct bps_report report = {""};
    const struct plan *p = &f->plan;
    size_t element = bps_dtype_size(p->dtype);
    static const double precisions[BPS_DTYPES] = {
        [BPS_FLOAT16] = 1e-3, [BPS_BFLOAT16] = 1e-2, [BPS_FLOAT8_E4M3FN] = 1.0 / 16, [BPS_FLOAT8_E5M2] = 1.0 / 8};
    double precision = fmax(precisions[p->dtype], 1e-6);
    bps_status status = bps_wait(f->handle, BPS_FOREVER, &report);
    CHECK(status == BPS_OK, "%s: %s", p->name, report.text);
    while (p->callback && atomic_load(&f->called) == 0) {
        usleep(100);
    }
    CHECK(atomic_load(&f->called) == (p->callback ? 1 : 0), "%s", p->name);
    for (uint64_t i = 0; i < p->count; i++) {
        double want = expected(p, i), got = load(f->out + i * element, p->dtype);
        CHECK(fabs(got - want) <= precision * fabs(want),
              "generation %d, '%s', %s of %s, element %lu of %lu is %g, expected %g", atomic_load(&generation), p->name,
              p->broadcast ? "broadcast" : bps_op_name(p->op), bps_dtype_name(p->dtype), i, p->count, got, want);
    }
    free(f->memory);
}

/* ---- threads ---- */

static void fly(int thread, uint64_t *state)
{
    struct flight flights[FLIGHT] = {0};
    uint32_t first = draw(state, NAMES), n = 1 + draw(state, FLIGHT);
    for (uint32_t i = 0; i < n; i++) {
        /* Only one thread can start unnamed tensors in the same order everywhere. */
        bool unnamed = thread == 0 && draw(state, 3) == 0;
        flights[i].plan = draw_plan(state, thread, unnamed ? NAMES : (first + i) % NAMES);
        launch(&flights[i], state);
    }
    for (uint32_t i = 0; i < n; i++) {
        land(&flights[(i + n / 2) % n]);
    }
}

/* Everybody gets the same words. */
static void compare_texts(const char *text)
{
    struct bps_report report = {""};
    int64_t hash = 0, lowest, highest;
    for (const char *c = text; *c != '\0'; c++) {
        hash = hash * 31 % 1000000007 + *c;
    }
    struct bps_push_pull request = {.size = sizeof request,
                                    .in = &hash,
                                    .out = &lowest,
                                    .count = 1,
                                    .dtype = BPS_INT64,
                                    .op = BPS_MIN,
                                    .prescale = 1.0,
                                    .postscale = 1.0};
    bps_handle handles[2];
    CHECK(bps_push_pull_async(&request, &handles[0], &report) == BPS_OK, "%s", report.text);
    request.out = &highest;
    request.op = BPS_MAX;
    CHECK(bps_push_pull_async(&request, &handles[1], &report) == BPS_OK, "%s", report.text);
    for (int i = 0; i < 2; i++) {
        CHECK(bps_wait(handles[i], BPS_FOREVER, &report) == BPS_OK, "%s", report.text);
    }
    CHECK(lowest == highest, "worker %d was told: %s", rank, text);
}

/* One worker wants something else than the others. */
static void disagree(uint64_t *state, int step)
{
    static uint8_t memory[4 * 200000];
    struct bps_report report = {""};
    char name[32];
    uint32_t odd = draw(state, (uint32_t)size), how = draw(state, 5);
    bool me = (uint32_t)rank == odd, named = draw(state, 2) != 0;
    snprintf(name, sizeof name, "odd.%d.%d", atomic_load(&generation), step);
    struct bps_push_pull request = {.size = sizeof request,
                                    .name = named ? name : NULL,
                                    .in = memory,
                                    .out = memory,
                                    .count = me && how == 0   ? 200000
                                             : me && how == 1 ? 0
                                                              : 50000,
                                    .dtype = me && how == 2 ? BPS_INT32 : BPS_FLOAT32,
                                    .op = me && how == 3 ? BPS_MAX : BPS_SUM,
                                    .prescale = 1.0,
                                    .postscale = me && how == 4 ? 2.0 : 1.0};
    bps_handle handle;
    CHECK(bps_push_pull_async(&request, &handle, &report) == BPS_OK, "%s", report.text);
    bps_status status = bps_wait(handle, BPS_FOREVER, &report);
    CHECK(status == (size > 1 ? BPS_ERR_MISMATCH : BPS_OK), "case %u: %s: %s", how, bps_strerror(status), report.text);
    /* Of several hosts, one whose leader does not know the name yet is told by its own words, and at once. */
    if (!named || bps_local_size() == size) {
        compare_texts(report.text);
    }
}

static void *play(void *arg)
{
    int thread = (int)(intptr_t)arg;
    uint64_t state = mix(seed * 31 + (uint64_t)thread + 7u * (uint64_t)atomic_load(&generation));
    struct bps_report report = {""};
    for (int step = 0; step < steps; step++) {
        uint32_t kind = draw(&state, 12);
        if (thread == 0 && kind == 0) {
            CHECK(bps_barrier(&report) == BPS_OK, "%s", report.text);
        } else if (thread == 0 && kind <= 2) {
            disagree(&state, step);
        } else {
            fly(thread, &state);
        }
    }
    return NULL;
}

/*
 * Asks for the operations of others, which may end at any time and be others by then; and forgets the names of
 * their tensors, at other times than other workers do. Nobody notices.
 */
static void *meddle(void *arg)
{
    uint64_t state = mix(seed + (uint64_t)rank);
    (void)arg;
    while (!atomic_load(&stop)) {
        bps_status status = bps_poll(atomic_load(&shared));
        CHECK(status >= BPS_OK || status == BPS_ERR_INVALID, "%s", bps_strerror(status));
        char name[32];
        const char *names[] = {name};
        snprintf(name, sizeof name, "thread.%u.tensor.%u", draw(&state, THREADS), draw(&state, NAMES));
        bps_forget(names, 1, NULL);
        usleep(draw(&state, 10) == 0 ? 2000 : 50);
    }
    return NULL;
}

/* Counts down the rounds of one tensor, each started by the callback of the last. */
struct chain {
    struct bps_push_pull request;
    int left;
    float value;
    atomic_bool over;
};

static void next_link(void *arg, bps_status status, const char *text)
{
    struct chain *chain = arg;
    struct bps_report report = {""};
    CHECK(status == BPS_OK, "%s", text);
    if (--chain->left == 0) {
        atomic_store(&chain->over, true);
        return;
    }
    CHECK(bps_push_pull_async(&chain->request, NULL, &report) == BPS_OK, "%s", report.text);
}

static void run_chain(void)
{
    struct chain chain = {.left = 50, .value = 1.0f};
    struct bps_report report = {""};
    chain.request = (struct bps_push_pull){.size = sizeof chain.request,
                                           .name = "chain",
                                           .in = &chain.value,
                                           .out = &chain.value,
                                           .count = 1,
                                           .dtype = BPS_FLOAT32,
                                           .op = BPS_AVERAGE,
                                           .prescale = 1.0,
                                           .postscale = 2.0,
                                           .done = next_link,
                                           .arg = &chain};
    CHECK(bps_push_pull_async(&chain.request, NULL, &report) == BPS_OK, "%s", report.text);
    while (!atomic_load(&chain.over)) {
        usleep(100);
    }
    CHECK(fabs((double)chain.value / 0x1p50 - 1.0) < 1e-4, "the chain ended with %g", (double)chain.value);
}

static atomic_int begun, ended;

static void on_late(void *arg, bps_status status, const char *text)
{
    (void)arg;
    CHECK(status == BPS_OK || status == BPS_ERR_LOST || status == BPS_ERR_STATE, "%s", text);
    atomic_fetch_add(&ended, 1);
}

/* Starts operations until shutdown stops it; every one must end, in whatever way. */
static void *outlive(void *arg)
{
    static float value = 1.0f;
    bps_status status = BPS_OK;
    bps_handle handle;
    struct bps_push_pull request = {.size = sizeof request,
                                    .name = "late", /* both: two tensors could wait for each other */
                                    .in = &value,
                                    .out = &value,
                                    .count = 1,
                                    .op = BPS_MAX,
                                    .prescale = 1.0,
                                    .postscale = 1.0,
                                    .done = arg != NULL ? on_late : NULL};
    while (status != BPS_ERR_STATE) {
        status = bps_push_pull_async(&request, &handle, NULL);
        if (status == BPS_OK && arg != NULL) {
            atomic_fetch_add(&begun, 1);
        } else if (status == BPS_OK) {
            status = bps_wait(handle, BPS_FOREVER, NULL);
        }
        CHECK(status == BPS_OK || status == BPS_ERR_LOST || status == BPS_ERR_STATE || status == BPS_ERR_BUSY, "%s",
              bps_strerror(status));
    }
    return NULL;
}

/* ---- generations ---- */

static void run_generation(void)
{
    struct bps_report report = {""};
    pthread_t threads[THREADS], meddler, late[2];
    CHECK(bps_init(NULL, &report) == BPS_OK, "%s", report.text);
    rank = bps_rank();
    size = bps_size();
    atomic_store(&stop, false);
    pthread_create(&meddler, NULL, meddle, NULL);
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, play, (void *)(intptr_t)i);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    atomic_store(&stop, true);
    pthread_join(meddler, NULL);
    run_chain();
    CHECK(bps_barrier(&report) == BPS_OK, "%s", report.text);
    for (int i = 0; i < 2; i++) {
        pthread_create(&late[i], NULL, outlive, i == 0 ? NULL : &late);
    }
    usleep(2000);
    bps_status status = bps_shutdown(&report);
    CHECK(status == BPS_OK, "%s", report.text);
    for (int i = 0; i < 2; i++) {
        pthread_join(late[i], NULL);
    }
    CHECK(atomic_load(&begun) == atomic_load(&ended), "%d callbacks for %d operations", atomic_load(&ended),
          atomic_load(&begun));
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: stress SEED STEPS GENERATIONS\n");
        return 2;
    }
    seed = strtoull(argv[1], NULL, 0);
    steps = atoi(argv[2]);
    for (int i = 0; i < atoi(argv[3]); i++) {
        atomic_store(&generation, i);
        run_generation();
    }
    printf("stress: ok\n");
    return 0;
}
