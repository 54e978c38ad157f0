/* SPDX-License-Identifier: Apache-2.0 */
/* value.c - reading and writing single values. */
#include "conf/value.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct unit {
    const char *name;
    uint64_t factor;
};

/* What is written is the largest unit that leaves a whole number; for sizes, of the powers of two only. */
static const struct unit size_units[] = {
    {"TiB", 1ull << 40}, {"GiB", 1ull << 30}, {"MiB", 1ull << 20}, {"KiB", 1ull << 10},   {"B", 1},
    {"kB", 1000},        {"MB", 1000000},     {"GB", 1000000000},  {"TB", 1000000000000}, {NULL, 0},
};
#define WRITTEN_SIZE_UNITS 4

static const struct unit time_units[] = {
    {"h", 3600000000000},  {"min", 60000000000},
    {"s", 1000000000},     {"ms", 1000000},
    {"us", 1000},          {"ns", 1},
    {"d", 86400000000000}, {NULL, 0},
};
#define WRITTEN_TIME_UNITS 6

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " \t");
}

/* The factor of the unit that the text consists of; 0: unknown. */
static uint64_t unit_factor(const struct unit *units, const char *text, uint64_t without)
{
    size_t length = strcspn(text, " \t");
    if (*skip_blanks(text + length) != '\0') {
        return 0;
    }
    if (length == 0) {
        return without;
    }
    for (; units->name != NULL; units++) {
        if (strlen(units->name) == length && memcmp(units->name, text, length) == 0) {
            return units->factor;
        }
    }
    return 0;
}

/* A decimal number with an optional fraction and unit, rounded down to whole base units. */
static bps_status parse_with_unit(const char *text, const struct unit *units, uint64_t without, uint64_t *out)
{
    text = skip_blanks(text);
    size_t whole = strspn(text, "0123456789");
    size_t fraction = text[whole] == '.' ? strspn(text + whole + 1, "0123456789") : 0;
    const char *rest = text + whole + (text[whole] == '.' ? 1 + fraction : 0);
    uint64_t factor = unit_factor(units, skip_blanks(rest), without);
    if (whole == 0 || (text[whole] == '.' && fraction == 0) || factor == 0) {
        return BPS_ERR_INVALID;
    }
    unsigned __int128 value = 0;
    for (size_t i = 0; i < whole; i++) {
        value = value * 10 + (unsigned)(text[i] - '0') * (unsigned __int128)factor;
        if (value > UINT64_MAX) {
            return BPS_ERR_INVALID;
        }
    }
    uint64_t part = factor * 1000; /* three guard digits: what each digit loses stays below one base unit */
    unsigned __int128 sum = 0;
    for (size_t i = 0; i < fraction && part != 0; i++) {
        part /= 10;
        sum += (unsigned)(text[whole + 1 + i] - '0') * (unsigned __int128)part;
    }
    value += sum / 1000;
    if (value > UINT64_MAX) {
        return BPS_ERR_INVALID;
    }
    *out = (uint64_t)value;
    return BPS_OK;
}

bps_status bps_parse_size(const char *text, uint64_t *out)
{
    return parse_with_unit(text, size_units, 1, out);
}

bps_status bps_parse_time(const char *text, uint64_t *out)
{
    return parse_with_unit(text, time_units, 1000000000, out);
}

static void format_with_unit(uint64_t value, const struct unit *units, size_t nunits, const char *otherwise, char *text,
                             size_t n)
{
    for (size_t i = 0; i < nunits; i++) {
        if (value != 0 && value % units[i].factor == 0) {
            snprintf(text, n, "%" PRIu64 " %s", value / units[i].factor, units[i].name);
            return;
        }
    }
    snprintf(text, n, "%" PRIu64 "%s", value, otherwise);
}

void bps_format_size(uint64_t bytes, char *text, size_t n)
{
    format_with_unit(bytes, size_units, WRITTEN_SIZE_UNITS, "", text, n);
}

void bps_format_time(uint64_t ns, char *text, size_t n)
{
    format_with_unit(ns, time_units, WRITTEN_TIME_UNITS, " s", text, n);
}

bps_status bps_parse_int(const char *text, int64_t *out)
{
    text = skip_blanks(text);
    const char *digits = text + (*text == '-');
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || *skip_blanks(digits + n) != '\0') {
        return BPS_ERR_INVALID;
    }
    errno = 0;
    int64_t value = strtoll(text, NULL, 10);
    if (errno != 0) {
        return BPS_ERR_INVALID;
    }
    *out = value;
    return BPS_OK;
}

bps_status bps_parse_bool(const char *text, bool *out)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *out = i % 2 == 1;
            return BPS_OK;
        }
    }
    return BPS_ERR_INVALID;
}

bps_status bps_parse_double(const char *text, double *out)
{
    text = skip_blanks(text);
    if (text[strspn(text, "0123456789+-.eE")] != '\0') {
        return BPS_ERR_INVALID; /* no "inf", "nan", hexadecimal */
    }
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c == (locale_t)0) {
        return BPS_ERR_NOMEM;
    }
    char *end;
    double value = strtod_l(text, &end, c);
    freelocale(c);
    if (end == text || *end != '\0' || !isfinite(value)) {
        return BPS_ERR_INVALID;
    }
    *out = value;
    return BPS_OK;
}

void bps_format_double(double value, char *text, size_t n)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t old = c != (locale_t)0 ? uselocale(c) : (locale_t)0;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, n, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    if (c != (locale_t)0) {
        uselocale(old);
        freelocale(c);
    }
}

const char *bps_variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}
