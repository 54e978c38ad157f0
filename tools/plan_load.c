/* SPDX-License-Identifier: Apache-2.0 */
/* plan_load.c - the model and the bandwidths that options name, and the plan that follows from them. */
#include <stdio.h>

#include "conf/tree.h"
#include "tools/cmd.h"
#include "tools/plan.h"

bool bps_plan_take(struct bps_plan_request *request, int code, const char *value)
{
    if (code == BPS_PLAN_OPT_MODEL) {
        request->model = value;
        return true;
    }
    if (code == BPS_PLAN_OPT_BANDWIDTH) {
        request->bandwidth = value;
        return true;
    }
    return false;
}

int bps_plan_read(const char *command, const struct bps_plan_request *request, int64_t hosts, struct bps_model *model,
                  struct bps_links *links)
{
    const char *text = request->bandwidth != NULL ? request->bandwidth : BPS_BANDWIDTH_DEFAULT;
    struct bps_report report = {""};
    if (request->model == NULL) {
        char models[600];
        bps_model_list(models, sizeof models);
        return bps_cmd_usage(command, "no model given; expected --model with a file or one of %s", models);
    }
    if (bps_links_parse(text, links, &report) != BPS_OK) {
        return bps_cmd_usage(command, "--bandwidth %s: %s", bps_shown(text).text, report.text);
    }
    if (bps_links_hosts(links) > (uint64_t)hosts) {
        return bps_cmd_usage(command,
                             "--bandwidth %s: for %lu hosts; expected one for each of %ld at most, those with "
                             "workers first",
                             bps_shown(text).text, bps_links_hosts(links), hosts);
    }
    return bps_model_read(request->model, model, &report) == BPS_OK ? 0 : bps_cmd_failure(command, "%s", report.text);
}

int bps_plan_load(const char *command, const struct bps_plan_request *request, const struct bps_conf *conf,
                  struct bps_model *model, struct bps_plan *plan)
{
    struct bps_links links;
    struct bps_report report = {""};
    int result = bps_plan_read(command, request, conf->cluster.workers + conf->cluster.servers, model, &links);
    if (result != 0) {
        return result;
    }
    bps_status status = bps_plan_make(conf, model, &links, plan, &report);
    if (status != BPS_OK) {
        bps_model_fini(model);
        return bps_cmd_failure(command, "%s", report.text[0] != '\0' ? report.text : bps_strerror(status));
    }
    return 0;
}
