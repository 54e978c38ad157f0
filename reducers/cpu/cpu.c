/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu.c - the plugin "cpu", a reducer: the arithmetic of the summation service on the host's processor.
 *
 * An instance is no more than the choice of an instruction set, made once when it is opened.
 */
#include <byteps/reducer.h>

#include "average.h"
#include "isa.h"
#include "kernels.h"

struct cpu_options {
    uint32_t isa;
};

static const struct bps_option cpu_options[] = {
    BPS_OPTION(struct cpu_options, isa, CHOICE, 0, "auto", CPU_ISA_WORDS,
               "Instruction set of the kernels; auto takes the best that this CPU has. All give the same results."),
    {0},
};

static bps_status cpu_open(const struct bps_host *host, const void *options, void **instance_out,
                           struct bps_report *report)
{
    const struct cpu_isa *isa = bps_cpu_isa_choose(((const struct cpu_options *)options)->isa, report);

    if (!isa) {
        return BPS_ERR_UNSUPPORTED;
    }
    host->log(host, BPS_LOG_DEBUG, "kernels for %s", isa->name);
    *instance_out = (void *)isa;
    return BPS_OK;
}

static void cpu_close(void *instance)
{
    (void)instance;
}

static bps_status cpu_kernels(void *instance, uint32_t op, uint32_t dtype, struct bps_kernels *out)
{
    const struct cpu_isa *isa = instance;

    if (op >= BPS_OPS || dtype >= BPS_DTYPES) {
        return BPS_ERR_UNSUPPORTED;
    }
    *out = op == BPS_AVERAGE ? bps_cpu_averages[dtype] : isa->table->of[op][dtype];
    return out->reduce ? BPS_OK : BPS_ERR_UNSUPPORTED;
}

static void cpu_describe(void *instance, char *text, size_t n)
{
    const struct cpu_isa *isa = instance;

    snprintf(text, n, "kernels for %s", isa->name);
}

static const struct bps_reducer_ops cpu_ops = {
    .size = sizeof(struct bps_reducer_ops),
    .open = cpu_open,
    .close = cpu_close,
    .kernels = cpu_kernels,
    .describe = cpu_describe,
};

BPS_PLUGIN_MODULE(BPS_KIND_REDUCER, "cpu", PLUGIN_VERSION, "Apache-2.0",
                  .summary = "sums on the CPU with the widest vectors it has", .options = cpu_options,
                  .options_size = sizeof(struct cpu_options), .ops = &cpu_ops);
