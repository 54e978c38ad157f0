/* SPDX-License-Identifier: Apache-2.0 */
/* form.c - forms of tensors: compared, in words, on the wire. */
#include "node/form.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <byteps/byteps.h>

#include "base/text.h"
#include "wire/frame.h"

#define NOT_TOLD 255u /* on the wire, in place of the number of dimensions */

static size_t shape_bytes(uint32_t ndim)
{
    return ndim * sizeof(int64_t);
}

bps_status bps_form_set(struct bps_form *form, const struct bps_form *value)
{
    struct bps_form copy = *value;
    copy.shape = value->shape != NULL ? malloc(shape_bytes(value->ndim) + 1) : NULL; /* a scalar has a shape as well */
    copy.coding = value->coding != NULL ? strdup(value->coding) : NULL;
    if ((value->shape != NULL && copy.shape == NULL) || (value->coding != NULL && copy.coding == NULL)) {
        bps_form_fini(&copy);
        return BPS_ERR_NOMEM;
    }
    if (value->ndim > 0) {
        memcpy(copy.shape, value->shape, shape_bytes(value->ndim));
    }
    bps_form_fini(form);
    *form = copy;
    return BPS_OK;
}

void bps_form_fini(struct bps_form *form)
{
    free(form->shape);
    free(form->coding);
    *form = (struct bps_form){.dtype = BPS_DTYPES};
}

static bool is_same_shape(const struct bps_form *form, uint32_t ndim, const int64_t *shape)
{
    return form->ndim == ndim && (ndim == 0 || memcmp(form->shape, shape, shape_bytes(ndim)) == 0);
}

bool bps_form_is(const struct bps_form *form, uint32_t dtype, uint64_t bytes, uint32_t ndim, const int64_t *shape)
{
    return form->dtype == dtype && form->bytes == bytes && (form->shape != NULL) == (shape != NULL) &&
           (shape == NULL || is_same_shape(form, ndim, shape));
}

static bool is_sent_alike(const struct bps_form *a, const struct bps_form *b)
{
    return a->keeps == b->keeps && a->row == b->row;
}

static bool is_same_coding(const struct bps_form *a, const struct bps_form *b)
{
    return a->coding == NULL || b->coding == NULL ? a->coding == b->coding : strcmp(a->coding, b->coding) == 0;
}

bool bps_form_equals(const struct bps_form *a, const struct bps_form *b)
{
    return bps_form_is(a, b->dtype, b->bytes, b->ndim, b->shape) && is_same_coding(a, b) && is_sent_alike(a, b);
}

bool bps_form_agrees(const struct bps_form *a, const struct bps_form *b)
{
    return a->dtype == b->dtype && a->bytes == b->bytes && is_same_coding(a, b) && is_sent_alike(a, b) &&
           (a->shape == NULL || b->shape == NULL || is_same_shape(a, b->ndim, b->shape));
}

/* FNV-1a over the extents, in 16 bits. */
uint16_t bps_form_mark(const struct bps_form *form)
{
    uint64_t hash = 0xcbf29ce484222325u;
    if (form->shape == NULL) {
        return 0;
    }
    for (uint32_t i = 0; i < form->ndim; i++) {
        for (uint32_t byte = 0; byte < sizeof form->shape[i]; byte++) {
            hash = (hash ^ ((uint64_t)form->shape[i] >> 8 * byte & 0xff)) * 0x100000001b3u;
        }
    }
    uint16_t mark = (uint16_t)(hash ^ hash >> 16 ^ hash >> 32 ^ hash >> 48);
    return mark != 0 ? mark : 1;
}

static void add_shape(const struct bps_form *form, struct bps_text *text)
{
    const uint32_t shown = form->ndim < 8 ? form->ndim : 8;
    bps_text_add(text, "[");
    for (uint32_t i = 0; i < shown; i++) {
        bps_text_add(text, "%s%" PRId64, i == 0 ? "" : ", ", form->shape[i]);
    }
    bps_text_add(text, "%s]", shown < form->ndim ? ", ..." : "");
}

void bps_form_text(const struct bps_form *form, char *text, size_t room)
{
    struct bps_text out = bps_text_in(text, room);
    if (form->shape != NULL) {
        add_shape(form, &out);
    } else {
        bps_text_add(&out, "%" PRIu64, form->bytes / bps_dtype_size(form->dtype));
    }
    bps_text_add(&out, " %s", bps_dtype_name(form->dtype));
    if (form->coding != NULL) {
        bps_text_add(&out, " coded by %s", form->coding);
    }
    if (form->keeps) {
        bps_text_add(&out, " in mode async");
    }
    if (form->row > 0) {
        bps_text_add(&out, " as rows of %zu", form->row / bps_dtype_size(form->dtype));
    }
}

/* ---- on the wire ---- */

void bps_put_form(struct bps_writer *w, const struct bps_form *form)
{
    bps_put_u8(w, (uint8_t)form->dtype);
    bps_put_u64(w, form->bytes);
    bps_put_u8(w, (uint8_t)(form->shape != NULL ? form->ndim : NOT_TOLD));
    for (uint32_t i = 0; i < form->ndim; i++) {
        bps_put_u64(w, (uint64_t)form->shape[i]);
    }
    bps_put_string(w, form->coding != NULL ? form->coding : "");
    bps_put_u8(w, form->keeps);
    bps_put_u32(w, form->row);
}

/* Whether the shape has as many elements as the size says. */
static bool is_consistent(const struct bps_form *form)
{
    uint64_t count = 1;
    bool empty = false, over = false;
    for (uint32_t i = 0; i < form->ndim; i++) {
        if (form->shape[i] < 0) {
            return false;
        }
        empty = empty || form->shape[i] == 0;
        over = __builtin_mul_overflow(count, (uint64_t)form->shape[i], &count) || over;
    }
    uint64_t own = form->bytes / bps_dtype_size(form->dtype);
    return form->shape == NULL || (empty ? own == 0 : !over && own == count);
}

bps_status bps_get_form(struct bps_reader *r, uint64_t partition, struct bps_form *form)
{
    int64_t shape[BPS_DIMENSIONS];
    uint32_t dtype = bps_get_u8(r);
    uint64_t bytes = bps_get_u64(r);
    uint32_t ndim = bps_get_u8(r);
    bool told = ndim != NOT_TOLD;
    if (r->bad || dtype >= BPS_DTYPES || bytes % bps_dtype_size(dtype) != 0 || !bps_is_tensor(bytes, partition) ||
        (told && ndim > BPS_DIMENSIONS)) {
        return BPS_ERR_PROTOCOL;
    }
    for (uint32_t i = 0; told && i < ndim; i++) {
        shape[i] = (int64_t)bps_get_u64(r);
    }
    char coding[BPS_CODING_LIMIT + 1];
    bps_get_string(r, coding, sizeof coding);
    uint8_t keeps = bps_get_u8(r);
    uint32_t row = bps_get_u32(r);
    bool rows = row == 0 || (bytes % row == 0 && row % bps_dtype_size(dtype) == 0 && row <= partition && keeps == 0);
    if (r->bad || keeps > 1 || !rows || ((keeps != 0 || row > 0) && coding[0] != '\0')) {
        return BPS_ERR_PROTOCOL;
    }
    const struct bps_form told_form = {.bytes = bytes,
                                       .dtype = dtype,
                                       .ndim = told ? ndim : 0,
                                       .shape = told ? shape : NULL,
                                       .coding = coding[0] != '\0' ? coding : NULL,
                                       .row = row,
                                       .keeps = keeps != 0};
    bps_status status = bps_form_set(form, &told_form);
    return status == BPS_OK && !is_consistent(form) ? BPS_ERR_PROTOCOL : status;
}
