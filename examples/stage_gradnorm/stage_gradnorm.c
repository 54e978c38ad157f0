/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage_gradnorm.c - the stage "gradnorm": keeps the norm of each gradient that a worker pushes, and changes nothing.
 *
 * The last norm of each tensor is a counter, in millionths, and the log tells it every some rounds. It shows a state
 * for each tensor, counters, the log, and how the partitions of a round, which are run by several threads at once, come
 * together without a lock.
 */
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include <byteps/stage.h>

/* From this table byteps reads and checks byteps.conf. Each option has a row, and a field in the struct. */
struct gradnorm_options {
    int64_t every;
};

static const struct bps_option gradnorm_options[] = {
    BPS_OPTION(struct gradnorm_options, every, INT, 0, "100", "1..1000000000",
               "The log tells the norms of each so many rounds, beginning with the first one."),
    {0},
};

/* One for each time that a configuration lists the stage. */
struct gradnorm {
    const struct bps_host *host;
    uint32_t every;
    uint64_t *gradients, *infinite; /* counters */
};

struct tensor {
    const char *name; /* lives as long as the binding */
    uint32_t dtype, partitions;
    uint64_t *norm;        /* its counter */
    _Atomic uint64_t seen; /* the round, in the upper half, and how many of its partitions have come */
    double squares[];      /* their sums, by partition */
};

static bps_status gradnorm_open(const struct bps_host *host, const void *options, void **out, struct bps_report *report)
{
    const struct gradnorm_options *given = options;
    struct gradnorm *stage = host->alloc(host, sizeof *stage, 8);

    if (!stage) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *stage = (struct gradnorm){
        .host = host,
        .every = (uint32_t)given->every,
        .gradients = host->counter(host, "gradients", "gradients whose norm was taken"),
        .infinite = host->counter(host, "infinite", "those of them whose norm is infinite or NaN"),
    };
    *out = stage;
    return BPS_OK;
}

static void gradnorm_close(void *instance)
{
    struct gradnorm *stage = instance;

    stage->host->release(stage->host, stage);
}

/* Sums and averages are gradients; of their types, `bind` leaves out those that are not float32 or float64. */
static void gradnorm_query(void *instance, struct bps_stage_attr *out)
{
    (void)instance;
    *out = (struct bps_stage_attr){
        .ops = BPS_OP_BIT(BPS_SUM) | BPS_OP_BIT(BPS_AVERAGE),
        .dtypes = (1u << BPS_DTYPES) - 1,
        .memory = BPS_MEMORY_HOST,
        .executor = BPS_EXECUTOR_CPU,
        .writes = 0,
        .takes = "plain",
        .gives = "plain",
    };
}

/* Not from several threads, unlike run: here counters can be made. */
static bps_status gradnorm_bind(void *instance, const struct bps_tensor_info *info, void **state_out,
                                struct bps_report *report)
{
    const struct gradnorm *stage = instance;
    const struct bps_host *host = stage->host;
    struct tensor *tensor;

    if (info->dtype != BPS_FLOAT32 && info->dtype != BPS_FLOAT64) {
        return BPS_AGAIN;
    }
    tensor = host->alloc(host, sizeof *tensor + info->partitions * sizeof *tensor->squares, 8);
    if (!tensor) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *tensor = (struct tensor){.name = info->name, .dtype = info->dtype, .partitions = info->partitions};
    tensor->norm = host->counter(host, info->name, "the last norm of this gradient, in millionths");
    *state_out = tensor;
    return BPS_OK;
}

static void gradnorm_unbind(void *instance, void *state)
{
    const struct gradnorm *stage = instance;

    stage->host->release(stage->host, state);
}

/* ---- the norm ---- */

/* Elements lie at any address, hence memcpy. */
#define SQUARES(T)                                                                                                     \
    static double squares_##T(const void *src, uint64_t count)                                                         \
    {                                                                                                                  \
        double sum = 0;                                                                                                \
        for (uint64_t i = 0; i < count; i++) {                                                                         \
            T x;                                                                                                       \
            memcpy(&x, (const char *)src + i * sizeof x, sizeof x);                                                    \
            sum += (double)x * (double)x;                                                                              \
        }                                                                                                              \
        return sum;                                                                                                    \
    }

SQUARES(float)
SQUARES(double)

/*
 * Whether all partitions of the round have come. A round that has failed may lack some; the next one begins anew. What
 * the others have written before they were counted is seen by the one that comes last.
 */
static bool is_last(struct tensor *tensor, uint32_t round)
{
    uint64_t seen = atomic_load(&tensor->seen), next;

    do {
        next = (seen >> 32 == round ? seen : (uint64_t)round << 32) + 1;
    } while (!atomic_compare_exchange_weak(&tensor->seen, &seen, next));
    return (uint32_t)next == tensor->partitions;
}

/* Counters are plain numbers that several threads set here. */
static void keep(const struct gradnorm *stage, const struct tensor *tensor, uint32_t round, double norm)
{
    const struct bps_host *host = stage->host;
    bool finite = isfinite(norm);
    double millionths = finite && norm < 1e12 ? norm * 1e6 : 1e18;

    __atomic_fetch_add(stage->gradients, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(stage->infinite, !finite, __ATOMIC_RELAXED);
    __atomic_store_n(tensor->norm, (uint64_t)llrint(millionths), __ATOMIC_RELAXED);
    if (!finite || round % stage->every == 0) {
        host->log(host, finite ? BPS_LOG_INFO : BPS_LOG_WARN, "round %" PRIu32 ": the norm of %s is %g", round,
                  tensor->name, norm);
    }
}

static bps_status gradnorm_run(void *instance, void *state, const struct bps_stage_task *task,
                               struct bps_report *report)
{
    struct tensor *tensor = state;
    double sum = 0;

    (void)report;
    tensor->squares[task->partition] =
        tensor->dtype == BPS_FLOAT32 ? squares_float(task->src, task->count) : squares_double(task->src, task->count);
    if (is_last(tensor, task->round)) {
        for (uint32_t i = 0; i < tensor->partitions; i++) {
            sum += tensor->squares[i];
        }
        keep(instance, tensor, task->round, sqrt(sum));
    }
    return BPS_OK;
}

static void gradnorm_describe(void *instance, char *text, size_t n)
{
    const struct gradnorm *stage = instance;

    snprintf(text, n, "told every %" PRIu32 " rounds", stage->every);
}

/* ---- what the core sees of us ---- */

static const struct bps_stage_ops gradnorm_ops = {
    .size = sizeof gradnorm_ops,
    .open = gradnorm_open,
    .close = gradnorm_close,
    .query = gradnorm_query,
    .bind = gradnorm_bind,
    .unbind = gradnorm_unbind,
    .run = gradnorm_run,
    .describe = gradnorm_describe,
};

BPS_PLUGIN_MODULE(BPS_KIND_STAGE, "gradnorm", "1.0", "Apache-2.0", .summary = "keeps the norm of each gradient",
                  .options = gradnorm_options, .options_size = sizeof(struct gradnorm_options), .ops = &gradnorm_ops);
