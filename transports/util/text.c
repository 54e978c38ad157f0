/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - texts that are made of several parts. */
#include "util.h"

#include <stdarg.h>
#include <string.h>

void bps_util_append(char *text, size_t n, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text + used, n - used, format, args);
    va_end(args);
}
