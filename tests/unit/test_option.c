/* SPDX-License-Identifier: Apache-2.0 */
/* test_option.c - option tables: values, units, ranges, canonical text, nearest names. */
#include <inttypes.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "conf/option.h"
#include "conf/schema.h"
#include "conf/value.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- sizes and times ---- */

struct amount {
    const char *text;
    uint64_t value;
    const char *canonical;
};

static const struct amount sizes[] = {
    {"0", 0, "0"},
    {"1", 1, "1"},
    {"64", 64, "64"},
    {"64 B", 64, "64"},
    {"1024", 1024, "1 KiB"},
    {"4 MiB", 4194304, "4 MiB"},
    {"4MiB", 4194304, "4 MiB"},
    {"  4 \t MiB ", 4194304, "4 MiB"},
    {"4 MB", 4000000, "4000000"},
    {"4096 kB", 4096000, "4000 KiB"},
    {"1.5 KiB", 1536, "1536"},
    {"0.1 KiB", 102, "102"},
    {"1.5 GiB", 1610612736, "1536 MiB"},
    {"1 GB", 1000000000, "1000000000"},
    {"2 TiB", 2199023255552, "2 TiB"},
    {"2 TB", 2000000000000, "1953125000 KiB"},
    {"18446744073709551615", UINT64_MAX, "18446744073709551615"},
    {"16777215 TiB", 16777215ull << 40, "16777215 TiB"},
};

static const struct amount times[] = {
    {"0", 0, "0 s"},
    {"0 h", 0, "0 s"},
    {"20", 20000000000, "20 s"},
    {"500 ms", 500000000, "500 ms"},
    {"1500 ms", 1500000000, "1500 ms"},
    {"1.5 s", 1500000000, "1500 ms"},
    {"0.000000001 s", 1, "1 ns"},
    {"0.3 s", 300000000, "300 ms"},
    {"7 us", 7000, "7 us"},
    {"60 s", 60000000000, "1 min"},
    {"90 s", 90000000000, "90 s"},
    {"2 min", 120000000000, "2 min"},
    {"1 h", 3600000000000, "1 h"},
    {"60min", 3600000000000, "1 h"},
    {"7 d", 604800000000000, "168 h"},
    {"3 ns", 3, "3 ns"},
};

START_TEST(size_is_read)
{
    uint64_t value = 42;
    char text[64];
    ck_assert_int_eq(bps_parse_size(sizes[_i].text, &value), BPS_OK);
    ck_assert_uint_eq(value, sizes[_i].value);
    bps_format_size(value, text, sizeof text);
    ck_assert_str_eq(text, sizes[_i].canonical);
    ck_assert_int_eq(bps_parse_size(text, &value), BPS_OK);
    ck_assert_uint_eq(value, sizes[_i].value);
}
END_TEST

START_TEST(time_is_read)
{
    uint64_t value = 42;
    char text[64];
    ck_assert_int_eq(bps_parse_time(times[_i].text, &value), BPS_OK);
    ck_assert_uint_eq(value, times[_i].value);
    bps_format_time(value, text, sizeof text);
    ck_assert_str_eq(text, times[_i].canonical);
    ck_assert_int_eq(bps_parse_time(text, &value), BPS_OK);
    ck_assert_uint_eq(value, times[_i].value);
}
END_TEST

static const char *const no_amounts[] = {
    "",
    " ",
    "MiB",
    "-1",
    "+1",
    "4 parsecs",
    "4 mib",
    "4 KB",
    "4 M",
    "4 Mi B",
    "4 MiB 2",
    "1,5 MiB",
    "1.",
    ".5 KiB",
    "1e3",
    "0x10",
    "4..5",
    "1.2.3 KiB",
    "18446744073709551616",
    "16777216 TiB",
    "99999999999999999999999999 TiB",
    "6000000 h 1",
    "99999999999999 h",
    "nan",
    "inf",
    "4\nMiB",
};

START_TEST(no_amount_is_refused)
{
    uint64_t value = 42;
    ck_assert_int_eq(bps_parse_size(no_amounts[_i], &value), BPS_ERR_INVALID);
    ck_assert_uint_eq(value, 42);
    ck_assert_int_eq(bps_parse_time(no_amounts[_i], &value), BPS_ERR_INVALID);
    ck_assert_uint_eq(value, 42);
}
END_TEST

/* ---- one option of each type ---- */

struct fields {
    bool boolean;
    int64_t integer;
    uint64_t size, time;
    double number;
    const char *string;
    uint32_t choice;
    struct bps_list list;
    int64_t any_integer;
    double small;
    uint64_t any_size, any_time;
    int64_t at_least, at_most;
};

static const struct bps_option table[] = {
    {"boolean", BPS_OPT_BOOL, 0, offsetof(struct fields, boolean), "true", NULL, ""},
    {"integer", BPS_OPT_INT, 0, offsetof(struct fields, integer), "3", "-2..64", ""},
    {"size", BPS_OPT_SIZE, 0, offsetof(struct fields, size), "4 MiB", "64..1 GiB", ""},
    {"time", BPS_OPT_TIME, 0, offsetof(struct fields, time), "20 s", "1 s..1 h", ""},
    {"number", BPS_OPT_DOUBLE, 0, offsetof(struct fields, number), "0.5", "0..1", ""},
    {"string", BPS_OPT_STRING, 0, offsetof(struct fields, string), "word", NULL, ""},
    {"choice", BPS_OPT_CHOICE, 0, offsetof(struct fields, choice), "rank", "arrival|rank|none", ""},
    {"list", BPS_OPT_LIST, 0, offsetof(struct fields, list), "a b  c", NULL, ""},
    {"any_integer", BPS_OPT_INT, 0, offsetof(struct fields, any_integer), "0", NULL, ""},
    {"small", BPS_OPT_DOUBLE, 0, offsetof(struct fields, small), "1e-9", NULL, ""},
    {"any_size", BPS_OPT_SIZE, 0, offsetof(struct fields, any_size), "0", NULL, ""},
    {"any_time", BPS_OPT_TIME, 0, offsetof(struct fields, any_time), "0", NULL, ""},
    {"at_least", BPS_OPT_INT, 0, offsetof(struct fields, at_least), "1", "1..", ""},
    {"at_most", BPS_OPT_INT, 0, offsetof(struct fields, at_most), "1", "..64", ""},
    {0},
};

START_TEST(defaults_fill_every_field)
{
    struct fields f;
    struct bps_report report = {""};
    memset(&f, 0xa5, sizeof f);
    ck_assert_int_eq(bps_options_default(table, &f, &report), BPS_OK);
    ck_assert(f.boolean);
    ck_assert_int_eq(f.integer, 3);
    ck_assert_uint_eq(f.size, 4194304);
    ck_assert_uint_eq(f.time, 20000000000);
    ck_assert(f.number == 0.5);
    ck_assert_str_eq(f.string, "word");
    ck_assert_uint_eq(f.choice, 1);
    ck_assert_uint_eq(f.list.count, 3);
    ck_assert_str_eq(f.list.items[2], "c");
    bps_options_release(table, &f);
    ck_assert_ptr_null(f.string);
    ck_assert_ptr_null(f.list.items);
}
END_TEST

static const struct {
    const char *option, *text, *canonical;
} good[] = {
    {"boolean", "yes", "true"},
    {"boolean", "OFF", "false"},
    {"boolean", "0", "false"},
    {"boolean", "1", "true"},
    {"boolean", "False", "false"},
    {"integer", "-2", "-2"},
    {"integer", "64", "64"},
    {"integer", "007", "7"},
    {"integer", " 5 ", "5"},
    {"size", "64", "64"},
    {"size", "1 GiB", "1 GiB"},
    {"size", "1073741824", "1 GiB"},
    {"time", "1", "1 s"},
    {"time", "3600", "1 h"},
    {"number", "0", "0"},
    {"number", "1", "1"},
    {"number", "1e-3", "0.001"},
    {"number", "0.1", "0.1"},
    {"string", "", ""},
    {"string", " a b ", " a b "},
    {"choice", "arrival", "arrival"},
    {"choice", "none", "none"},
    {"list", "", ""},
    {"list", " x\ty ", "x y"},
    {"any_integer", "-9223372036854775808", "-9223372036854775808"},
    {"any_integer", "9223372036854775807", "9223372036854775807"},
    {"small", "1e-300", "1e-300"},
    {"small", "-0.25", "-0.25"},
    {"at_least", "1000000", "1000000"},
    {"at_most", "-1000000", "-1000000"},
};

START_TEST(good_value_is_taken)
{
    struct fields f;
    struct bps_report report = {"untouched"};
    char text[128];
    const struct bps_option *row = bps_option_find(table, good[_i].option);
    ck_assert_int_eq(bps_options_default(table, &f, NULL), BPS_OK);
    ck_assert_int_eq(bps_option_parse(row, good[_i].text, &f, &report), BPS_OK);
    ck_assert_str_eq(report.text, "untouched");
    bps_option_format(row, &f, text, sizeof text);
    ck_assert_str_eq(text, good[_i].canonical);
    /* The canonical text means the same. */
    ck_assert_int_eq(bps_option_parse(row, text, &f, NULL), BPS_OK);
    bps_option_format(row, &f, text, sizeof text);
    ck_assert_str_eq(text, good[_i].canonical);
    bps_options_release(table, &f);
}
END_TEST

static const struct {
    const char *option, *text, *why;
} bad[] = {
    {"boolean", "maybe", "not a boolean; expected true or false"},
    {"boolean", "2", "not a boolean; expected true or false"},
    {"boolean", "", "not a boolean; expected true or false"},
    {"integer", "-3", "out of range; expected -2..64"},
    {"integer", "65", "out of range; expected -2..64"},
    {"integer", "1.5", "not a whole number; expected -2..64"},
    {"integer", "x", "not a whole number; expected -2..64"},
    {"integer", "", "not a whole number; expected -2..64"},
    {"integer", "99999999999999999999", "out of range; expected -2..64"},
    {"any_integer", "9223372036854775808", "out of range; expected a whole number"},
    {"any_integer", "seven", "not a whole number; expected a whole number"},
    {"at_least", "0", "out of range; expected at least 1"},
    {"at_most", "65", "out of range; expected at most 64"},
    {"size", "63", "out of range; expected 64..1 GiB, such as \"4 MiB\""},
    {"size", "1073741825", "out of range; expected 64..1 GiB, such as \"4 MiB\""},
    {"size", "4 parsecs", "not a size; expected 64..1 GiB, such as \"4 MiB\""},
    {"size", "99999999999999999999", "out of range; expected 64..1 GiB, such as \"4 MiB\""},
    {"any_size", "big", "not a size; expected a number with a unit (B, KiB, MiB, GiB, kB, MB, GB), such as \"4 MiB\""},
    {"time", "999 ms", "out of range; expected 1 s..1 h, such as \"20 s\""},
    {"time", "3601", "out of range; expected 1 s..1 h, such as \"20 s\""},
    {"time", "4 MiB", "not a time; expected 1 s..1 h, such as \"20 s\""},
    {"any_time", "soon", "not a time; expected a number with a unit (ns, us, ms, s, min, h), such as \"30 s\""},
    {"number", "1.01", "out of range; expected 0..1"},
    {"number", "-1e-9", "out of range; expected 0..1"},
    {"number", "nan", "not a number; expected 0..1"},
    {"number", "inf", "not a number; expected 0..1"},
    {"number", "0x1p-2", "not a number; expected 0..1"},
    {"number", "0,5", "not a number; expected 0..1"},
    {"small", "1e999", "not a number; expected a number"},
    {"choice", "ranks", "unknown word; expected arrival, rank or none; did you mean rank?"},
    {"choice", "Rank", "unknown word; expected arrival, rank or none; did you mean rank?"},
    {"choice", "zzzzzz", "unknown word; expected arrival, rank or none"},
    {"choice", "", "unknown word; expected arrival, rank or none"},
};

START_TEST(bad_value_is_refused_word_by_word)
{
    struct fields f, before;
    struct bps_report report = {""};
    const struct bps_option *row = bps_option_find(table, bad[_i].option);
    ck_assert_int_eq(bps_options_default(table, &f, NULL), BPS_OK);
    memcpy(&before, &f, sizeof f);
    ck_assert_int_eq(bps_option_parse(row, bad[_i].text, &f, &report), BPS_ERR_INVALID);
    ck_assert_str_eq(report.text, bad[_i].why);
    ck_assert_mem_eq(&before, &f, sizeof f);
    ck_assert_int_eq(bps_option_parse(row, bad[_i].text, &f, NULL), BPS_ERR_INVALID);
    bps_options_release(table, &f);
}
END_TEST

START_TEST(list_takes_items_with_blanks)
{
    struct fields f;
    struct bps_report report = {""};
    static const char *const items[] = {"a b", "", "c"};
    ck_assert_int_eq(bps_options_default(table, &f, NULL), BPS_OK);
    ck_assert_int_eq(bps_option_parse_list(bps_option_find(table, "list"), items, 3, &f, &report), BPS_OK);
    ck_assert_uint_eq(f.list.count, 3);
    ck_assert_str_eq(f.list.items[0], "a b");
    ck_assert_str_eq(f.list.items[1], "");
    ck_assert_int_eq(bps_option_parse_list(bps_option_find(table, "list"), NULL, 0, &f, &report), BPS_OK);
    ck_assert_uint_eq(f.list.count, 0);
    ck_assert_int_eq(bps_option_parse_list(bps_option_find(table, "integer"), items, 3, &f, &report), BPS_ERR_INVALID);
    ck_assert_str_eq(report.text, "a list is not allowed here; expected -2..64");
    bps_options_release(table, &f);
}
END_TEST

START_TEST(format_stays_within_its_buffer)
{
    struct fields f;
    char text[4] = "xyz";
    ck_assert_int_eq(bps_options_default(table, &f, NULL), BPS_OK);
    bps_option_format(bps_option_find(table, "string"), &f, text, sizeof text);
    ck_assert_str_eq(text, "wor");
    bps_option_format(bps_option_find(table, "list"), &f, text, sizeof text);
    ck_assert_str_eq(text, "a b");
    bps_option_format(bps_option_find(table, "size"), &f, text, 0);
    ck_assert_str_eq(text, "a b");
    bps_options_release(table, &f);
}
END_TEST

START_TEST(default_that_does_not_parse_is_named)
{
    struct {
        const char *string;
        int64_t integer;
    } f;
    const struct bps_option faulty[] = {
        {"string", BPS_OPT_STRING, 0, 0, "x", NULL, ""},
        {"count", BPS_OPT_INT, 0, 8, "many", "1..4", ""},
        {0},
    };
    struct bps_report report = {""};
    ck_assert_int_eq(bps_options_default(faulty, &f, &report), BPS_ERR_INVALID);
    ck_assert_str_eq(report.text, "the default of option count is \"many\": not a whole number; expected 1..4");
    ck_assert_ptr_null(f.string);
}
END_TEST

START_TEST(decimal_comma_of_a_locale_does_not_matter)
{
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
    const char *set = NULL;
    for (size_t i = 0; i < COUNT(locales) && set == NULL; i++) {
        set = setlocale(LC_ALL, locales[i]);
    }
    double value;
    char text[64];
    ck_assert_int_eq(bps_parse_double("0.25", &value), BPS_OK);
    ck_assert(value == 0.25);
    bps_format_double(0.25, text, sizeof text);
    ck_assert_str_eq(text, "0.25");
    setlocale(LC_ALL, "C");
}
END_TEST

/* ---- the core's own tables ---- */

static void check_edge(const struct bps_option *row, void *target, const char *text, bool allowed)
{
    struct bps_report report = {""};
    bps_status status = bps_option_parse(row, text, target, &report);
    ck_assert_msg(status == (allowed ? BPS_OK : BPS_ERR_INVALID), "%s = \"%s\": %s", row->name, text,
                  allowed ? report.text : "was taken");
}

/* Both ends of the range are allowed; one less and one more are not. */
static void check_edges(const struct bps_option *row, void *target)
{
    char from[64], to[64], text[64];
    const char *dots = strstr(row->range, "..");
    ck_assert_ptr_nonnull(dots);
    snprintf(from, sizeof from, "%.*s", (int)(dots - row->range), row->range);
    snprintf(to, sizeof to, "%s", dots + 2);
    check_edge(row, target, from, true);
    check_edge(row, target, to, true);
    if (row->type == BPS_OPT_INT) {
        snprintf(text, sizeof text, "%ld", atol(from) - 1);
        check_edge(row, target, text, false);
        snprintf(text, sizeof text, "%ld", atol(to) + 1);
        check_edge(row, target, text, false);
        return;
    }
    uint64_t low, high;
    bool size = row->type == BPS_OPT_SIZE;
    ck_assert_int_eq(size ? bps_parse_size(from, &low) : bps_parse_time(from, &low), BPS_OK);
    ck_assert_int_eq(size ? bps_parse_size(to, &high) : bps_parse_time(to, &high), BPS_OK);
    snprintf(text, sizeof text, "%" PRIu64 " %s", low - 1, size ? "B" : "ns");
    check_edge(row, target, low == 0 ? "-1" : text, false);
    snprintf(text, sizeof text, "%" PRIu64 " %s", high + 1, size ? "B" : "ns");
    check_edge(row, target, text, false);
}

START_TEST(core_tables_are_sound)
{
    unsigned rows = 0, ranges = 0;
    for (const struct bps_section *section = bps_sections; section->name != NULL; section++) {
        struct bps_conf conf;
        struct bps_report report = {""};
        void *target = bps_section_struct(&conf, section);
        memset(&conf, 0x5a, sizeof conf);
        ck_assert_msg(bps_options_default(section->table, target, &report) == BPS_OK, "%s", report.text);
        for (const struct bps_option *row = section->table; row->name != NULL; row++, rows++) {
            char text[256];
            ck_assert_msg(row->help != NULL && row->help[strlen(row->help) - 1] == '.', "%s: help", row->name);
            ck_assert_ptr_eq(bps_option_find(section->table, row->name), row);
            bps_option_format(row, target, text, sizeof text);
            check_edge(row, target, text, true);
            if (row->range != NULL && row->type != BPS_OPT_CHOICE) {
                check_edges(row, target);
                ranges++;
            }
        }
        bps_options_release(section->table, target);
    }
    ck_assert_uint_ge(rows, 20);
    ck_assert_uint_ge(ranges, 12);
}
END_TEST

/* ---- nearest ---- */

static const struct {
    const char *word, *nearest;
} words[] = {
    {"partiton", "partition"},
    {"Partition", "partition"},
    {"tpc", "tcp"},
    {"slcie", "slice"},
    {"workers", "worker"},
    {"xyz", NULL},
    {"", NULL},
    {"zzzzzzzzzzzz", NULL},
    {"tcpp", "tcp"},
    {"ipcc", "ipc"},
    {"TPC", "tcp"},
    {"thraeds", "threads"},
    {"slice", "slice"},
    {"partitionsize", "partition"},
    {"a-very-long-word-that-nobody-ever-typed-by-mistake-and-that-is-longer-than-64-bytes", NULL},
};

START_TEST(nearest_name_is_found)
{
    static const char *const candidates[] = {"partition", "ipc", "tcp", "slice", "worker", "threads", "treads"};
    const char *nearest = bps_nearest(words[_i].word, candidates, COUNT(candidates));
    if (words[_i].nearest == NULL) {
        ck_assert_ptr_null(nearest);
    } else {
        ck_assert_ptr_nonnull(nearest);
        ck_assert_str_eq(nearest, words[_i].nearest);
    }
    ck_assert_ptr_null(bps_nearest(words[_i].word, NULL, 0));
}
END_TEST

START_TEST(type_names_are_known)
{
    ck_assert_str_eq(bps_option_type(BPS_OPT_SIZE)->name, "size");
    ck_assert_str_eq(bps_option_type(BPS_OPT_LIST)->name, "list");
    ck_assert_str_eq(bps_option_type(0)->name, "?");
    ck_assert_str_eq(bps_option_type(9)->name, "?");
    ck_assert_str_eq(bps_option_type(UINT32_MAX)->name, "?");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("option");
    TCase *values = tcase_create("values"), *tables = tcase_create("tables"), *names = tcase_create("names");
    tcase_add_loop_test(values, size_is_read, 0, COUNT(sizes));
    tcase_add_loop_test(values, time_is_read, 0, COUNT(times));
    tcase_add_loop_test(values, no_amount_is_refused, 0, COUNT(no_amounts));
    tcase_add_test(values, decimal_comma_of_a_locale_does_not_matter);
    tcase_add_test(tables, defaults_fill_every_field);
    tcase_add_loop_test(tables, good_value_is_taken, 0, COUNT(good));
    tcase_add_loop_test(tables, bad_value_is_refused_word_by_word, 0, COUNT(bad));
    tcase_add_test(tables, list_takes_items_with_blanks);
    tcase_add_test(tables, format_stays_within_its_buffer);
    tcase_add_test(tables, default_that_does_not_parse_is_named);
    tcase_add_test(tables, core_tables_are_sound);
    tcase_add_loop_test(names, nearest_name_is_found, 0, COUNT(words));
    tcase_add_test(names, type_names_are_known);
    suite_add_tcase(suite, values);
    suite_add_tcase(suite, tables);
    suite_add_tcase(suite, names);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
