/* SPDX-License-Identifier: Apache-2.0 */
/* compressor_rig.c - what the tests of compressors share: the core's part, and memory at odd addresses. */
#include "compressor_rig.h"

#include <stdlib.h>
#include <string.h>

/* Not check.h, since a fuzz target has this as well. */
static void must(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void *host_alloc(const struct bps_host *host, size_t bytes, size_t align)
{
    (void)host;
    (void)align;
    return malloc(bytes);
}

static void host_release(const struct bps_host *host, void *memory)
{
    (void)host;
    free(memory);
}

static const struct bps_host host = {.size = sizeof host, .alloc = host_alloc, .release = host_release};

static void set(uint8_t *options, const struct bps_option *option, double value)
{
    uint32_t word = (uint32_t)value;
    int64_t integer = (int64_t)value;
    bool truth = value != 0;
    switch (option->type) {
    case BPS_OPT_BOOL:
        memcpy(options + option->offset, &truth, sizeof truth);
        break;
    case BPS_OPT_CHOICE:
        memcpy(options + option->offset, &word, sizeof word);
        break;
    case BPS_OPT_INT:
        memcpy(options + option->offset, &integer, sizeof integer);
        break;
    default:
        must(option->type == BPS_OPT_DOUBLE);
        memcpy(options + option->offset, &value, sizeof value);
    }
}

bps_status rig_open(struct rig *rig, const struct bps_module *module, const struct rig_setting *settings, size_t n)
{
    const struct bps_plugin *plugin = module->plugins[0];
    uint8_t *options = calloc(1, plugin->options_size);
    size_t known = 0;
    must(options != NULL);
    for (const struct bps_option *option = plugin->options; option->name != NULL; option++) {
        for (size_t i = 0; i < n; i++) {
            if (strcmp(option->name, settings[i].name) == 0) {
                set(options, option, settings[i].value);
                known++;
            }
        }
    }
    must(known == n);
    *rig = (struct rig){.ops = plugin->ops};
    bps_status status = rig->ops->open(&host, options, &rig->instance, &rig->report);
    free(options);
    return status;
}

uint8_t *rig_odd(size_t bytes, void **base)
{
    uint8_t *memory = malloc(bytes + 1);
    must(memory != NULL);
    *base = memory;
    return memory + 1;
}

double rig_get(uint32_t dtype, const void *elements, size_t i)
{
    float narrow;
    double wide;
    if (dtype == BPS_FLOAT32) {
        memcpy(&narrow, (const uint8_t *)elements + i * sizeof narrow, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, (const uint8_t *)elements + i * sizeof wide, sizeof wide);
    return wide;
}

void rig_put(uint32_t dtype, void *elements, size_t i, double value)
{
    float narrow = (float)value;
    if (dtype == BPS_FLOAT32) {
        memcpy((uint8_t *)elements + i * sizeof narrow, &narrow, sizeof narrow);
    } else {
        memcpy((uint8_t *)elements + i * sizeof value, &value, sizeof value);
    }
}

size_t rig_size(uint32_t dtype)
{
    return dtype == BPS_FLOAT32 ? sizeof(float) : sizeof(double);
}
