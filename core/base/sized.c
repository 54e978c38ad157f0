/* SPDX-License-Identifier: Apache-2.0 */
/* sized.c - see sized.h. */
#include "base/sized.h"

#include <stdbool.h>
#include <string.h>

#include "base/report.h"

static size_t size_of(const void *given)
{
    size_t size = 0;
    if (given != NULL) {
        memcpy(&size, given, sizeof size);
    }
    return size;
}

static bps_status check_least(const void *given, size_t least, const char *name, struct bps_report *report)
{
    if (given == NULL) {
        return bps_fail(report, BPS_ERR_INVALID, "struct %s is NULL", name);
    }
    return size_of(given) >= least
               ? BPS_OK
               : bps_fail(report, BPS_ERR_INVALID, "the size of struct %s is %zu, expected sizeof, %zu or more", name,
                          size_of(given), least);
}

static bool is_zero(const char *bytes, size_t n)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0;
}

bps_status bps_sized(const void *given, void *own, size_t size, size_t least, const char *name,
                     struct bps_report *report)
{
    size_t has = size_of(given);
    bps_status status = check_least(given, least, name, report);
    if (status != BPS_OK) {
        return status;
    }
    if (has > size && !is_zero((const char *)given + size, has - size)) {
        return bps_fail(report, BPS_ERR_UNSUPPORTED,
                        "struct %s is from a newer BytePS and sets fields that this version does not have; install the "
                        "newer version",
                        name);
    }
    if (own != NULL) {
        memset(own, 0, size);
        memcpy(own, given, has < size ? has : size);
        memcpy(own, &size, sizeof size);
    }
    return BPS_OK;
}

bps_status bps_sized_out(void *out, const void *own, size_t size, size_t least, const char *name,
                         struct bps_report *report)
{
    size_t has = size_of(out);
    bps_status status = check_least(out, least, name, report);
    if (status == BPS_OK) {
        size_t n = has < size ? has : size;
        memcpy((char *)out + sizeof has, (const char *)own + sizeof has, n - sizeof has);
        memset((char *)out + n, 0, has - n);
    }
    return status;
}
