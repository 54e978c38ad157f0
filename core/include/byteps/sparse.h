/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sparse.h - push_pulls of some rows of a tensor, such as the gradient of an embedding.
 *
 * Of a large table each worker has touched a few rows. With `rows` a request of byteps.h brings these alone, and gets
 * the sums of all rows that any worker has brought, in ascending order: the same on all workers. Nothing else travels.
 *
 *     struct bps_rows rows = {.size = sizeof rows, .count = n, .index = touched};
 *     struct bps_push_pull request = {.size = sizeof request, .name = "embedding", .in = values, .rows = &rows,
 *                                     .count = 1000000 * 64, .ndim = 2, .shape = (int64_t[]){1000000, 64}, ...};
 *
 * `in` has the values of n rows, one after the other; `out` is NULL. Shape and count are those of the whole table,
 * whose first dimension counts its rows. The name is needed; op is BPS_SUM or BPS_AVERAGE, which divides by the number
 * of workers, not by those that have the row. Memory is the host's. Stages of worker.graph and codings do not
 * work on rows.
 *
 * Which rows there are is sent in the fewest bytes, so that even all rows have hardly more than the table. They take
 * longer than all of it from half of the rows on, or less of them within a host: "Rows of a table" in
 * docs/performance.md.
 *
 * To a tensor in mode async the rows are added, and what comes is what these rows are then, each once: those that the
 * worker has brought, and no others. Rows of zeros only read. Pushes of all of the tensor may come in between.
 */
#ifndef BYTEPS_SPARSE_H
#define BYTEPS_SPARSE_H

#include <byteps/byteps.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Set what you do not need to 0. The struct and what it points to stay as they are until the operation has ended. */
struct bps_rows {
    size_t size;          /* sizeof(struct bps_rows) */
    uint64_t count;       /* rows that this worker brings; 0 is allowed */
    const int64_t *index; /* which row of the table each one is, in any order; rows given twice are summed */
    uint64_t out_count;   /* result: rows that anybody has brought (in mode async: this worker), once all is well; */
    int64_t *out_index;   /* which ones, ascending, */
    void *out;            /* and their values, one after the other: for bps_rows_free() */
    void *state;          /* the library's */
};

/* Frees a result; the struct may be used again. Nothing happens where there is none. */
BPS_API void bps_rows_free(struct bps_rows *rows);

#ifdef __cplusplus
}
#endif

#endif
