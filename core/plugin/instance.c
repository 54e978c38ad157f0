/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instance.c - opens a plugin with the options of one group of the configuration.
 */
#include "plugin/instance.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/log_of.h"
#include "base/report.h"
#include "base/text.h"
#include "conf/option.h"
#include "plugin/ask.h"
#include "plugin/kinds.h"
#include "plugin/returned.h"

static const struct bps_option no_options[] = {{0}};

/* Which plugin the group names, and "ORIGIN: PATH" for errors about it. */
static bps_status find_plugin(const struct bps_conf_node *group, const char *path, const char **plugin, char *used_by,
                              size_t n, struct bps_report *report)
{
    const struct bps_conf_node *member = group ? bps_conf_member(group, "plugin") : NULL;
    const struct bps_conf_node *origin = member ? member : group;
    if (origin && origin->origin) {
        snprintf(used_by, n, "%s: %s", origin->origin, path);
    } else {
        snprintf(used_by, n, "%s", path);
    }
    if (*plugin) {
        return BPS_OK;
    }
    if (!member || member->kind != BPS_CONF_SCALAR) {
        return bps_fail(report, BPS_ERR_CONF, "%s: no plugin is named; add plugin = \"NAME\"", used_by);
    }
    *plugin = member->text;
    return BPS_OK;
}

static bps_status fill_options(struct bps_instance *instance, const struct bps_conf_node *group, const char *path,
                               struct bps_report *report)
{
    const struct bps_plugin *plugin = instance->loaded->plugin;
    const struct bps_option *table = plugin->options ? plugin->options : no_options;
    void *options = calloc(1, plugin->options_size + 1);
    if (!options) {
        return bps_fail(report, BPS_ERR_NOMEM, "%s: out of memory", path);
    }
    bps_status status = bps_conf_options(group, path, bps_kind_members(plugin->kind), table, options, report);
    if (status != BPS_OK) {
        free(options);
        return status;
    }
    instance->options = options;
    return BPS_OK;
}

static struct bps_ops_common common_ops(const struct bps_instance *instance)
{
    struct bps_ops_common common;
    memcpy(&common, instance->ops, sizeof common);
    return common;
}

static bps_status open_plugin(struct bps_instance *instance, const char *path, struct bps_report *report)
{
    struct bps_report why = {""};
    char where[256];
    static char unset;
    instance->self = &unset;
    BPS_CALLING(instance, "open", NULL);
    bps_status returned = common_ops(instance).open(instance->host, instance->options, &instance->self, &why);
    bps_status status = bps_returned(instance, "open", BPS_OK, returned, report);
    if (status == BPS_OK && instance->self == &unset) {
        return bps_blame(instance, "open", report, "*instance_out was not set; expected a pointer, or NULL");
    }
    if (status == BPS_OK || status != returned) {
        return status;
    }
    snprintf(where, sizeof where, "%s: %s", path, instance->loaded->plugin->name);
    bps_report_at(report, where, why.text[0] ? why.text : bps_strerror(status));
    return status;
}

static void close_plugin(const struct bps_instance *instance)
{
    BPS_CALLING(instance, "close", NULL);
    common_ops(instance).close(instance->self);
}

static void instance_add_counter(void *arg, const char *name, const char *help, uint64_t value)
{
    struct bps_text *line = arg;
    (void)help;
    if (value > 0) {
        bps_text_add(line, "%s%s %lu", line->length > 0 ? ", " : "", name, value);
    }
}

/* Those that have counted something. */
static void log_counters(const struct bps_instance *instance)
{
    char text[900];
    struct bps_text line = bps_text_in(text, sizeof text);
    bps_host_counters(instance->host, instance_add_counter, &line);
    if (line.length > 0) {
        instance->host->log(instance->host, BPS_LOG_INFO, "counters: %s", text);
    }
}

/* But for what its plugin has opened. */
static void free_instance(struct bps_instance *instance)
{
    bps_host_free(instance->host);
    if (instance->options && instance->loaded->plugin->options) {
        bps_options_release(instance->loaded->plugin->options, instance->options);
    }
    free(instance->options);
    free(instance);
}

/* From the loaded plugin to the opened instance. */
static bps_status instance_start(struct bps_instance *instance, const struct bps_conf_node *group, const char *path,
                                 struct bps_loop *loop, struct bps_report *report)
{
    bps_status status = fill_options(instance, group, path, report);
    if (status != BPS_OK) {
        return status;
    }
    instance->host = bps_host_new(path, loop);
    if (!instance->host) {
        return bps_fail(report, BPS_ERR_NOMEM, "%s: out of memory", path);
    }
    instance->names =
        (struct bps_plugin_names){.plugin = instance->loaded->plugin->name, .instance = instance->host->instance};
    instance->names.level = bps_log_of_level(&instance->names);
    instance->kernel_names = instance->names;
    instance->names.timed = bps_log_of_calls(&instance->names);
    bps_host_log_as(instance->host, &instance->names);
    status = open_plugin(instance, path, report);
    if (status != BPS_OK) {
        return status;
    }
    status = bps_ask_attr(instance, report);
    if (status != BPS_OK) {
        close_plugin(instance);
    }
    return status;
}

bps_status bps_instance_open(uint32_t kind, const char *plugin, const char *name, const struct bps_conf_node *group,
                             const char *path, struct bps_loop *loop, struct bps_instance **out,
                             struct bps_report *report)
{
    char used_by[512];
    bps_status status = find_plugin(group, path, &plugin, used_by, sizeof used_by, report);
    if (status != BPS_OK) {
        return status;
    }
    struct bps_instance *instance = calloc(1, sizeof *instance);
    if (!instance) {
        return bps_fail(report, BPS_ERR_NOMEM, "%s: out of memory", path);
    }
    snprintf(instance->name, sizeof instance->name, "%s", name);
    status = bps_plugin_open(kind, plugin, used_by, &instance->loaded, report);
    if (status == BPS_OK) {
        instance->ops = instance->loaded->ops;
        status = instance_start(instance, group, path, loop, report);
    }
    if (status != BPS_OK) {
        free_instance(instance);
        return status;
    }
    *out = instance;
    return BPS_OK;
}

void bps_instance_close(struct bps_instance *instance)
{
    if (!instance) {
        return;
    }
    bps_instance_close(instance->next);
    close_plugin(instance);
    log_counters(instance);
    free_instance(instance);
}
