/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crafted.c - a stage plugin for the tests of the loader. As it is, it is right; each macro below makes one
 * thing wrong. When it is loaded it creates the file $CRAFTED_MARKER, so that a test sees whether its code
 * ran.
 */
#include <stdlib.h>

#include <byteps/stage.h>

#ifndef NOTE_MAGIC
#define NOTE_MAGIC BPS_PLUGIN_MAGIC
#endif
#ifndef NOTE_MAJOR
#define NOTE_MAJOR BPS_ABI_MAJOR
#endif
#ifndef NOTE_MINOR
#define NOTE_MINOR BPS_ABI_MINOR
#endif
#ifndef NOTE_KIND
#define NOTE_KIND BPS_KIND_STAGE
#endif
#ifndef NOTE_NAME
#define NOTE_NAME "crafted"
#endif
#ifndef NOTE_VERSION
#define NOTE_VERSION "1.2"
#endif
#ifndef NOTE_BYTES
#define NOTE_BYTES sizeof(struct bps_note_body)
#endif
#ifndef NOTE_OWNER
#define NOTE_OWNER "BytePS"
#endif

#ifndef MODULE
#define MODULE &module
#endif
#ifndef MODULE_MAGIC
#define MODULE_MAGIC BPS_PLUGIN_MAGIC
#endif
#ifndef MODULE_SIZE
#define MODULE_SIZE sizeof(struct bps_module)
#endif
#ifndef MODULE_MAJOR
#define MODULE_MAJOR BPS_ABI_MAJOR
#endif
#ifndef MODULE_MINOR
#define MODULE_MINOR BPS_ABI_MINOR
#endif
#ifndef MODULE_VERSION
#define MODULE_VERSION "1.2"
#endif
#ifndef MODULE_LICENSE
#define MODULE_LICENSE "Apache-2.0"
#endif
#ifndef MODULE_COUNT
#define MODULE_COUNT 1
#endif

#ifndef PLUGIN
#define PLUGIN &plugin
#endif
#ifndef PLUGIN_SIZE
#define PLUGIN_SIZE sizeof(struct bps_plugin)
#endif
#ifndef PLUGIN_KIND
#define PLUGIN_KIND BPS_KIND_STAGE
#endif
#ifndef PLUGIN_NAME
#define PLUGIN_NAME "crafted"
#endif
#ifndef OPS
#define OPS &ops
#endif
#ifndef OPS_SIZE
#define OPS_SIZE sizeof(struct bps_stage_ops)
#endif
#ifndef OPS_RUN
#define OPS_RUN run
#endif
#ifndef OPTIONS_SIZE
#define OPTIONS_SIZE sizeof(struct options)
#endif
#ifndef OPTION_ROWS
#define OPTION_ROWS {"limit", BPS_OPT_DOUBLE, 0, offsetof(struct options, limit), "1.0", "0.5..2", "A limit."}
#endif

struct options {
    double limit;
    int64_t count;
    uint32_t mode;
};

__attribute__((used, aligned(4), section(".note.byteps"))) static const struct bps_note note = {
    7, NOTE_BYTES, BPS_NOTE_TYPE, NOTE_OWNER, {NOTE_MAGIC, NOTE_MAJOR, NOTE_MINOR, NOTE_KIND, NOTE_NAME, NOTE_VERSION}};

__attribute__((constructor)) static void mark(void)
{
    const char *path = getenv("CRAFTED_MARKER");
    FILE *file = path ? fopen(path, "w") : NULL;

    if (file) {
        fclose(file);
    }
}

static bps_status open_stage(const struct bps_host *host, const void *options, void **instance_out,
                             struct bps_report *report)
{
    (void)host;
    (void)options;
    (void)instance_out;
    (void)report;
    return BPS_OK;
}

static void close_stage(void *instance)
{
    (void)instance;
}

static void query(void *instance, struct bps_stage_attr *out)
{
    (void)instance;
    *out = (struct bps_stage_attr){.takes = "plain", .gives = "plain"};
}

__attribute__((unused)) static bps_status run(void *instance, void *state, const struct bps_stage_task *task,
                                              struct bps_report *report)
{
    (void)instance;
    (void)state;
    (void)task;
    (void)report;
    return BPS_OK;
}

__attribute__((unused)) static const struct bps_stage_ops ops = {
    .size = OPS_SIZE, .open = open_stage, .close = close_stage, .query = query, .run = OPS_RUN};

static const struct bps_option options[] = {OPTION_ROWS, {0}};

__attribute__((unused)) static const struct bps_plugin plugin = {
    .size = PLUGIN_SIZE,
    .kind = PLUGIN_KIND,
    .name = PLUGIN_NAME,
    .summary = "does nothing, in many wrong ways",
    .options = options,
    .options_size = OPTIONS_SIZE,
    .ops = OPS,
};

static const struct bps_plugin *const plugins[] = {PLUGIN};

__attribute__((unused)) static const struct bps_module module = {
    .magic = MODULE_MAGIC,
    .size = MODULE_SIZE,
    .abi_major = MODULE_MAJOR,
    .abi_minor = MODULE_MINOR,
    .name = "crafted module",
    .version = MODULE_VERSION,
    .license = MODULE_LICENSE,
    .nplugins = MODULE_COUNT,
    .plugins = plugins,
};

#ifdef UNDEFINED
int UNDEFINED(void);
#endif

#ifndef NO_ENTRY
const struct bps_module *BPS_PLUGIN_ENTRY(void)
{
#ifdef UNDEFINED
    if (UNDEFINED()) {
        return NULL;
    }
#endif
    return MODULE;
}
#endif
