/* SPDX-License-Identifier: Apache-2.0 */
/* tensorflow.h - what the files of the binding share: TensorFlow's functions, its errors, and rows of a table. */
#ifndef BYTEPS_TENSORFLOW_H
#define BYTEPS_TENSORFLOW_H

#include <byteps/byteps.h>

#include "c_api.h"

struct tensorflow {
#define FIELD(result, name, parameters) result(*name) parameters;
    TENSORFLOW_SYMBOLS(FIELD)
#undef FIELD
};

/* Those of the TensorFlow in this process. */
extern struct tensorflow tf;

void set_status(TF_Status *out, bps_status status, const char *text);

/* BPS_DTYPES if it cannot be sent. */
uint32_t dtype_of(int type);

/* ---- rows.c -------------------------------------------------------------------------------------------- */

/* The rows that one push_pull brings, and then those of its result. */
struct rows;

/*
 * Takes the inputs of BytepsPushPullRows and fills in what the request says of them; shape has room for
 * BPS_DIMENSIONS. Returns what is for rows_delete(), or NULL if the status says what is wrong.
 */
struct rows *rows_take(TF_OpKernelContext *context, struct bps_push_pull *request, int64_t *shape, TF_Status *status);

/* Makes the result the operation's outputs. */
void rows_give(const struct rows *rows, TF_OpKernelContext *context, TF_Status *status);

/* NULL is allowed. */
void rows_delete(struct rows *rows);

#endif
