/* SPDX-License-Identifier: Apache-2.0 */
/* plan_compare.c - what each number of further servers gives: times, what one more saves, idle links, cost. */
#include "tools/plan_compare.h"

#include <math.h>
#include <stdlib.h>

#include "tools/cmd.h"

#define SAME 1e-9 /* what rounding may make of equal numbers */

/* How many times as fast; NAN: one of the two takes no time, or is not possible. */
static double times(double other, double own)
{
    return other > 0 && own > 0 ? other / own : NAN;
}

/* The mean of the links of hosts from `from` up to `to`. */
static double idle(const struct bps_plan *plan, uint32_t from, uint32_t to)
{
    double busy = 0;
    for (uint32_t i = from; i < to; i++) {
        busy += plan->link[i].busy;
    }
    return from < to && plan->placed > 0 ? fmax(0, 1 - busy / (to - from) / plan->placed) : NAN;
}

/* No server relieves the links of workers of their own gradients and results. */
static bool is_enough(const struct bps_plan *plan)
{
    double least = 0;
    for (uint32_t i = 0; i < plan->hosts; i++) {
        least = fmax(least, (double)plan->bytes * 8 / plan->link[i].bandwidth);
    }
    return plan->ideal <= least * (1 + SAME);
}

static void set_step(struct bps_compare_row *row, uint32_t workers, const struct bps_step *step)
{
    double compute = fmax(0, step->compute);
    row->step = step->overlap ? fmax(compute, row->placed) : compute + row->placed;
    row->steps_per_hour = row->step > 0 ? 3600 / row->step : NAN;
    row->cost_per_1000 = NAN;
    if (step->price >= 0) {
        row->cost_per_1000 = 1000 * row->step / 3600 * (workers * step->worker_price + row->servers * step->price);
    }
}

static void set_row(struct bps_compare_row *row, const struct bps_plan *plan)
{
    *row = (struct bps_compare_row){
        .servers = plan->others,
        .servers_only = plan->servers_only < 0 ? NAN : plan->servers_only,
        .ring = plan->ring,
        .ideal = plan->ideal,
        .placed = plan->placed,
        .times_ring = times(plan->ring, plan->placed),
        .saved = NAN,
        .saved_part = NAN,
        .idle_workers = idle(plan, 0, plan->hosts),
        .idle_servers = idle(plan, plan->hosts, plan->hosts + plan->others),
        .enough = is_enough(plan),
    };
}

static void set_saved(struct bps_compare_row *row, const struct bps_compare_row *above)
{
    row->saved = (above->placed - row->placed) / (row->servers - above->servers);
    row->saved_part = above->placed > 0 ? row->saved / above->placed : NAN;
}

/* How each row compares with the fastest one; the first whose step is nearly as short as the shortest has the mark. */
static void set_best(struct bps_compare *compare)
{
    double best = compare->row[0].placed, step = compare->row[0].step;
    bool found = false;
    for (uint32_t i = 1; i < compare->n; i++) {
        best = fmin(best, compare->row[i].placed);
        step = fmin(step, compare->row[i].step);
    }
    for (uint32_t i = 0; i < compare->n; i++) {
        struct bps_compare_row *row = &compare->row[i];
        row->times_best = times(row->placed, best);
        row->near = !found && row->step <= step * BPS_COMPARE_NEAR;
        found = found || row->near;
    }
}

/* Of each mark only the first row keeps it. */
static void mark(struct bps_compare *compare)
{
    uint32_t cheapest = 0;
    bool enough = false;
    for (uint32_t i = 0; i < compare->n; i++) {
        struct bps_compare_row *row = &compare->row[i];
        if (row->cost_per_1000 < compare->row[cheapest].cost_per_1000 * (1 - SAME)) {
            cheapest = i;
        }
        row->enough = row->enough && !enough;
        enough = enough || row->enough;
    }
    compare->row[cheapest].cheapest = !isnan(compare->row[cheapest].cost_per_1000);
}

/* The configuration is that of the first number of servers, and has been checked. */
static bps_status make_plan(struct bps_conf *conf, const struct bps_model *model, const struct bps_links *links,
                            uint32_t servers, struct bps_plan *out, struct bps_report *report)
{
    conf->cluster.servers = servers;
    return bps_plan_make(conf, model, links, out, report);
}

/* The time without further servers; NAN: workers do not host any. */
static bps_status time_without(struct bps_conf *conf, const struct bps_model *model, const struct bps_links *links,
                               double *out, struct bps_report *report)
{
    struct bps_plan plan;
    *out = NAN;
    if (conf->cluster.colocated == BPS_COLOCATED_NONE) {
        return BPS_OK;
    }
    bps_status status = make_plan(conf, model, links, 0, &plan, report);
    if (status == BPS_OK) {
        *out = plan.placed;
        bps_plan_fini(&plan);
    }
    return status;
}

bps_status bps_compare_make(struct bps_conf *conf, const struct bps_model *model, const struct bps_links *links,
                            const struct bps_counts *counts, const struct bps_step *step, struct bps_compare *out,
                            struct bps_report *report)
{
    double none;
    *out = (struct bps_compare){.workers = (uint32_t)conf->cluster.workers, .n = counts->n};
    out->row = bps_cmd_alloc(counts->n, sizeof *out->row);
    bps_status status = time_without(conf, model, links, &none, report);
    for (uint32_t i = 0; i < counts->n && status == BPS_OK; i++) {
        struct bps_plan plan;
        status = make_plan(conf, model, links, counts->count[i], &plan, report);
        if (status == BPS_OK) {
            struct bps_compare_row *row = &out->row[i];
            set_row(row, &plan);
            set_step(row, out->workers, step);
            row->times_none = times(none, row->placed);
            if (i > 0) {
                set_saved(row, row - 1);
            }
            bps_plan_links_text(&plan, out->links, sizeof out->links); /* at last those of all hosts */
            bps_plan_fini(&plan);
        }
    }
    if (status == BPS_OK) {
        set_best(out);
        mark(out);
    } else {
        bps_compare_fini(out);
    }
    return status;
}

void bps_compare_fini(struct bps_compare *compare)
{
    free(compare->row);
    *compare = (struct bps_compare){0};
}
