/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value_rows.c - some rows of a value: what a worker pushes to them is added, and the answer is what these rows are
 * then, in the same place.
 */
#include <string.h>

#include "base/assert.h"
#include "base/rows.h"
#include "plugin/use.h"
#include "sum/value_key.h"

bool bps_value_are_rows(const void *data, uint32_t bytes, uint32_t size, const struct bps_spec *spec)
{
    struct bps_row_cut cut;
    struct bps_row_list list;
    return bps_row_parts_read(data, bytes, size, spec->row, (uint32_t)bps_dtype_size(spec->dtype), &cut, &list);
}

/* They are known to be rows. */
static struct bps_row_list value_rows_of(const struct bps_value *v, const void *rows, uint32_t bytes, uint32_t size,
                                         uint32_t row, struct bps_row_cut *cut)
{
    struct bps_row_list list;
    bool are = bps_row_parts_read(rows, bytes, size, row, (uint32_t)bps_dtype_size(v->spec.dtype), cut, &list);
    bps_assert(are);
    (void)are;
    return list;
}

void bps_value_add_rows(const struct bps_value *v, const struct bps_value_version *from, struct bps_value_version *to,
                        uint32_t row, double scale, const void *rows, uint32_t bytes)
{
    struct bps_row_cut cut;
    const struct bps_row_list list = value_rows_of(v, rows, bytes, from->bytes, row, &cut);
    const char *part = list.data;
    const double scales[] = {1.0, scale};
    if (to != from) {
        memcpy(to->data, from->data, from->bytes);
    }
    BPS_CALLING_KERNEL(v->reducer, "reduce", NULL);
    for (uint32_t i = 0; i < list.count; i++) {
        char *at = to->data + bps_row_part_at(&cut, list.index[i]);
        uint32_t own = bps_row_part_bytes(&cut, list.index[i]);
        v->kernels.reduce(v->kernels.context, at, (const void *const[]){at, part}, scale != 1.0 ? scales : NULL, 2,
                          own / bps_dtype_size(v->spec.dtype), 1.0, 1);
        part += own;
    }
}

void bps_value_read_rows(const struct bps_value *v, uint32_t index, uint32_t row, void *rows, uint32_t bytes)
{
    const struct bps_value_version *now = v->slice[index].now;
    struct bps_row_cut cut;
    const struct bps_row_list list = value_rows_of(v, rows, bytes, now->bytes, row, &cut);
    char *part = (char *)rows + bps_row_parts_before(list.count);
    for (uint32_t i = 0; i < list.count; i++) {
        uint32_t own = bps_row_part_bytes(&cut, list.index[i]);
        memcpy(part, now->data + bps_row_part_at(&cut, list.index[i]), own);
        part += own;
    }
}
