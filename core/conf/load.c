/* SPDX-License-Identifier: Apache-2.0 */
/* load.c - the layers of a configuration, from the defaults to --set, and its life. */
#include "conf/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/report.h"
#include "conf/layer.h"
#include "conf/option.h"
#include "conf/source.h"
#include "conf/validate.h"

const char *bps_conf_dir(void)
{
    return SYSCONFDIR "/byteps";
}

/* ---- defaults ---- */

/* The default of every row as a node, and in the section's struct. */
static bps_status default_section(struct bps_conf *conf, const struct bps_section *section, struct bps_report *report)
{
    for (const struct bps_option *row = section->table; row->name != NULL; row++) {
        char path[128];
        snprintf(path, sizeof path, "%s.%s", section->name, row->name);
        bps_status status = bps_layer_scalar(conf, path, row->fallback, "default", report);
        if (status != BPS_OK) {
            return status;
        }
    }
    return bps_options_default(section->table, bps_section_struct(conf, section), report);
}

static bps_status default_instances(struct bps_conf *conf, const struct bps_instance_map *map,
                                    struct bps_report *report)
{
    bps_status status = BPS_OK;
    for (const struct bps_default_instance *d = map->defaults; d->name != NULL && status == BPS_OK; d++) {
        char path[128];
        snprintf(path, sizeof path, "%s.%s.plugin", map->name, d->name);
        status = bps_layer_scalar(conf, path, d->plugin, "default", report);
    }
    return status;
}

static bps_status layer_defaults(struct bps_conf *conf, struct bps_report *report)
{
    bps_status status = BPS_OK;
    for (const struct bps_section *section = bps_sections; section->name != NULL && status == BPS_OK; section++) {
        status = default_section(conf, section, report);
    }
    for (const struct bps_instance_map *map = bps_instance_maps; map->name != NULL && status == BPS_OK; map++) {
        status = default_instances(conf, map, report);
    }
    if (status == BPS_OK) {
        status = bps_layer_set(conf, "worker.graph=" BPS_GRAPH_DEFAULT, "default", report);
    }
    return status;
}

/* ---- layers ---- */

static const char *nonempty(const char *text)
{
    return text != NULL && *text != '\0' ? text : NULL;
}

static bps_status layer_named_file(struct bps_conf *conf, const struct bps_conf_request *request,
                                   struct bps_report *report)
{
    if (request->text != NULL) {
        return bps_layer_text(conf, "text", request->text, request->ntext, report);
    }
    const char *file = request->file != NULL ? request->file : nonempty(getenv("BYTEPS_CONF"));
    if (file == NULL) {
        return BPS_OK;
    }
    return bps_layer_file(conf, file, false, report);
}

static bps_status layer_all(struct bps_conf *conf, const struct bps_conf_request *request, struct bps_report *report)
{
    const char *confdir = request->confdir != NULL ? request->confdir : bps_conf_dir();
    const char *handed = nonempty(getenv("BYTEPS_SET"));
    bps_status status = layer_defaults(conf, report);
    if (status == BPS_OK) {
        status = bps_layer_system(conf, confdir, report);
    }
    if (status == BPS_OK) {
        status = layer_named_file(conf, request, report);
    }
    if (status == BPS_OK) {
        status = bps_layer_environment(conf, report);
    }
    if (status == BPS_OK && handed != NULL) {
        bps_source_tell(conf->sources, "BYTEPS_SET", false);
        status = bps_layer_set_lines(conf, handed, "BYTEPS_SET", report);
    }
    if (status == BPS_OK && request->nset > 0) {
        bps_source_tell(conf->sources, "--set", false);
    }
    for (size_t i = 0; i < request->nset && status == BPS_OK; i++) {
        status = bps_layer_set(conf, request->set[i], "--set", report);
    }
    return status;
}

/* ---- the configuration ---- */

static bps_status check_all(struct bps_conf *conf, const struct bps_conf_request *request, struct bps_report *report)
{
    struct bps_check check = {.conf = conf, .request = request, .report = report};
    bps_check_keys(&check);
    if (!bps_check_is_over(&check)) {
        bps_check_instances(&check);
    }
    /* Values that could not be read stand for their defaults; comparing those would only confuse. */
    if (check.problems == 0 && check.status == BPS_OK) {
        bps_check_together(&check);
    }
    return check.status;
}

bps_status bps_conf_load_from(const struct bps_conf_request *request, struct bps_conf **out, struct bps_report *report)
{
    struct bps_report own, *why = report != NULL ? report : &own;
    struct bps_conf *conf = calloc(1, sizeof *conf);
    if (conf == NULL) {
        return bps_out_of_memory(report);
    }
    conf->sources = request->sources;
    conf->root = bps_tree_node(&conf->arena, BPS_CONF_GROUP, NULL, NULL, "default");
    bps_status status = conf->root == NULL ? bps_out_of_memory(why) : layer_all(conf, request, why);
    if (status != BPS_OK && request->problem != NULL) {
        request->problem(request->arg, why->text);
    }
    conf->sources = NULL;
    bool whole = status == BPS_OK;
    if (whole) {
        status = check_all(conf, request, why);
    }
    if (status != BPS_OK && !(whole && request->keep)) {
        bps_conf_free(conf);
        return status;
    }
    *out = conf;
    return status;
}

bps_status bps_conf_load(const char *file, const char *const *set, size_t n, struct bps_conf **out,
                         struct bps_report *report)
{
    struct bps_conf_request request = {.file = file, .set = set, .nset = n};
    return bps_conf_load_from(&request, out, report);
}

void bps_conf_free(struct bps_conf *conf)
{
    if (conf == NULL) {
        return;
    }
    for (const struct bps_section *section = bps_sections; section->name != NULL; section++) {
        bps_options_release(section->table, bps_section_struct(conf, section));
    }
    bps_arena_free(&conf->arena);
    free(conf);
}
