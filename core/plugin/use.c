/* SPDX-License-Identifier: Apache-2.0 */
/* use.c - opening the first usable instance of a preference list. */
#include "plugin/use.h"

#include "base/log.h"
#include "base/report.h"
#include "base/tensor.h"
#include "plugin/ask.h"

static bps_status open_one(const struct bps_conf *conf, uint32_t kind, const char *map, const char *name,
                           struct bps_loop *loop, struct bps_instance **out, struct bps_report *report)
{
    char path[128];
    snprintf(path, sizeof path, "%s.%s", map, name);
    return bps_instance_open(kind, NULL, name, bps_conf_find(conf, path), path, loop, out, report);
}

static uint32_t plugin_use_count_of(const struct bps_conf_node *use)
{
    return use != NULL && use->kind == BPS_CONF_LIST ? use->count : 1;
}

/* Opens the first usable one from `*at` on, which becomes its place in the list. */
static bps_status open_from(const struct bps_conf *conf, uint32_t kind, const char *map,
                            const struct bps_conf_node *use, const char *fallback, struct bps_loop *loop, uint32_t *at,
                            struct bps_instance **out, struct bps_report *report)
{
    struct bps_report reason = {""};
    uint32_t n = plugin_use_count_of(use);
    for (; *at < n; ++*at) {
        const char *name = use == NULL ? fallback : use->kind == BPS_CONF_LIST ? use->children[*at]->text : use->text;
        bps_status status = open_one(conf, kind, map, name, loop, out, &reason);
        if (status == BPS_OK) {
            (*out)->conf = conf;
            return BPS_OK;
        }
        if (*at + 1 == n) {
            BPS_REPORT(report, "%s", reason.text);
            return status;
        }
        bps_warn(map, "'%s' is not usable: %s", name, reason.text);
    }
    return bps_fail(report, BPS_ERR_CONF, "%s: the list of names to use is empty", map);
}

bps_status bps_use_open(const struct bps_conf *conf, uint32_t kind, const char *map, const struct bps_conf_node *use,
                        const char *fallback, struct bps_loop *loop, struct bps_instance **out,
                        struct bps_report *report)
{
    uint32_t at = 0;
    bps_status status = open_from(conf, kind, map, use, fallback, loop, &at, out, report);
    if (status == BPS_OK && at > 0) {
        bps_warn(map, "using '%s'", (*out)->name);
    }
    return status;
}

/* All usable ones: what the first cannot sum, the next may. One that is not usable is told, and missed by nobody. */
bps_status bps_reducer_open(const struct bps_conf *conf, struct bps_loop *loop, struct bps_instance **out,
                            struct bps_report *report)
{
    const struct bps_conf_node *use = bps_conf_find(conf, "server.use");
    struct bps_report reason;
    uint32_t at = 0;
    if (*out != NULL) {
        return BPS_OK;
    }
    bps_status status = open_from(conf, BPS_KIND_REDUCER, "reducers", use, "sum", loop, &at, out, report);
    for (struct bps_instance **next = out; status == BPS_OK && ++at < plugin_use_count_of(use);) {
        next = &(*next)->next;
        if (open_from(conf, BPS_KIND_REDUCER, "reducers", use, "sum", loop, &at, next, &reason) != BPS_OK) {
            bps_warn("reducers", "'%s' is not usable: %s", use->children[plugin_use_count_of(use) - 1]->text,
                     reason.text);
        }
    }
    return status;
}

bps_status bps_reducer_kernels(const struct bps_instance *reducer, uint32_t op, uint32_t dtype, struct bps_kernels *out,
                               const struct bps_instance **by, struct bps_report *report)
{
    uint32_t asked = op == BPS_AVERAGE && !bps_is_integer(dtype) ? BPS_SUM : op;
    const struct bps_instance *one = op == BPS_AVERAGE && dtype == BPS_BOOL ? NULL : reducer;
    bps_status status = BPS_ERR_UNSUPPORTED;
    for (; one != NULL && status == BPS_ERR_UNSUPPORTED; one = one->next) {
        status = bps_ask_kernels(one, asked, dtype, out, report);
        *by = one;
    }
    if (status != BPS_OK && status != BPS_ERR_PLUGIN) {
        BPS_REPORT(report, "reducer '%s'%s has no %s of %s", reducer->name,
                   reducer->next != NULL ? ", or one after it in server.use," : "", bps_op_name(op),
                   bps_dtype_name(dtype));
    }
    return status;
}

const struct bps_device_ops *bps_device_ops(const struct bps_instance *reducer)
{
    return ((const struct bps_reducer_ops *)reducer->ops)->device;
}

bps_status bps_device_open(const struct bps_conf *conf, struct bps_loop *loop, struct bps_instance **out,
                           struct bps_report *report)
{
    struct bps_instance *reducer;
    bps_status status = bps_use_open(conf, BPS_KIND_REDUCER, "reducers", bps_conf_find(conf, "worker.use"), "sum", loop,
                                     &reducer, report);
    if (status != BPS_OK) {
        return status;
    }
    *out = reducer;
    if (bps_device_ops(reducer) == NULL) {
        bps_instance_close(reducer);
        *out = NULL;
    }
    return BPS_OK;
}
