/* SPDX-License-Identifier: Apache-2.0 */
/* descriptor.c - what a plugin of whatever minor says of itself becomes what this version knows: checked and copied. */
#include <stdlib.h>
#include <string.h>

#include "base/layout.h"
#include "base/report.h"
#include "plugin/abi_0.h"
#include "plugin/check.h"

/* Copies rows of another size than here. */
static bps_status copy_options(const struct bps_plugin *plugin, size_t size, struct bps_descriptor *out,
                               struct bps_report *report)
{
    const char *row = (const char *)plugin->options;
    if (size < BPS_LEAST(bps_option)) {
        return bps_refuse(report, "option_size is %zu, expected %zu or more; set it to sizeof(struct bps_option)", size,
                          BPS_LEAST(bps_option));
    }
    out->options = calloc(BPS_OPTION_ROWS + 1, sizeof *out->options);
    if (out->options == NULL) {
        return bps_out_of_memory(report);
    }
    bool last = false;
    for (size_t i = 0; i <= BPS_OPTION_ROWS && !last; i++) {
        memcpy(&out->options[i], row + i * size, size < sizeof *out->options ? size : sizeof *out->options);
        last = out->options[i].name == NULL;
    }
    out->plugin.options = out->options;
    return BPS_OK;
}

static bps_status take_options(const struct bps_plugin *plugin, struct bps_descriptor *out, struct bps_report *report)
{
    size_t size = out->plugin.option_size != 0 ? out->plugin.option_size : BPS_LEAST(bps_option);
    bps_status status = BPS_OK;
    if (out->plugin.options == NULL) {
        return BPS_OK;
    }
    if (size != sizeof(struct bps_option)) {
        status = copy_options(plugin, size, out, report);
    }
    return status == BPS_OK ? bps_options_check(out->plugin.options, out->plugin.options_size, report) : status;
}

bps_status bps_descriptor_make(const struct bps_module *module, const struct bps_plugin *plugin,
                               struct bps_descriptor *out, struct bps_report *report)
{
    *out = (struct bps_descriptor){.options = NULL};
    memcpy(&out->plugin, plugin, plugin->size < sizeof out->plugin ? plugin->size : sizeof out->plugin);
    if (module->abi_major == 0) {
        out->plugin.option_size = 0;
    }
    if (plugin->summary == NULL || plugin->summary[0] == '\0') {
        return bps_refuse(report, "summary in its descriptor is %s, expected a text; set it",
                          plugin->summary == NULL ? "NULL" : "empty");
    }
    bps_status status = bps_ops_complete(plugin->kind, plugin->ops, &out->tables, report);
    if (status == BPS_OK) {
        status = take_options(plugin, out, report);
    }
    return status == BPS_OK && module->abi_major == 0 ? bps_abi_0_adapt(out, report) : status;
}

void bps_descriptor_free(struct bps_descriptor *descriptor)
{
    free(descriptor->options);
    descriptor->options = NULL;
}
