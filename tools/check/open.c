/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - an instance of the plugin under test, opened as the core opens one, with each answer looked at. */
#include <stdlib.h>
#include <string.h>

#include "conf/option.h"
#include "conf/tree.h"
#include "plugin/kinds.h"
#include "tools/check/check.h"

const struct bps_loaded *bps_check_load(struct bps_check *check)
{
    static const struct bps_loaded *loaded;
    struct bps_report report = {""};
    if (loaded == NULL) {
        bps_check_at(check, "loading the plugin");
        bps_status status = bps_plugin_open(check->plugin->kind, check->plugin->name, NULL, &loaded, &report);
        BPS_CHECK(check, status == BPS_OK, "%s", report.text);
        bps_check_at(check, "open");
    }
    return loaded;
}

/* ---- options ---- */

static bool add_option(struct bps_arena *arena, struct bps_conf_node *group, const char *name, const char *text)
{
    struct bps_conf_node *node = bps_tree_node(arena, BPS_CONF_SCALAR, name, text, "--set");
    return node != NULL && bps_tree_put(arena, group, name, node);
}

/* The group of a configuration that the command line stands for. NULL: no memory. */
static struct bps_conf_node *option_group(const struct bps_check_plugin *plugin, struct bps_arena *arena,
                                          const char *option, const char *value)
{
    struct bps_conf_node *group = bps_tree_node(arena, BPS_CONF_GROUP, "check", NULL, "--set");
    bool whole = group != NULL;
    for (size_t i = 0; i < plugin->nset && whole; i++) {
        const char *equals = strchr(plugin->set[i], '=');
        char *name = bps_arena_copy(arena, plugin->set[i]);
        if (name == NULL) {
            return NULL;
        }
        name[equals - plugin->set[i]] = '\0';
        whole = add_option(arena, group, name, equals + 1);
    }
    if (whole && option != NULL) {
        whole = add_option(arena, group, option, value);
    }
    return whole ? group : NULL;
}

static bps_status fill(struct bps_check *check, struct bps_instance *instance, const char *option, const char *value,
                       struct bps_report *report)
{
    static const struct bps_option none[] = {{0}};
    const struct bps_plugin *plugin = instance->loaded->plugin;
    struct bps_arena arena = {0};
    const struct bps_conf_node *group = option_group(check->plugin, &arena, option, value);
    instance->options = calloc(1, plugin->options_size + 1);
    BPS_CHECK(check, group != NULL && instance->options != NULL, "out of memory for options");
    bps_status status = bps_conf_options(group, "check", bps_kind_members(plugin->kind),
                                         plugin->options != NULL ? plugin->options : none, instance->options, report);
    bps_arena_free(&arena);
    return status;
}

/* ---- instances ---- */

/* Then the loop goes once round: it keeps what was unwatched until it can be in none of its events. */
static void free_it(struct bps_check *check, struct bps_instance *instance)
{
    bps_host_free(instance->host);
    if (instance->options != NULL && instance->loaded->plugin->options != NULL) {
        bps_options_release(instance->loaded->plugin->options, instance->options);
    }
    free(instance->options);
    free(instance);
    bps_check_turn(check);
}

static struct bps_ops_common common_of(const struct bps_instance *instance)
{
    struct bps_ops_common common;
    memcpy(&common, instance->ops, sizeof common);
    return common;
}

/* What open returns has to be BPS_OK, with an instance, or an error with its reason. */
static bps_status open_it(struct bps_check *check, struct bps_instance *instance, struct bps_report *report)
{
    bps_check_allocations_watch(check, instance->host);
    BPS_CALLING(instance, "open", NULL);
    bps_status status = common_of(instance).open(instance->host, instance->options, &instance->self, report);
    BPS_CHECK(check, status <= 0, "open returns %d; allowed are BPS_OK and BPS_ERR_*", status);
    BPS_CHECK(check, status == BPS_OK || status == BPS_ERR_NOMEM || report->text[0] != '\0',
              "open returns %d (%s) without a text in the report; BPS_REPORT() writes it", status,
              bps_strerror(status));
    BPS_CHECK(check, memchr(report->text, '\0', sizeof report->text) != NULL, "the report of open is not terminated");
    return status;
}

bps_status bps_check_try(struct bps_check *check, const char *option, const char *value, struct bps_instance **out,
                         struct bps_report *report)
{
    struct bps_instance *instance = calloc(1, sizeof *instance);
    BPS_CHECK(check, instance != NULL, "out of memory for an instance");
    *report = (struct bps_report){""};
    instance->loaded = bps_check_load(check);
    instance->ops = instance->loaded->ops;
    instance->host = bps_host_new("check", check->loop);
    BPS_CHECK(check, instance->host != NULL, "out of memory for an instance");
    instance->names =
        (struct bps_plugin_names){.plugin = instance->loaded->plugin->name, .instance = instance->host->instance};
    memcpy(instance->name, "check", sizeof "check");
    bps_status status = fill(check, instance, option, value, report);
    if (status == BPS_OK) {
        status = open_it(check, instance, report);
    }
    if (status != BPS_OK) {
        free_it(check, instance);
        instance = NULL;
    }
    *out = instance;
    return status;
}

struct bps_instance *bps_check_open(struct bps_check *check)
{
    struct bps_instance *instance;
    struct bps_report report;
    bps_status status = bps_check_try(check, NULL, NULL, &instance, &report);
    if (status == BPS_ERR_UNSUPPORTED) {
        bps_check_skip(check, "it does not work on this machine: %s", report.text);
    }
    BPS_CHECK(check, status == BPS_OK, "it cannot be opened: %s", report.text);
    return instance;
}

void bps_check_close(struct bps_check *check, struct bps_instance *instance)
{
    BPS_CALLING(instance, "close", NULL);
    common_of(instance).close(instance->self);
    free_it(check, instance);
}
