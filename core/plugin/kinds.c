/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kinds.c - the kinds of plugins, as tables: one row per operation, and a stub where it is optional.
 */
#include "plugin/kinds.h"

#include <string.h>

#include "base/layout.h"
#include "base/report.h"
#include "plugin/registry.h"

/* ---- stubs of the optional operations ------------------------------------------------------------------ */

static void no_description(void *instance, char *text, size_t n)
{
    (void)instance;
    if (n > 0) {
        text[0] = '\0';
    }
}

static bps_status no_bind(void *instance, const struct bps_tensor_info *tensor, void **state_out,
                          struct bps_report *report)
{
    (void)instance;
    (void)tensor;
    (void)state_out;
    (void)report;
    return BPS_OK;
}

static void no_unbind(void *instance, void *state)
{
    (void)instance;
    (void)state;
}

static bps_status no_attach(void *instance, const struct bps_region *region, struct bps_report *report)
{
    (void)instance;
    (void)region;
    (void)report;
    return BPS_OK;
}

static void no_detach(void *instance, const struct bps_region *region)
{
    (void)instance;
    (void)region;
}

static bps_status no_loan_read(struct bps_channel *channel, struct bps_loan *loan, uint32_t offset, void *to,
                               uint32_t bytes)
{
    (void)channel;
    (void)loan;
    (void)offset;
    (void)to;
    (void)bytes;
    return BPS_ERR_UNSUPPORTED;
}

static bps_status no_loan_write(struct bps_channel *channel, struct bps_loan *loan, uint32_t offset, const void *from,
                                uint32_t bytes)
{
    (void)channel;
    (void)loan;
    (void)offset;
    (void)from;
    (void)bytes;
    return BPS_ERR_UNSUPPORTED;
}

static uint64_t no_round_trip(struct bps_channel *channel)
{
    (void)channel;
    return 0;
}

static bool no_delivered(struct bps_channel *channel, uint64_t *bytes, uint64_t *busy)
{
    (void)channel;
    (void)bytes;
    (void)busy;
    return false;
}

static uint32_t no_speed(struct bps_channel *channel)
{
    (void)channel;
    return 0;
}

static const char *no_direction(void *instance)
{
    (void)instance;
    return NULL;
}

static void nothing_in_child(void *instance)
{
    (void)instance;
}

static const struct bps_transport_ops transport_stubs = {
    .describe = no_description,
    .loan_read = no_loan_read,
    .loan_write = no_loan_write,
    .attach = no_attach,
    .detach = no_detach,
    .round_trip = no_round_trip,
    .delivered = no_delivered,
    .speed = no_speed,
};
static const struct bps_reducer_ops reducer_stubs = {.describe = no_description};
static const struct bps_compressor_ops compressor_stubs = {.describe = no_description};
static const struct bps_stage_ops stage_stubs = {
    .bind = no_bind,
    .unbind = no_unbind,
    .describe = no_description,
};

static const struct bps_launcher_ops launcher_stubs = {.direction = no_direction, .in_child = nothing_in_child};

/* ---- tables ------------------------------------------------------------------------------------------- */

struct op {
    const char *name; /* NULL ends a table */
    size_t offset;    /* of the function pointer in the operations */
    size_t instead;   /* of another one that may be there in its place; 0: there is none */
};

#define OP(kind, field) {#field, offsetof(struct bps_##kind##_ops, field), 0}
#define OP_OR(kind, field, other)                                                                                      \
    {#field, offsetof(struct bps_##kind##_ops, field), offsetof(struct bps_##kind##_ops, other)}

static const struct op transport_ops[] = {
    OP(transport, open),      OP(transport, close),     OP(transport, query),
    OP(transport, listen),    OP(transport, dial),      OP(transport, kick),
    OP(transport, finish),    OP(transport, drop),      OP(transport, local_host),
    OP(transport, describe),  OP(transport, loan_read), OP(transport, loan_write),
    OP(transport, attach),    OP(transport, detach),    OP(transport, round_trip),
    OP(transport, delivered), OP(transport, speed),     {NULL, 0, 0},
};

static const struct op reducer_ops[] = {
    OP(reducer, open), OP(reducer, close), OP(reducer, kernels), OP(reducer, describe), {NULL, 0, 0},
};

/* Of a reducer that has devices: those that are not optional. */
static const struct op device_ops[] = {
    OP(device, mark), OP(device, mark_copies), OP(device, follow), OP(device, await), OP(device, release),
    OP(device, copy), OP(device, attach),      OP(device, detach), {NULL, 0, 0},
};

/* Of devices whose memory others reach; none of them is optional. */
static const struct op share_ops[] = {OP(share, allocation), OP(share, region), OP(share, flush), {NULL, 0, 0}};

/* Of devices that form groups; none of them is optional. */
static const struct op group_ops[] = {
    OP(group, query), OP(group, takes), OP(group, identify), OP(group, name), OP(group, join),
    OP(group, run),   OP(group, leave), OP(group, abort),    {NULL, 0, 0},
};

static const struct op compressor_ops[] = {
    OP(compressor, open),   OP(compressor, close),      OP(compressor, bound),    OP(compressor, encode),
    OP(compressor, decode), OP(compressor, decode_add), OP(compressor, describe), {NULL, 0, 0},
};

static const struct op stage_ops[] = {
    OP(stage, open),   OP(stage, close),           OP(stage, query),    OP(stage, bind),
    OP(stage, unbind), OP_OR(stage, run, run_all), OP(stage, describe), {NULL, 0, 0},
};

static const struct op launcher_ops[] = {
    OP(launcher, open), OP(launcher, close),     OP(launcher, recognise), OP(launcher, leave),
    OP(launcher, find), OP(launcher, direction), OP(launcher, in_child),  {NULL, 0, 0},
};

struct kind {
    uint32_t kind;
    const char *name;
    size_t size; /* of the operations; 0: the core runs no code of this kind */
    size_t least;
    const struct op *ops;
    const void *stubs;
    const char *const *members; /* of a group in the configuration that are the core's */
};

static const char *const plugin_members[] = {"plugin", NULL};
static const char *const stage_members[] = {"plugin", "stage", "when", "use", NULL};
static const char *const compressor_members[] = {"plugin",    "feedback", "momentum", "mu",      "seed",
                                                 "min_bytes", "start",    "auto",     "version", NULL};

#define SIZES(kind) sizeof(struct bps_##kind##_ops), BPS_LEAST(bps_##kind##_ops)

static const struct kind kinds[] = {
    {BPS_KIND_TRANSPORT, "transport", SIZES(transport), transport_ops, &transport_stubs, plugin_members},
    {BPS_KIND_REDUCER, "reducer", SIZES(reducer), reducer_ops, &reducer_stubs, plugin_members},
    {BPS_KIND_COMPRESSOR, "compressor", SIZES(compressor), compressor_ops, &compressor_stubs, compressor_members},
    {BPS_KIND_FRAMEWORK, "framework", 0, 0, NULL, NULL, plugin_members},
    {BPS_KIND_STAGE, "stage", SIZES(stage), stage_ops, &stage_stubs, stage_members},
    {BPS_KIND_LAUNCHER, "launcher", SIZES(launcher), launcher_ops, &launcher_stubs, plugin_members},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

#define SAME_PLACE(kind, field)                                                                                        \
    _Static_assert(offsetof(struct bps_##kind##_ops, field) == offsetof(struct bps_ops_common, field),                 \
                   "the operations of all kinds begin alike")
SAME_PLACE(transport, open);
SAME_PLACE(transport, close);
SAME_PLACE(reducer, open);
SAME_PLACE(reducer, close);
SAME_PLACE(compressor, open);
SAME_PLACE(compressor, close);
SAME_PLACE(stage, open);
SAME_PLACE(stage, close);
SAME_PLACE(launcher, open);
SAME_PLACE(launcher, close);

static const struct kind *find_kind(uint32_t kind)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (kinds[i].kind == kind) {
            return &kinds[i];
        }
    }
    return NULL;
}

const char *const *bps_kind_members(uint32_t kind)
{
    const struct kind *row = find_kind(kind);
    return row ? row->members : plugin_members;
}

const char *bps_kind_name(uint32_t kind)
{
    const struct kind *row = find_kind(kind);
    return row ? row->name : "?";
}

uint32_t bps_kind_from_name(const char *name)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            return kinds[i].kind;
        }
    }
    return 0;
}

bool bps_kind_opens(uint32_t kind)
{
    const struct kind *row = find_kind(kind);
    return row && row->size > 0;
}

/* ---- completion ---------------------------------------------------------------------------------------- */

typedef void (*any_fn)(void);

static any_fn get_op(const void *ops, size_t offset)
{
    any_fn fn;
    memcpy(&fn, (const char *)ops + offset, sizeof fn);
    return fn;
}

/* As much of a table as both sides know. */
static void take_table(const void *ops, size_t size, void *own, size_t own_size)
{
    memcpy(own, ops, size < own_size ? size : own_size);
    memcpy(own, &own_size, sizeof own_size);
}

/* A table within another one, of which no operation that is listed is optional. */
struct inner {
    const char *name;
    size_t size, least;
    const struct op *ops;
};

static bps_status take_inner(const struct inner *inner, const void *ops, void *own, struct bps_report *report)
{
    size_t size;
    memcpy(&size, ops, sizeof size);
    if (size < inner->least) {
        return bps_refuse(report, "%s.size is %zu, expected %zu or more; set it to its struct's size", inner->name,
                          size, inner->least);
    }
    take_table(ops, size, own, inner->size);
    for (const struct op *op = inner->ops; op->name; op++) {
        if (!get_op(own, op->offset)) {
            return bps_refuse(report, "operation %s.%s is missing; set it in struct bps_%s_ops", inner->name, op->name,
                              inner->name);
        }
    }
    return BPS_OK;
}

#define INNER(kind) {#kind, sizeof(struct bps_##kind##_ops), BPS_LEAST(bps_##kind##_ops), kind##_ops}

static bps_status take_device(struct bps_tables *out, struct bps_report *report)
{
    static const struct inner of_device = INNER(device), of_group = INNER(group), of_share = INNER(share);
    struct bps_device_ops *device = &out->device;
    if (out->ops.reducer.device == NULL) {
        return BPS_OK;
    }
    bps_status status = take_inner(&of_device, out->ops.reducer.device, device, report);
    out->ops.reducer.device = device;
    if (status == BPS_OK && device->group != NULL) {
        status = take_inner(&of_group, device->group, &out->group, report);
        device->group = &out->group;
    }
    if (status == BPS_OK && device->share != NULL) {
        status = take_inner(&of_share, device->share, &out->share, report);
        device->share = &out->share;
    }
    if (status == BPS_OK && (device->can_reduce == NULL) != (device->reduce == NULL)) {
        return bps_refuse(report, "of device.can_reduce and device.reduce one is missing; set both or neither");
    }
    return status;
}

/* Stubs for those that are optional and not there. */
static bps_status complete_table(const struct kind *row, union bps_ops *own, struct bps_report *report)
{
    for (const struct op *op = row->ops; op->name; op++) {
        any_fn stub = get_op(row->stubs, op->offset);
        bool other = op->instead != 0 && get_op(own, op->instead);
        if (get_op(own, op->offset) && other) {
            return bps_refuse(report, "operation %s is there, and another one that takes its place; set one of both",
                              op->name);
        }
        if (get_op(own, op->offset) || other) {
            continue;
        }
        if (!stub) {
            return bps_refuse(report, "operation %s is missing; set it in struct bps_%s_ops", op->name, row->name);
        }
        memcpy((char *)own + op->offset, &stub, sizeof stub);
    }
    return BPS_OK;
}

bps_status bps_ops_complete(uint32_t kind, const void *ops, struct bps_tables *out, struct bps_report *report)
{
    const struct kind *row = find_kind(kind);
    size_t size;

    if (!row || row->size == 0) {
        return bps_refuse(report, "kind %u has no operations", kind);
    }
    if (!ops) {
        return bps_refuse(report, "ops is NULL, expected a struct bps_%s_ops; set it in struct bps_plugin", row->name);
    }
    memcpy(&size, ops, sizeof size);
    if (size < row->least) {
        return bps_refuse(report, "ops.size is %zu, expected %zu or more; set it to sizeof(struct bps_%s_ops)", size,
                          row->least, row->name);
    }
    memset(out, 0, sizeof *out);
    take_table(ops, size, &out->ops, row->size);
    bps_status status = complete_table(row, &out->ops, report);
    if (status == BPS_OK && kind == BPS_KIND_REDUCER) {
        return take_device(out, report);
    }
    const char *place = out->ops.launcher.place;
    if (status == BPS_OK && kind == BPS_KIND_LAUNCHER && (place == NULL || place[0] == '\0')) {
        return bps_refuse(report, "place of its operations is %s, expected a text; set it in struct bps_launcher_ops",
                          place == NULL ? "NULL" : "empty");
    }
    return status;
}
