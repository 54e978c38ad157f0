/* SPDX-License-Identifier: Apache-2.0 */
/* cpus.c - sets of cores and their notation. */
#include "base/cpus.h"

#include <ctype.h>
#include <stdio.h>

unsigned bps_cpus_count(const struct bps_cpus *cpus)
{
    unsigned count = 0;
    for (unsigned i = 0; i < BPS_CPUS_WORDS; i++) {
        count += (unsigned)__builtin_popcountl(cpus->bits[i]);
    }
    return count;
}

unsigned bps_cpus_next(const struct bps_cpus *cpus, unsigned cpu)
{
    while (cpu < BPS_CPUS_LIMIT && !bps_cpus_has(cpus, cpu)) {
        cpu++;
    }
    return cpu;
}

void bps_cpus_and(const struct bps_cpus *a, const struct bps_cpus *b, struct bps_cpus *out)
{
    for (unsigned i = 0; i < BPS_CPUS_WORDS; i++) {
        out->bits[i] = a->bits[i] & b->bits[i];
    }
}

void bps_cpus_without(const struct bps_cpus *a, const struct bps_cpus *b, struct bps_cpus *out)
{
    for (unsigned i = 0; i < BPS_CPUS_WORDS; i++) {
        out->bits[i] = a->bits[i] & ~b->bits[i];
    }
}

void bps_cpus_or(const struct bps_cpus *a, const struct bps_cpus *b, struct bps_cpus *out)
{
    for (unsigned i = 0; i < BPS_CPUS_WORDS; i++) {
        out->bits[i] = a->bits[i] | b->bits[i];
    }
}

/* ---- text to sets ---- */

static void skip_blanks(const char **at)
{
    while (isspace((unsigned char)**at)) {
        (*at)++;
    }
}

static bool read_number(const char **at, unsigned *out)
{
    unsigned value = 0;
    const char *start = *at;
    while (isdigit((unsigned char)**at) && value < BPS_CPUS_LIMIT) {
        value = value * 10 + (unsigned)(*(*at)++ - '0');
    }
    *out = value;
    return *at != start && value < BPS_CPUS_LIMIT;
}

/* "3" or "0-3" with blanks around it. */
static bool read_range(const char **at, struct bps_cpus *out)
{
    unsigned first, last;
    skip_blanks(at);
    if (!read_number(at, &first)) {
        return false;
    }
    last = first;
    if (**at == '-') {
        (*at)++;
        if (!read_number(at, &last) || last < first) {
            return false;
        }
    }
    for (unsigned cpu = first; cpu <= last; cpu++) {
        bps_cpus_add(out, cpu);
    }
    skip_blanks(at);
    return true;
}

bps_status bps_cpus_parse(const char *text, struct bps_cpus *out, struct bps_report *report)
{
    struct bps_cpus cpus;
    const char *at = text, *item = text;
    bool good = true;
    bps_cpus_clear(&cpus);
    skip_blanks(&at);
    while (good && *at != '\0') {
        item = at;
        good = read_range(&at, &cpus) && (*at == '\0' || (*at == ',' && at[1] != '\0'));
        at += good && *at == ',';
    }
    if (!good) {
        BPS_REPORT(report,
                   "not a list of cores at '%.40s'; expected numbers below %u and ranges, such as \"0-3,8\"",
                   item, BPS_CPUS_LIMIT);
        return BPS_ERR_CONF;
    }
    *out = cpus;
    return BPS_OK;
}

/* ---- several sets ---- */

unsigned bps_cpus_lists(const char *text)
{
    unsigned count = *text != '\0';
    for (; *text != '\0'; text++) {
        count += *text == ':';
    }
    return count;
}

bps_status bps_cpus_list(const char *text, unsigned index, struct bps_cpus *out, struct bps_report *report)
{
    char list[4096];
    struct bps_cpus cpus;
    for (unsigned i = 0; i < index; i++) {
        text = strchr(text, ':') + 1;
    }
    size_t n = strcspn(text, ":");
    if (n >= sizeof list) {
        BPS_REPORT(report, "a list of cores is longer than %zu bytes; write ranges, such as \"0-3,8\"",
                   sizeof list - 1);
        return BPS_ERR_CONF;
    }
    memcpy(list, text, n);
    list[n] = '\0';
    bps_status status = bps_cpus_parse(list, &cpus, report);
    if (status == BPS_OK && bps_cpus_empty(&cpus)) {
        BPS_REPORT(report, "list %u of cores is empty; expected such as \"0-3,8\"", index);
        status = BPS_ERR_CONF;
    }
    if (status == BPS_OK) {
        *out = cpus;
    }
    return status;
}

/* ---- sets to text ---- */

void bps_cpus_format(const struct bps_cpus *cpus, char *text, size_t n)
{
    size_t used = 0;
    snprintf(text, n, "none");
    for (unsigned first = bps_cpus_next(cpus, 0), last; first < BPS_CPUS_LIMIT && used < n;
         first = bps_cpus_next(cpus, last + 1)) {
        for (last = first; bps_cpus_has(cpus, last + 1);) {
            last++;
        }
        used += (size_t)snprintf(text + used, n - used, last > first ? "%s%u-%u" : "%s%u",
                                 used > 0 ? "," : "", first, last);
    }
}
