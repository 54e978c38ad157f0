/* SPDX-License-Identifier: Apache-2.0 */
/* stage_beyond.c - a stage of a newer minor that calls a service of it without a look at host->abi_minor. */
#include <byteps/stage.h>

static bps_status beyond_open(const struct bps_host *host, const void *options, void **instance_out,
                              struct bps_report *report)
{
    uint64_t (*service)(const struct bps_host *) = (uint64_t (*)(const struct bps_host *))host->of_a_newer_minor;
    (void)options;
    *instance_out = NULL;
    if (host->abi_minor >= BPS_ABI_MINOR || service(host) != 0) {
        BPS_REPORT(report, "the service is there");
        return BPS_ERR_FAILED;
    }
    return BPS_OK;
}

static void beyond_close(void *instance)
{
    (void)instance;
}

static void beyond_query(void *instance, struct bps_stage_attr *out)
{
    (void)instance;
    *out = (struct bps_stage_attr){
        .ops = BPS_OP_BIT(BPS_SUM),
        .dtypes = BPS_DTYPE_BIT(BPS_FLOAT32),
        .memory = BPS_MEMORY_HOST,
        .takes = "plain",
        .gives = "plain",
        .of_a_newer_minor = 1,
    };
}

static bps_status beyond_run(void *instance, void *state, const struct bps_stage_task *task, struct bps_report *report)
{
    (void)instance;
    (void)state;
    (void)task;
    (void)report;
    return BPS_OK;
}

static const struct bps_stage_ops beyond_ops = {
    .size = sizeof beyond_ops,
    .open = beyond_open,
    .close = beyond_close,
    .query = beyond_query,
    .run = beyond_run,
};

BPS_PLUGIN_MODULE(BPS_KIND_STAGE, "beyond", "1.0", "Apache-2.0", .summary = "calls what is not there",
                  .ops = &beyond_ops);
