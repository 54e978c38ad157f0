/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.c - IndexedSlices as TensorFlow has them: the inputs and outputs of a push_pull of rows.
 *
 * The result comes into memory of the core, as its size is known at the end only, and is copied from there.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <byteps/sparse.h>

#include "tensorflow.h"

enum { INDICES, VALUES, COUNT, INPUTS }; /* COUNT: the rows of the whole table */

struct rows {
    struct bps_rows rows;
    TF_Tensor *in[INPUTS];
    int ndim;
    int64_t shape[BPS_DIMENSIONS]; /* of the values */
};

static bool take_inputs(struct rows *rows, TF_OpKernelContext *context, TF_Status *status)
{
    for (int i = 0; i < INPUTS; i++) {
        tf.TF_GetInput(context, i, &rows->in[i], status);
        if (tf.TF_GetCode(status) != TF_OK) {
            rows->in[i] = NULL;
            return false;
        }
    }
    rows->ndim = tf.TF_NumDims(rows->in[VALUES]);
    if (rows->ndim < 1 || (unsigned)rows->ndim > BPS_DIMENSIONS || tf.TF_NumDims(rows->in[INDICES]) != 1 ||
        tf.TF_Dim(rows->in[INDICES], 0) != tf.TF_Dim(rows->in[VALUES], 0)) {
        tf.TF_SetStatus(status, TF_INVALID_ARGUMENT, "IndexedSlices need one index for each row of their values");
        return false;
    }
    if (dtype_of(tf.TF_TensorType(rows->in[VALUES])) == BPS_DTYPES) {
        tf.TF_SetStatus(status, TF_INVALID_ARGUMENT, "the values have a type that cannot be sent");
        return false;
    }
    return true;
}

static void describe_table(struct rows *rows, struct bps_push_pull *request, int64_t *shape)
{
    for (int i = 0; i < rows->ndim; i++)
        rows->shape[i] = shape[i] = tf.TF_Dim(rows->in[VALUES], i);
    memcpy(&shape[0], tf.TF_TensorData(rows->in[COUNT]), sizeof(shape[0]));
    request->count = 1;
    for (int i = 0; i < rows->ndim; i++)
        request->count *= shape[i] < 0 ? 0 : (uint64_t)shape[i];
    rows->rows.size = sizeof rows->rows;
    rows->rows.count = (uint64_t)rows->shape[0];
    rows->rows.index = tf.TF_TensorData(rows->in[INDICES]);
    request->dtype = dtype_of(tf.TF_TensorType(rows->in[VALUES]));
    request->ndim = (uint32_t)rows->ndim;
    request->shape = shape;
    request->in = tf.TF_TensorData(rows->in[VALUES]);
    request->rows = &rows->rows;
}

struct rows *rows_take(TF_OpKernelContext *context, struct bps_push_pull *request, int64_t *shape, TF_Status *status)
{
    struct rows *rows = calloc(1, sizeof(*rows));

    if (rows == NULL) {
        set_status(status, BPS_ERR_NOMEM, NULL);
        return NULL;
    }
    if (!take_inputs(rows, context, status)) {
        rows_delete(rows);
        return NULL;
    }
    describe_table(rows, request, shape);
    return rows;
}

static void give(TF_OpKernelContext *context, int output, int type, const int64_t *shape, int ndim, const void *from,
                 TF_Status *status)
{
    size_t bytes = tf.TF_DataTypeSize(type);
    TF_Tensor *out;

    for (int i = 0; i < ndim; i++)
        bytes *= (size_t)shape[i];
    if (tf.TF_GetCode(status) != TF_OK)
        return;
    out = tf.TF_AllocateOutput(context, output, type, shape, ndim, bytes, status);
    if (tf.TF_GetCode(status) == TF_OK && bytes > 0)
        memcpy(tf.TF_TensorData(out), from, bytes);
    if (out != NULL)
        tf.TF_DeleteTensor(out);
}

void rows_give(const struct rows *rows, TF_OpKernelContext *context, TF_Status *status)
{
    int64_t shape[BPS_DIMENSIONS];

    memcpy(shape, rows->shape, sizeof(shape));
    shape[0] = (int64_t)rows->rows.out_count;
    give(context, 0, TF_INT64, shape, 1, rows->rows.out_index, status);
    give(context, 1, tf.TF_TensorType(rows->in[VALUES]), shape, rows->ndim, rows->rows.out, status);
}

void rows_delete(struct rows *rows)
{
    if (rows == NULL)
        return;
    bps_rows_free(&rows->rows);
    for (int i = 0; i < INPUTS; i++) {
        if (rows->in[i] != NULL)
            tf.TF_DeleteTensor(rows->in[i]);
    }
    free(rows);
}
