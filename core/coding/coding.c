/* SPDX-License-Identifier: Apache-2.0 */
/* coding.c - codings: from the configuration or a text, found again, and what they make of slices. */
#include "coding/coding.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/report.h"
#include "base/text.h"
#include "conf/layer.h"
#include "conf/option.h"

#define SKIPPED_LIMIT 64u
#define GRAIN         64u        /* a slice has a multiple of so many elements, */
#define GRAINS_LIMIT  (1u << 22) /* and at most so many of these */

/* ---- what the core does about any compressor's losses ---- */

struct own_options {
    bool feedback;
    uint32_t momentum;
    double mu;
    int64_t seed, start;
    uint64_t min_bytes;
    bool automatic;
    const char *version;
};

static const struct bps_option own_table[] = {
    {"feedback", BPS_OPT_BOOL, BPS_OPT_AGREE, offsetof(struct own_options, feedback), "false", NULL,
     "What coding has lost is added to the next round's contribution, by workers and servers (error feedback)."},
    {"momentum", BPS_OPT_CHOICE, BPS_OPT_AGREE, offsetof(struct own_options, momentum), "none", "none|nesterov",
     "Momentum that workers give gradients before they are coded; the optimizer must have none of its own then."},
    {"mu", BPS_OPT_DOUBLE, BPS_OPT_AGREE, offsetof(struct own_options, mu), "0.9", "0..1", "The factor of momentum."},
    {"seed", BPS_OPT_INT, BPS_OPT_AGREE, offsetof(struct own_options, seed), "0", "0..",
     "Where the numbers begin that a method draws."},
    {"min_bytes", BPS_OPT_SIZE, BPS_OPT_AGREE, offsetof(struct own_options, min_bytes), "0", NULL,
     "Tensors that are smaller lose nothing."},
    {"start", BPS_OPT_INT, BPS_OPT_AGREE, offsetof(struct own_options, start), "0", "0..1000000000",
     "Rounds of a tensor that lose nothing, before coding begins."},
    {"auto", BPS_OPT_BOOL, BPS_OPT_AGREE, offsetof(struct own_options, automatic), "false", NULL,
     "Codes only where that pays, as is measured while the job runs."},
    {"version", BPS_OPT_STRING, 0, offsetof(struct own_options, version), "", NULL,
     "The version and format that the compressor must have, as in '0.1.0 format 0'; empty: any."},
    {0},
};

/* ---- the text of a coding ---- */

/* Adds those that must be equal on all members. */
static void add_options(const struct bps_option *table, const void *options, struct bps_text *text)
{
    for (; table != NULL && table->name != NULL; table++) {
        char value[BPS_CODING_TEXT];
        if ((table->flags & BPS_OPT_AGREE) != 0) {
            bps_option_format(table, options, value, sizeof value);
            bps_text_add(text, "; %s=%s", table->name, value);
        }
    }
}

/* The members of the group that are not the compressor's. */
static bps_status read_own(const struct bps_instance *compressor, const struct bps_conf_node *group, const char *path,
                           struct own_options *own, struct bps_report *report)
{
    const struct bps_option *row = compressor->loaded->plugin->options;
    const char *skip[SKIPPED_LIMIT + 2] = {"plugin"};
    for (size_t n = 1; row != NULL && row->name != NULL && n < SKIPPED_LIMIT; row++) {
        skip[n++] = row->name;
    }
    return bps_conf_options(group, path, skip, own_table, own, report);
}

/* ---- slices ---- */

uint32_t bps_coding_type(uint32_t dtype)
{
    switch (dtype) {
    case BPS_FLOAT16:
    case BPS_BFLOAT16:
    case BPS_FLOAT32:
        return BPS_FLOAT32;
    case BPS_FLOAT64:
        return BPS_FLOAT64;
    default:
        return BPS_DTYPES;
    }
}

static size_t bound(const struct bps_coding *coding, uint32_t type, size_t count)
{
    BPS_CALLING(coding->compressor, "bound", NULL);
    return coding->ops->bound(coding->compressor->self, type, count);
}

bool bps_coding_takes(const struct bps_coding *coding, uint32_t dtype)
{
    uint32_t type = bps_coding_type(dtype);
    return type != BPS_DTYPES && coding->compressor != NULL && bound(coding, type, 1) > 0;
}

size_t bps_coding_bound(const struct bps_coding *coding, bool exact, uint32_t dtype, size_t count)
{
    BPS_CALLING(coding->compressor, "bound", NULL);
    return bps_coding_ops(coding, exact)->bound(coding->compressor->self, bps_coding_type(dtype), count);
}

uint32_t bps_coding_slice(const struct bps_coding *coding, uint32_t dtype)
{
    uint32_t elements = dtype == BPS_FLOAT64 ? coding->wide : coding->narrow;
    return elements * (uint32_t)bps_dtype_size(dtype);
}

/* The most that fit into a slice of the network, by bisection: a bound grows with the number of elements. */
static uint32_t fitting(const struct bps_coding *coding, uint32_t type, uint64_t slice)
{
    uint32_t fits = 1, too_many = GRAINS_LIMIT;
    while (fits + 1 < too_many) {
        uint32_t grains = fits + (too_many - fits) / 2;
        if (bound(coding, type, (size_t)grains * GRAIN) <= slice) {
            fits = grains;
        } else {
            too_many = grains;
        }
    }
    return fits * GRAIN;
}

/* ---- making them ---- */

static void coding_free(struct bps_coding *coding)
{
    bps_instance_close(coding->compressor);
    free(coding);
}

/* What others code by is read from what they say; what they code with, they must have as it is here. */
static bps_status check_own(const struct bps_loaded *loaded, const struct own_options *own, const char *path,
                            const char *version, struct bps_report *report)
{
    if (own->automatic && own->momentum != 0) {
        return bps_fail(report, BPS_ERR_CONF,
                        "%s: auto and momentum = nesterov cannot be combined: gradients of uncoded rounds would have "
                        "no momentum; use the optimizer's momentum instead",
                        path);
    }
    if (own->version[0] != '\0' && strcmp(own->version, version) != 0) {
        return bps_fail(
            report, BPS_ERR_REFUSED,
            "%s: the versions differ: compressor %s was requested in version %s, but is version %s here (%s); install "
            "the same version on all hosts",
            path, loaded->plugin->name, own->version, version, loaded->path);
    }
    return BPS_OK;
}

static void take_own(struct bps_coding *coding, const struct own_options *own)
{
    coding->feedback = own->feedback;
    coding->momentum = own->momentum != 0;
    coding->mu = own->mu;
    coding->seed = (uint64_t)own->seed;
    coding->min_bytes = own->min_bytes;
    coding->start = (uint32_t)own->start;
    coding->automatic = own->automatic;
}

static void write_text(struct bps_coding *coding, const struct own_options *own, const char *version)
{
    const struct bps_plugin *plugin = coding->compressor->loaded->plugin;
    struct bps_text text = bps_text_in(coding->text, sizeof coding->text);
    bps_text_add(&text, "plugin=%s", plugin->name);
    add_options(own_table, own, &text);
    add_options(plugin->options, coding->compressor->options, &text);
    bps_text_add(&text, "; version=%s", version);
}

static bps_status open_compressor(struct bps_coding *coding, const struct bps_conf_node *group, const char *path,
                                  uint64_t slice, bool automatic, struct bps_report *report)
{
    struct own_options own = {0};
    char version[64] = "";
    bps_status status =
        bps_instance_open(BPS_KIND_COMPRESSOR, NULL, "coding", group, path, NULL, &coding->compressor, report);
    if (status == BPS_OK) {
        status = read_own(coding->compressor, group, path, &own, report);
    }
    if (status == BPS_OK) {
        const struct bps_loaded *loaded = coding->compressor->loaded;
        own.automatic |= automatic;
        snprintf(version, sizeof version, "%s format %u", loaded->module->version, loaded->plugin->format);
        status = check_own(loaded, &own, path, version, report);
    }
    if (status == BPS_OK) {
        coding->ops = coding->compressor->ops;
        take_own(coding, &own);
        coding->narrow = fitting(coding, BPS_FLOAT32, slice);
        coding->wide = fitting(coding, BPS_FLOAT64, slice);
        write_text(coding, &own, version);
        if (strlen(coding->text) + 1 == sizeof coding->text) {
            status = bps_fail(report, BPS_ERR_CONF, "%s: its options are too long: %.200s...", path, coding->text);
        }
    }
    bps_options_release(own_table, &own);
    return status;
}

/* The one with this text that is there already; the lock is held. */
static struct bps_coding *coding_find(const struct bps_codings *codings, const char *text)
{
    struct bps_coding *coding = codings->first;
    while (coding != NULL && strcmp(coding->text, text) != 0) {
        coding = coding->next;
    }
    return coding;
}

/* Keeps the coding, unless there is an equal one. The lock is held. */
static struct bps_coding *keep(struct bps_codings *codings, struct bps_coding *coding)
{
    struct bps_coding *known = coding_find(codings, coding->text);
    if (known != NULL) {
        coding_free(coding);
        return known;
    }
    coding->number = ++codings->count;
    coding->next = codings->first;
    codings->first = coding;
    return coding;
}

static bps_status coding_make(struct bps_codings *codings, const struct bps_conf_node *group, const char *path,
                              bool automatic, struct bps_coding **out, struct bps_report *report)
{
    struct bps_coding *coding = calloc(1, sizeof *coding);
    if (coding == NULL) {
        return bps_fail(report, BPS_ERR_NOMEM, "%s: out of memory", path);
    }
    bps_status status = open_compressor(coding, group, path, codings->slice, automatic, report);
    if (status != BPS_OK) {
        coding_free(coding);
        return status;
    }
    if (codings->count == BPS_CODINGS_LIMIT && coding_find(codings, coding->text) == NULL) {
        coding_free(coding);
        return bps_fail(report, BPS_ERR_CONF, "%s: there are %u codings already, which is the limit", path,
                        BPS_CODINGS_LIMIT);
    }
    *out = keep(codings, coding);
    return BPS_OK;
}

bps_status bps_codings_of_group(struct bps_codings *codings, const struct bps_conf_node *group, const char *path,
                                bool automatic, struct bps_coding **out, struct bps_report *report)
{
    pthread_mutex_lock(&codings->lock);
    bps_status status = coding_make(codings, group, path, automatic, out, report);
    pthread_mutex_unlock(&codings->lock);
    return status;
}

/* "a=1; b=2" as the group that a configuration would have; the path of errors is its origin. */
static bps_status coding_parse(struct bps_conf *conf, const char *text, struct bps_report *report)
{
    char lines[BPS_CODING_TEXT];
    snprintf(lines, sizeof lines, "%s", text);
    for (char *at = lines; (at = strchr(at, ';')) != NULL;) {
        *at = '\n';
    }
    conf->root = bps_tree_node(&conf->arena, BPS_CONF_GROUP, NULL, NULL, "coding");
    if (conf->root == NULL) {
        return bps_fail(report, BPS_ERR_NOMEM, "coding: out of memory");
    }
    bps_status status = bps_layer_set_lines(conf, lines, "coding", report);
    const struct bps_conf_node *plugin = status == BPS_OK ? bps_conf_member(conf->root, "plugin") : NULL;
    if (status == BPS_OK &&
        (plugin == NULL || plugin->kind != BPS_CONF_SCALAR || !bps_plugin_name_valid(plugin->text))) {
        status = bps_fail(report, BPS_ERR_CONF,
                          "coding: '%.200s' names no compressor; expected plugin=NAME; OPTION=VALUE", text);
    }
    return status;
}

static bps_status of_text(struct bps_codings *codings, const char *text, struct bps_coding **out,
                          struct bps_report *report)
{
    struct bps_conf conf = {.root = NULL};
    *out = coding_find(codings, text);
    if (*out != NULL) {
        return BPS_OK;
    }
    bps_status status = strlen(text) < BPS_CODING_TEXT
                            ? coding_parse(&conf, text, report)
                            : bps_fail(report, BPS_ERR_CONF, "coding: '%.100s...' is too long", text);
    if (status == BPS_OK) {
        status = coding_make(codings, conf.root, "coding", false, out, report);
    }
    bps_arena_free(&conf.arena);
    return status;
}

bps_status bps_codings_of_text(struct bps_codings *codings, const char *text, struct bps_coding **out,
                               struct bps_report *report)
{
    pthread_mutex_lock(&codings->lock);
    bps_status status = of_text(codings, text, out, report);
    if (status == BPS_OK && (*out)->compressor == NULL) {
        status = bps_fail(report, BPS_ERR_CONF, "%s", (*out)->problem);
    }
    pthread_mutex_unlock(&codings->lock);
    return status;
}

struct bps_coding *bps_codings_of_peer(struct bps_codings *codings, const char *text)
{
    struct bps_report report = {""};
    struct bps_coding *found = NULL;
    pthread_mutex_lock(&codings->lock);
    if (of_text(codings, text, &found, &report) != BPS_OK) {
        struct bps_coding *coding = calloc(1, sizeof *coding);
        if (coding != NULL) {
            snprintf(coding->text, sizeof coding->text, "%s", text);
            snprintf(coding->problem, sizeof coding->problem, "%s", report.text);
            found = keep(codings, coding);
        }
    }
    pthread_mutex_unlock(&codings->lock);
    return found;
}

const struct bps_coding *bps_codings_at(struct bps_codings *codings, uint32_t number)
{
    pthread_mutex_lock(&codings->lock);
    const struct bps_coding *coding = codings->first;
    while (coding->number != number) {
        coding = coding->next;
    }
    pthread_mutex_unlock(&codings->lock);
    return coding;
}

/* ---- life ---- */

void bps_codings_init(struct bps_codings *codings, uint64_t slice)
{
    pthread_mutex_init(&codings->lock, NULL);
    codings->slice = slice;
    codings->first = NULL;
    codings->count = 0;
}

void bps_codings_fini(struct bps_codings *codings)
{
    for (struct bps_coding *coding = codings->first, *next; coding != NULL; coding = next) {
        next = coding->next;
        uint64_t plain = atomic_load(&coding->plain_bytes), coded = atomic_load(&coding->coded_bytes);
        if (plain > 0) {
            bps_info("coding", "%lu bytes were sent as %lu (%.3g times fewer): %s", plain, coded,
                     (double)plain / (double)(coded > 0 ? coded : 1), coding->text);
        }
        coding_free(coding);
    }
    pthread_mutex_destroy(&codings->lock);
}

/* ---- what has been sent ---- */

static _Atomic uint64_t total_plain, total_coded;

void bps_coding_count(struct bps_coding *coding, uint64_t plain, uint64_t coded)
{
    atomic_fetch_add_explicit(&coding->plain_bytes, plain, memory_order_relaxed);
    atomic_fetch_add_explicit(&coding->coded_bytes, coded, memory_order_relaxed);
    atomic_fetch_add_explicit(&total_plain, plain, memory_order_relaxed);
    atomic_fetch_add_explicit(&total_coded, coded, memory_order_relaxed);
}

uint64_t bps_coding_total(uint64_t *plain)
{
    *plain = atomic_load_explicit(&total_plain, memory_order_relaxed);
    return atomic_load_explicit(&total_coded, memory_order_relaxed);
}

/* ---- what is drawn ---- */

/* The finalizer of splitmix64: each bit of the result depends on all of the argument. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

struct bps_random bps_coding_random(const struct bps_coding *coding, uint32_t tensor, uint32_t partition,
                                    uint32_t round, uint32_t slice, uint32_t rank)
{
    uint64_t shared =
        mix(mix(mix(coding->seed) ^ ((uint64_t)tensor << 32 | partition)) ^ ((uint64_t)round << 32 | slice));
    return (struct bps_random){.shared = shared,
                               .own = mix(shared ^ ((uint64_t)rank + 1)),
                               .seed = coding->seed,
                               .round = round - coding->start};
}
