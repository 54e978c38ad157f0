/* SPDX-License-Identifier: Apache-2.0 */
/*
 * form.h - what all workers must agree on before they sum a tensor: its element type, size and shape, and how it is
 * coded on the network.
 *
 * A program may leave the shape out; then only type and size are compared.
 */
#ifndef BPS_NODE_FORM_H
#define BPS_NODE_FORM_H

#include "wire/message.h"

#include <byteps/types.h>

#define BPS_NAME_LIMIT 1023u /* bytes of a tensor's name */

struct bps_form {
    uint64_t bytes;
    uint32_t dtype;
    uint32_t ndim;  /* at most BPS_DIMENSIONS */
    int64_t *shape; /* owned; NULL: not told */
    char *coding;   /* owned; the text of its coding; NULL: it is sent as it is */
    uint32_t row;   /* some rows of so many bytes are sent; 0: all of it is */
    bool keeps;     /* its shards keep a value, to which each push is added: BPS_MODE_ASYNC */
};

#define BPS_CODING_LIMIT 511u /* bytes of the text of a coding */

/* Becomes a copy of `value`. BPS_ERR_NOMEM leaves the form as it was. */
bps_status bps_form_set(struct bps_form *form, const struct bps_form *value);
void bps_form_fini(struct bps_form *form);
/* Whether type, size and shape are these, and the shape is as much told as here. */
bool bps_form_is(const struct bps_form *form, uint32_t dtype, uint64_t bytes, uint32_t ndim, const int64_t *shape);
/* The same in every respect. */
bool bps_form_equals(const struct bps_form *a, const struct bps_form *b);
/* The same as far as both tell. */
bool bps_form_agrees(const struct bps_form *a, const struct bps_form *b);
/* A number that tells shapes apart, though not always: of equal ones it is the same. 0: the shape is not told. */
uint16_t bps_form_mark(const struct bps_form *form);
/* "[17, 1311] float32", or "22287 float32" if the shape is not told; then how it is coded. */
void bps_form_text(const struct bps_form *form, char *text, size_t room);

void bps_put_form(struct bps_writer *w, const struct bps_form *form);
/* BPS_ERR_PROTOCOL: no tensor can have this form. `form` is empty before; bps_form_fini() ends it. */
bps_status bps_get_form(struct bps_reader *r, uint64_t partition, struct bps_form *form);

#endif
