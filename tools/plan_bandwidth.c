/* SPDX-License-Identifier: Apache-2.0 */
/* plan_bandwidth.c - bandwidths as text, and quantities for people. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "conf/value.h"
#include "tools/plan.h"

const char bps_bandwidth_expected[] = "a number and bit, kbit, Mbit, Gbit, Tbit or kB, MB, GB, KiB, MiB, GiB, "
                                      "per second, such as 10Gbit";

static const struct {
    const char *name;
    double bits;
} units[] = {
    {"bit", 1},
    {"kbit", 1e3},
    {"Mbit", 1e6},
    {"Gbit", 1e9},
    {"Tbit", 1e12},
    {"B", 8},
    {"kB", 8e3},
    {"MB", 8e6},
    {"GB", 8e9},
    {"KiB", 8.0 * (1 << 10)},
    {"MiB", 8.0 * (1 << 20)},
    {"GiB", 8.0 * (1 << 30)},
};

static double unit(const char *word, size_t n)
{
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        bool bits = strstr(units[i].name, "bit") != NULL; /* tc writes 10gbit; but MB is not Mb */
        if (strlen(units[i].name) == n &&
            (bits ? strncasecmp(word, units[i].name, n) : strncmp(word, units[i].name, n)) == 0) {
            return units[i].bits;
        }
    }
    return 0;
}

bps_status bps_bandwidth_parse(const char *text, double *out)
{
    char number[64];
    double value;
    size_t digits = strspn(text, "0123456789.");
    const char *word = text + digits + strspn(text + digits, " ");
    size_t n = strcspn(word, "/");
    if (digits == 0 || digits >= sizeof number || (word[n] != '\0' && strcmp(word + n, "/s") != 0)) {
        return BPS_ERR_INVALID;
    }
    memcpy(number, text, digits);
    number[digits] = '\0';
    if (bps_parse_double(number, &value) != BPS_OK) {
        return BPS_ERR_INVALID;
    }
    *out = value * unit(word, n);
    return *out >= 1 && *out <= 1e18 ? BPS_OK : BPS_ERR_INVALID;
}

/* Four digits of a number of some unit: the largest that leaves at least 1 of it. */
static const char *scaled(double value, const char *const *names, double step, size_t count)
{
    static char buffers[8][32];
    static unsigned next;
    char *text = buffers[next++ % 8];
    size_t i = 0;
    while (i + 1 < count && value >= step) {
        value /= step;
        i++;
    }
    snprintf(text, sizeof buffers[0], value >= 1000 ? "%.0f %s" : "%.4g %s", value, names[i]);
    return text;
}

const char *bps_bandwidth_text(double bits)
{
    static const char *const names[] = {"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"};
    return scaled(bits, names, 1000, 5);
}

const char *bps_duration_text(double seconds)
{
    static const char *const names[] = {"us", "ms", "s"};
    return scaled(seconds * 1e6, names, 1000, 3);
}

const char *bps_bytes_text(double bytes)
{
    static const char *const names[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    return scaled(bytes, names, 1000, 6);
}
