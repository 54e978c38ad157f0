/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage_nanguard.c - the stage "nanguard": fails the push_pull of a tensor that has a NaN, on every worker, and
 * names the place where it was found.
 *
 * An example of a stage that only looks at the data (writes = 0) and of one that reports an error.
 */
#include <inttypes.h>
#include <string.h>

#include <byteps/stage.h>

/* What run needs to know of a tensor. */
struct tensor {
    const char *name; /* lives as long as the binding */
    uint32_t dtype;
};

static bps_status nanguard_open(const struct bps_host *host, const void *options, void **instance_out,
                                struct bps_report *report)
{
    (void)options;
    (void)report;
    *instance_out = (void *)host;
    return BPS_OK;
}

static void nanguard_close(void *instance)
{
    (void)instance;
}

static void nanguard_query(void *instance, struct bps_stage_attr *out)
{
    (void)instance;
    *out = (struct bps_stage_attr){
        .ops = (1u << BPS_OPS) - 1,
        .dtypes = (1u << BPS_DTYPES) - 1, /* bind leaves out those that cannot hold a NaN */
        .memory = BPS_MEMORY_HOST,
        .executor = BPS_EXECUTOR_CPU,
        .writes = 0,
        .takes = "plain",
        .gives = "plain",
    };
}

/* A NaN is larger than infinity, once the sign is gone and the bits are read as an integer. */
#define FIND_NAN(T, name, infinity)                                                                                    \
    static uint64_t find_##name(const void *src, uint64_t count)                                                       \
    {                                                                                                                  \
        for (uint64_t i = 0; i < count; i++) {                                                                         \
            T bits;                                                                                                    \
            memcpy(&bits, (const char *)src + i * sizeof bits, sizeof bits);                                           \
            if ((bits & (T) ~((T)1 << (8 * sizeof bits - 1))) > (infinity)) {                                          \
                return i;                                                                                              \
            }                                                                                                          \
        }                                                                                                              \
        return count;                                                                                                  \
    }

FIND_NAN(uint32_t, float32, 0x7f800000u)
FIND_NAN(uint64_t, float64, 0x7ff0000000000000u)
FIND_NAN(uint16_t, float16, 0x7c00u)
FIND_NAN(uint16_t, bfloat16, 0x7f80u)
FIND_NAN(uint8_t, float8_e4m3fn, 0x7eu) /* has no infinity: this is its largest number */
FIND_NAN(uint8_t, float8_e5m2, 0x7cu)

/* The first element that is NaN, or count. NULL: the type cannot hold one. */
typedef uint64_t (*find_fn)(const void *src, uint64_t count);

static find_fn finder_of(uint32_t dtype)
{
    static const find_fn finders[BPS_DTYPES] = {
        [BPS_FLOAT32] = find_float32,
        [BPS_FLOAT64] = find_float64,
        [BPS_FLOAT16] = find_float16,
        [BPS_BFLOAT16] = find_bfloat16,
        [BPS_FLOAT8_E4M3FN] = find_float8_e4m3fn,
        [BPS_FLOAT8_E5M2] = find_float8_e5m2,
    };

    return dtype < BPS_DTYPES ? finders[dtype] : NULL;
}

static bps_status nanguard_bind(void *instance, const struct bps_tensor_info *info, void **state_out,
                                struct bps_report *report)
{
    const struct bps_host *host = instance;
    struct tensor *tensor;

    if (!finder_of(info->dtype)) {
        return BPS_AGAIN;
    }
    tensor = host->alloc(host, sizeof *tensor, 8);
    if (!tensor) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *tensor = (struct tensor){.name = info->name, .dtype = info->dtype};
    *state_out = tensor;
    return BPS_OK;
}

static void nanguard_unbind(void *instance, void *state)
{
    const struct bps_host *host = instance;

    host->release(host, state);
}

static bps_status nanguard_run(void *instance, void *state, const struct bps_stage_task *task,
                               struct bps_report *report)
{
    const struct tensor *tensor = state;
    uint64_t place = finder_of(tensor->dtype)(task->src, task->count);

    (void)instance;
    if (place == task->count) {
        return BPS_OK;
    }
    BPS_REPORT(report, "element %" PRIu64 " of %s is NaN", task->first + place, tensor->name);
    return BPS_ERR_FAILED;
}

/* ---- what the core sees of us -------------------------------------------------------------------------- */

static const struct bps_stage_ops nanguard_ops = {
    .size = sizeof nanguard_ops,
    .open = nanguard_open,
    .close = nanguard_close,
    .query = nanguard_query,
    .bind = nanguard_bind,
    .unbind = nanguard_unbind,
    .run = nanguard_run,
};

BPS_PLUGIN_MODULE(BPS_KIND_STAGE, "nanguard", "1.0", "Apache-2.0", .summary = "fails a push_pull that has a NaN",
                  .ops = &nanguard_ops);
