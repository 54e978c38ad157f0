/* SPDX-License-Identifier: Apache-2.0 */
/* plan_step.c - the options of `byteps plan` that say what a step is, and what hosts cost. */
#include "conf/tree.h"
#include "conf/value.h"
#include "tools/cmd.h"
#include "tools/plan_compare.h"

#define NAME        "plan"
#define PRICE_LIMIT 1e9

static int take_price(const char *option, const char *text, double *price)
{
    if (bps_parse_double(text, price) != BPS_OK || !(*price >= 0 && *price <= PRICE_LIMIT)) {
        return bps_cmd_usage(NAME, "%s %s: not a price; expected a number of 0..%.0f, for an hour of a host", option,
                             bps_shown(text).text, PRICE_LIMIT);
    }
    return 0;
}

static int take_compute(const char *text, double *seconds)
{
    uint64_t ns;
    if (bps_parse_time(text, &ns) != BPS_OK) {
        return bps_cmd_usage(NAME, "--compute %s: not a time; expected a number with a unit (us, ms, s), such as 25ms",
                             bps_shown(text).text);
    }
    *seconds = (double)ns / 1e9;
    return 0;
}

bool bps_step_take(struct bps_step *step, int code, const char *value, int *result)
{
    if (code == BPS_STEP_OPT_COMPUTE) {
        step->given = "--compute";
        *result = take_compute(value, &step->compute);
    } else if (code == BPS_STEP_OPT_OVERLAP) {
        step->given = "--overlap";
        step->overlap = true;
    } else if (code == BPS_STEP_OPT_PRICE) {
        step->given = "--price";
        *result = take_price(step->given, value, &step->price);
    } else if (code == BPS_STEP_OPT_WORKER_PRICE) {
        step->given = "--worker-price";
        *result = take_price(step->given, value, &step->worker_price);
    } else {
        return false;
    }
    return true;
}

int bps_step_check(const struct bps_step *step)
{
    if (step->overlap && step->compute < 0) {
        return bps_cmd_usage(NAME, "--overlap needs --compute, the time of what push_pull is hidden behind");
    }
    if ((step->price < 0) != (step->worker_price < 0)) {
        return bps_cmd_usage(NAME, "--%sprice needs --%sprice: a step costs its time on all hosts",
                             step->price < 0 ? "worker-" : "", step->price < 0 ? "" : "worker-");
    }
    return 0;
}
