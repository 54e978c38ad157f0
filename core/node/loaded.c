/* SPDX-License-Identifier: Apache-2.0 */
/* loaded.c - what code a member of a job runs, one plugin a line. */
#include "node/loaded.h"

#include <dlfcn.h>

#include <byteps/byteps.h>

#include "conf/tree.h"
#include "plugin/registry.h"
#include "wire/frame.h"

static bool loaded_load(uint32_t kind, const struct bps_conf_node *group)
{
    const struct bps_conf_node *plugin = group != NULL ? bps_conf_member(group, "plugin") : NULL;
    const struct bps_loaded *loaded;
    return plugin != NULL && plugin->kind == BPS_CONF_SCALAR &&
           bps_plugin_open(kind, plugin->text, NULL, &loaded, NULL) == BPS_OK;
}

static void load_what_is_used_later(const struct bps_conf *conf)
{
    const struct bps_conf_node *reducers = bps_conf_find(conf, "reducers"),
                               *compressors = bps_conf_find(conf, "compressors");
    for (uint32_t i = 0; compressors != NULL && i < compressors->count; i++) {
        loaded_load(BPS_KIND_COMPRESSOR, compressors->children[i]);
    }
    for (uint32_t i = 0; reducers != NULL && i < conf->server.use.count; i++) {
        if (loaded_load(BPS_KIND_REDUCER, bps_conf_member(reducers, conf->server.use.items[i]))) {
            break;
        }
    }
}

static void add_plugin(void *arg, const struct bps_loaded *loaded)
{
    const struct bps_plugin *plugin = loaded->plugin;
    bps_text_add(arg, "%s %s\t%s format %u\t%s\n", bps_kind_name(plugin->kind), plugin->name, loaded->module->version,
                 plugin->format, loaded->path);
}

char *bps_loaded_text(const struct bps_conf *conf)
{
    static const char here;
    struct bps_text text = {0};
    Dl_info file = {0};
    load_what_is_used_later(conf);
    bps_text_add(&text, "library byteps\t%s format %u\t%s\n", bps_version(), BPS_WIRE_VERSION,
                 dladdr(&here, &file) != 0 ? file.dli_fname : "?");
    bps_plugin_each_loaded(add_plugin, &text);
    return text.data;
}
