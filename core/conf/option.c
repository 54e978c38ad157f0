/* SPDX-License-Identifier: Apache-2.0 */
/* option.c - the fields that option tables describe: parse, check, default, release, format. */
#include "conf/option.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/report.h"
#include "base/text.h"
#include "conf/value.h"

/* The value of a field that has no memory of its own. */
union value {
    bool boolean;
    int64_t integer;
    uint64_t amount; /* bytes or nanoseconds */
    double number;
    uint32_t choice;
};

static void *field_of(const struct bps_option *option, void *target)
{
    return (char *)target + option->offset;
}

#define FIELD(type) sizeof(type), _Alignof(type)

/* By BPS_OPT_*. */
static const struct bps_option_type types[] = {
    [BPS_OPT_BOOL] = {"boolean", "true or false", FIELD(bool)},
    [BPS_OPT_INT] = {"whole number", "a whole number", FIELD(int64_t)},
    [BPS_OPT_SIZE] = {"size", "a number with a unit (B, KiB, MiB, GiB, kB, MB, GB)", FIELD(uint64_t)},
    [BPS_OPT_TIME] = {"time", "a number with a unit (ns, us, ms, s, min, h)", FIELD(uint64_t)},
    [BPS_OPT_DOUBLE] = {"number", "a number", FIELD(double)},
    [BPS_OPT_STRING] = {"string", "a string", FIELD(const char *)},
    [BPS_OPT_CHOICE] = {"choice", "a word", FIELD(uint32_t)},
    [BPS_OPT_LIST] = {"list", "a string or a list of strings", FIELD(struct bps_list)},
};

const struct bps_option_type *bps_option_type(uint32_t type)
{
    static const struct bps_option_type unknown = {"?", "a string", 0, 1};
    return type < sizeof types / sizeof *types && types[type].name != NULL ? &types[type] : &unknown;
}

static size_t field_size(uint32_t type)
{
    return bps_option_type(type)->size;
}

const struct bps_option *bps_option_find(const struct bps_option *table, const char *name)
{
    for (; table != NULL && table->name != NULL; table++) {
        if (strcmp(table->name, name) == 0) {
            return table;
        }
    }
    return NULL;
}

bool bps_plugin_name_valid(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");

    return name[n] == '\0' && n > 0 && n <= BPS_PLUGIN_NAME_MAX && name[0] >= 'a' && name[0] <= 'z';
}

/* ---- choices ---- */

#define WORDS_MAX 32

struct words {
    size_t count;
    char buffer[512];
    const char *word[WORDS_MAX];
};

static void split_words(const char *range, struct words *out)
{
    out->count = 0;
    snprintf(out->buffer, sizeof out->buffer, "%s", range == NULL ? "" : range);
    char *rest = out->buffer;
    for (char *word; out->count < WORDS_MAX && (word = strsep(&rest, "|")) != NULL;) {
        out->word[out->count++] = word;
    }
}

static bps_status parse_choice(const char *range, const char *text, uint32_t *out)
{
    struct words words;
    split_words(range, &words);
    for (size_t i = 0; i < words.count; i++) {
        if (strcmp(words.word[i], text) == 0) {
            *out = (uint32_t)i;
            return BPS_OK;
        }
    }
    return BPS_ERR_INVALID;
}

/* ---- ranges ---- */

static bps_status option_parse_value(const struct bps_option *option, const char *text, union value *out)
{
    switch (option->type) {
    case BPS_OPT_BOOL:
        return bps_parse_bool(text, &out->boolean);
    case BPS_OPT_INT:
        return bps_parse_int(text, &out->integer);
    case BPS_OPT_SIZE:
        return bps_parse_size(text, &out->amount);
    case BPS_OPT_TIME:
        return bps_parse_time(text, &out->amount);
    case BPS_OPT_DOUBLE:
        return bps_parse_double(text, &out->number);
    case BPS_OPT_CHOICE:
        return parse_choice(option->range, text, &out->choice);
    default:
        return BPS_ERR_INVALID;
    }
}

static bool is_less(uint32_t type, const union value *a, const union value *b)
{
    return type == BPS_OPT_INT      ? a->integer < b->integer
           : type == BPS_OPT_DOUBLE ? a->number < b->number
                                    : a->amount < b->amount;
}

/* Splits "a..b" into its ends, either of which may be "". */
static void split_range(const char *range, char from[64], char to[64])
{
    const char *dots = range == NULL ? NULL : strstr(range, "..");
    from[0] = to[0] = '\0';
    if (dots != NULL) {
        snprintf(from, 64, "%.*s", (int)(dots - range), range);
        snprintf(to, 64, "%s", dots + 2);
    }
}

static bool in_range(const struct bps_option *option, const union value *value)
{
    if (option->type == BPS_OPT_BOOL || option->type == BPS_OPT_CHOICE) {
        return true;
    }
    char from[64], to[64];
    union value bound;
    split_range(option->range, from, to);
    return !(from[0] != '\0' && option_parse_value(option, from, &bound) == BPS_OK &&
             is_less(option->type, value, &bound)) &&
           !(to[0] != '\0' && option_parse_value(option, to, &bound) == BPS_OK && is_less(option->type, &bound, value));
}

/* ---- messages ---- */

/* " such as ..." for types with units: the default, or a common value where that is 0. */
static void add_example(const struct bps_option *option, struct bps_text *text)
{
    union value value;
    bool usable =
        option->fallback != NULL && option_parse_value(option, option->fallback, &value) == BPS_OK && value.amount != 0;
    bool size = option->type == BPS_OPT_SIZE;
    bps_text_add(text, ", such as \"%s\"", usable ? option->fallback : size ? "4 MiB" : "30 s");
}

static void add_range(const struct bps_option *option, struct bps_text *text)
{
    char from[64], to[64];
    split_range(option->range, from, to);
    if (from[0] != '\0' && to[0] != '\0') {
        bps_text_add(text, "%s..%s", from, to);
    } else if (from[0] != '\0' || to[0] != '\0') {
        bps_text_add(text, "at %s %s", from[0] != '\0' ? "least" : "most", from[0] != '\0' ? from : to);
    } else {
        bps_text_add(text, "%s", bps_option_type(option->type)->expected);
    }
    if (option->type == BPS_OPT_SIZE || option->type == BPS_OPT_TIME) {
        add_example(option, text);
    }
}

static void add_words(const char *range, struct bps_text *text)
{
    struct words words;
    split_words(range, &words);
    for (size_t i = 0; i < words.count; i++) {
        bps_text_add(text, "%s%s", i == 0 ? "" : i + 1 == words.count ? " or " : ", ", words.word[i]);
    }
}

void bps_option_expected(const struct bps_option *option, char *text, size_t n)
{
    struct bps_text out = bps_text_in(text, n);
    if (option->type == BPS_OPT_CHOICE) {
        add_words(option->range, &out);
    } else {
        add_range(option, &out);
    }
}

/* A text that is no value, or a value out of range. Digits alone fail only because there are too many. */
static bps_status refuse_text(const struct bps_option *option, const char *text, bool value, struct bps_report *report)
{
    char allowed[512];
    bps_option_expected(option, allowed, sizeof allowed);
    if (option->type == BPS_OPT_CHOICE) {
        struct words words;
        split_words(option->range, &words);
        const char *nearest = bps_nearest(text, words.word, words.count);
        BPS_REPORT(report, "unknown word; expected %s%s%s%s", allowed, nearest != NULL ? "; did you mean " : "",
                   nearest != NULL ? nearest : "", nearest != NULL ? "?" : "");
    } else if (value || (*text != '\0' && option->type != BPS_OPT_BOOL && text[strspn(text, "0123456789")] == '\0')) {
        BPS_REPORT(report, "out of range; expected %s", allowed);
    } else {
        BPS_REPORT(report, "not a %s; expected %s", bps_option_type(option->type)->name, allowed);
    }
    return BPS_ERR_INVALID;
}

/* ---- parsing into fields ---- */

static bps_status parse_string(const struct bps_option *option, const char *text, void *target,
                               struct bps_report *report)
{
    char *copy = strdup(text), *old;
    if (copy == NULL) {
        return bps_out_of_memory(report);
    }
    memcpy(&old, field_of(option, target), sizeof old);
    free(old);
    memcpy(field_of(option, target), &copy, sizeof copy);
    return BPS_OK;
}

/* "a b  c" */
static bps_status parse_words(const struct bps_option *option, const char *text, void *target,
                              struct bps_report *report)
{
    char *copy = strdup(text);
    const char **items = malloc((strlen(text) / 2 + 1) * sizeof *items);
    bps_status status = BPS_ERR_NOMEM;
    if (copy != NULL && items != NULL) {
        uint32_t n = 0;
        char *place = NULL;
        for (char *word = strtok_r(copy, " \t\n", &place); word != NULL; word = strtok_r(NULL, " \t\n", &place)) {
            items[n++] = word;
        }
        status = bps_option_parse_list(option, items, n, target, report);
    } else {
        bps_out_of_memory(report);
    }
    free(items);
    free(copy);
    return status;
}

bps_status bps_option_parse(const struct bps_option *option, const char *text, void *target, struct bps_report *report)
{
    if (option->type == BPS_OPT_STRING) {
        return parse_string(option, text, target, report);
    }
    if (option->type == BPS_OPT_LIST) {
        return parse_words(option, text, target, report);
    }
    union value value;
    bool parsed = option_parse_value(option, text, &value) == BPS_OK;
    if (!parsed || !in_range(option, &value)) {
        return refuse_text(option, text, parsed, report);
    }
    memcpy(field_of(option, target), &value, field_size(option->type));
    return BPS_OK;
}

bps_status bps_option_parse_list(const struct bps_option *option, const char *const *items, uint32_t n, void *target,
                                 struct bps_report *report)
{
    if (option->type != BPS_OPT_LIST) {
        char allowed[512];
        bps_option_expected(option, allowed, sizeof allowed);
        return bps_fail(report, BPS_ERR_INVALID, "a list is not allowed here; expected %s", allowed);
    }
    size_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes += sizeof *items + strlen(items[i]) + 1;
    }
    /* One block: the pointers, then what they point to. */
    char **block = malloc(bytes == 0 ? 1 : bytes);
    if (block == NULL) {
        return bps_out_of_memory(report);
    }
    char *place = (char *)(block + n);
    for (uint32_t i = 0; i < n; i++) {
        block[i] = place;
        place = stpcpy(place, items[i]) + 1;
    }
    struct bps_list list = {n, (const char *const *)block}, old;
    memcpy(&old, field_of(option, target), sizeof old);
    free((void *)old.items);
    memcpy(field_of(option, target), &list, sizeof list);
    return BPS_OK;
}

bps_status bps_options_default(const struct bps_option *table, void *target, struct bps_report *report)
{
    for (const struct bps_option *row = table; row != NULL && row->name != NULL; row++) {
        memset(field_of(row, target), 0, field_size(row->type));
    }
    for (const struct bps_option *row = table; row != NULL && row->name != NULL; row++) {
        struct bps_report why;
        const char *text = row->fallback == NULL ? "" : row->fallback;
        bps_status status = bps_option_parse(row, text, target, &why);
        if (status != BPS_OK) {
            BPS_REPORT(report, "the default of option %.80s is \"%.80s\": %.800s", row->name, text, why.text);
            bps_options_release(table, target);
            return status;
        }
    }
    return BPS_OK;
}

void bps_options_release(const struct bps_option *table, void *target)
{
    for (; table != NULL && table->name != NULL; table++) {
        void *field = field_of(table, target), *memory = NULL;
        if (table->type == BPS_OPT_STRING) {
            memcpy(&memory, field, sizeof memory);
        } else if (table->type == BPS_OPT_LIST) {
            struct bps_list list;
            memcpy(&list, field, sizeof list);
            memory = (void *)list.items;
        } else {
            continue;
        }
        free(memory);
        memset(field, 0, field_size(table->type));
    }
}

/* ---- formatting ---- */

static void format_list(const void *field, char *text, size_t n)
{
    struct bps_list list;
    memcpy(&list, field, sizeof list);
    struct bps_text out = bps_text_in(text, n);
    for (uint32_t i = 0; i < list.count; i++) {
        bps_text_add(&out, "%s%s", i == 0 ? "" : " ", list.items[i]);
    }
}

static void format_choice(const struct bps_option *option, uint32_t index, char *text, size_t n)
{
    struct words words;
    split_words(option->range, &words);
    snprintf(text, n, "%s", index < words.count ? words.word[index] : "?");
}

void bps_option_format(const struct bps_option *option, const void *target, char *text, size_t n)
{
    if (n == 0) {
        return;
    }
    const void *field = (const char *)target + option->offset;
    union value value;
    const char *string;
    text[0] = '\0';
    switch (option->type) {
    case BPS_OPT_STRING:
        memcpy(&string, field, sizeof string);
        snprintf(text, n, "%s", string == NULL ? "" : string);
        return;
    case BPS_OPT_LIST:
        format_list(field, text, n);
        return;
    }
    memcpy(&value, field, field_size(option->type));
    switch (option->type) {
    case BPS_OPT_BOOL:
        snprintf(text, n, "%s", value.boolean ? "true" : "false");
        break;
    case BPS_OPT_INT:
        snprintf(text, n, "%" PRId64, value.integer);
        break;
    case BPS_OPT_SIZE:
        bps_format_size(value.amount, text, n);
        break;
    case BPS_OPT_TIME:
        bps_format_time(value.amount, text, n);
        break;
    case BPS_OPT_DOUBLE:
        bps_format_double(value.number, text, n);
        break;
    case BPS_OPT_CHOICE:
        format_choice(option, value.choice, text, n);
        break;
    }
}
