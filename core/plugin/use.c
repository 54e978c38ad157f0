/* SPDX-License-Identifier: Apache-2.0 */
/* use.c - opening the first usable instance of a preference list. */
#include "plugin/use.h"

#include "base/log.h"
#include "base/report.h"
#include "base/tensor.h"
#include "plugin/returned.h"

static bps_status open_one(const struct bps_conf *conf, uint32_t kind, const char *map, const char *name,
                           struct bps_loop *loop, struct bps_instance **out, struct bps_report *report)
{
    char path[128];
    snprintf(path, sizeof path, "%s.%s", map, name);
    return bps_instance_open(kind, NULL, name, bps_conf_find(conf, path), path, loop, out, report);
}

bps_status bps_use_open(const struct bps_conf *conf, uint32_t kind, const char *map, const struct bps_conf_node *use,
                        const char *fallback, struct bps_loop *loop, struct bps_instance **out,
                        struct bps_report *report)
{
    struct bps_report reason = {""};
    uint32_t n = use != NULL && use->kind == BPS_CONF_LIST ? use->count : 1;
    for (uint32_t i = 0; i < n; i++) {
        const char *name = use == NULL ? fallback : use->kind == BPS_CONF_LIST ? use->children[i]->text : use->text;
        bps_status status = open_one(conf, kind, map, name, loop, out, &reason);
        if (status == BPS_OK) {
            if (i > 0) {
                bps_warn(map, "using '%s'", name);
            }
            return BPS_OK;
        }
        if (i + 1 == n) {
            BPS_REPORT(report, "%s", reason.text);
            return status;
        }
        bps_warn(map, "'%s' is not usable: %s", name, reason.text);
    }
    return bps_fail(report, BPS_ERR_CONF, "%s: the list of names to use is empty", map);
}

bps_status bps_reducer_open(const struct bps_conf *conf, struct bps_loop *loop, struct bps_instance **out,
                            struct bps_report *report)
{
    return bps_use_open(conf, BPS_KIND_REDUCER, "reducers", bps_conf_find(conf, "server.use"), "sum", loop, out,
                        report);
}

bps_status bps_reducer_kernels(const struct bps_instance *reducer, uint32_t op, uint32_t dtype, struct bps_kernels *out,
                               struct bps_report *report)
{
    const struct bps_reducer_ops *ops = reducer->ops;
    uint32_t asked = op == BPS_AVERAGE && !bps_is_integer(dtype) ? BPS_SUM : op;
    bool none = op == BPS_AVERAGE && dtype == BPS_BOOL;
    BPS_CALLING(reducer, "kernels", NULL);
    bps_status returned = none ? BPS_ERR_UNSUPPORTED : ops->kernels(reducer->self, asked, dtype, out);
    bps_status status = bps_returned(reducer, "kernels", BPS_OK, returned, report);
    if (status != BPS_OK && status == returned) {
        BPS_REPORT(report, "reducer '%s' has no %s of %s", reducer->name, bps_op_name(op), bps_dtype_name(dtype));
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
