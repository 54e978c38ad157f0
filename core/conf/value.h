/* SPDX-License-Identifier: Apache-2.0 */
/* value.h - single values as text: whole numbers, numbers, booleans, and sizes and times with their units. */
#ifndef BPS_CONF_VALUE_H
#define BPS_CONF_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf/option.h"

/* Readers like bps_parse_size(): the whole text or BPS_ERR_INVALID. The locale does not matter. */
bps_status bps_parse_int(const char *text, int64_t *out);
bps_status bps_parse_bool(const char *text, bool *out);
bps_status bps_parse_double(const char *text, double *out);

/* The value of an environment variable; NULL: it is not set, or empty. */
const char *bps_variable(const char *name);

/* Canonical text. */
void bps_format_size(uint64_t bytes, char *text, size_t n);
void bps_format_time(uint64_t ns, char *text, size_t n);
/* The shortest text that is read back as the same number. */
void bps_format_double(double value, char *text, size_t n);

#endif
