/* SPDX-License-Identifier: Apache-2.0 */
/* async.c - tensors in mode async: what they can do. */

#include "base/report.h"
#include "flow/flow.h"

/* Alone, what is pushed first is the form for ever. */
static bool async_has_changed(struct bps_tensor_entry *tensor)
{
    if (tensor->job.dtype == BPS_DTYPES) {
        return bps_form_set(&tensor->job, &tensor->named.form) != BPS_OK;
    }
    return !bps_form_agrees(&tensor->named.form, &tensor->job);
}

bps_status bps_async_check(struct bps_operation *operation, bool other, struct bps_report *report)
{
    struct bps_tensor_entry *tensor = bps_container(operation, struct bps_tensor_entry, operation);
    char own[200], known[200];
    if (other || (bps_worker_alone(tensor->worker) && async_has_changed(tensor))) {
        bps_form_text(&tensor->named.form, own, sizeof own);
        bps_form_text(&tensor->job, known, sizeof known);
        return bps_fail(report, BPS_ERR_MISMATCH,
                        "the tensor was declared with %s, not %s, and a tensor in mode async cannot change", known,
                        own);
    }
    if (bps_sums(&operation->roles) && operation->op != BPS_SUM && operation->op != BPS_AVERAGE) {
        return bps_fail(report, BPS_ERR_UNSUPPORTED, "a tensor in mode async supports sum and average only");
    }
    if (bps_sums(&operation->roles) && operation->request.postscale != 1.0) {
        return bps_fail(report, BPS_ERR_UNSUPPORTED, "a tensor in mode async does not support postscale");
    }
    return BPS_OK;
}
