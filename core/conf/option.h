/* SPDX-License-Identifier: Apache-2.0 */
/*
 * option.h - option tables: text to typed fields and back, ranges, defaults, nearest names.
 *
 * The same tables describe the core's own keys and the options of plugins. A range is "1..64",
 * "4 KiB..1 GiB", "1.." or "..64"; both ends belong to it. For choices it is the words, separated by '|'.
 */
#ifndef BPS_CONF_OPTION_H
#define BPS_CONF_OPTION_H

#include <byteps/plugin.h>

struct bps_option_type {
    const char *name;     /* "size", "time", ... for messages and documents */
    const char *expected; /* what is allowed where there is no range */
    size_t size, align;   /* of the field */
};
/* By BPS_OPT_*; one of size 0 if there is no such type. */
const struct bps_option_type *bps_option_type(uint32_t type);

/*
 * Parses a scalar's text into the field that `option` describes within `target`, which holds a value already
 * (a default, or zero). Strings are copied and freed by bps_options_release(). The report says what is wrong
 * with the text and what is allowed; it names neither the text nor the key, which the caller puts before it:
 * "not a size; expected 64..1 GiB, such as "4 MiB"". On an error the field keeps its value.
 */
bps_status bps_option_parse(const struct bps_option *option, const char *text, void *target, struct bps_report *report);
/* The same for BPS_OPT_LIST from n items. */
bps_status bps_option_parse_list(const struct bps_option *option, const char *const *items, uint32_t n, void *target,
                                 struct bps_report *report);

/* What is allowed: "64..1 GiB, such as "4 MiB"", "arrival or rank". */
void bps_option_expected(const struct bps_option *option, char *text, size_t n);

/*
 * Fills every field of `target` with its default, whatever was in it before. A table's defaults always parse;
 * a test proves it for all.
 */
bps_status bps_options_default(const struct bps_option *table, void *target, struct bps_report *report);
/* Frees the strings and lists in `target`. */
void bps_options_release(const struct bps_option *table, void *target);

/* The value as canonical text ("4 MiB", "30 s", "true", "a b c"): equal values give equal text. */
void bps_option_format(const struct bps_option *option, const void *target, char *text, size_t n);

/* The row with this name, or NULL. */
const struct bps_option *bps_option_find(const struct bps_option *table, const char *name);

/* Names of plugins and options: [a-z][a-z0-9_]*, at most BPS_PLUGIN_NAME_MAX characters. */
#define BPS_PLUGIN_NAME_MAX  31u
#define BPS_PLUGIN_NAME_RULE "expected a lower-case letter, then letters, digits and _, at most 31"
bool bps_plugin_name_valid(const char *name);

/* The candidate nearest to `word` in edit distance, or NULL if none is near enough to suggest. */
const char *bps_nearest(const char *word, const char *const *candidates, size_t n);

/* Readers of single values with units, whole text or BPS_ERR_INVALID. */
bps_status bps_parse_size(const char *text, uint64_t *out);
bps_status bps_parse_time(const char *text, uint64_t *out);

#endif
