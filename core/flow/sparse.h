/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sparse.h - what a push_pull of rows knows: which rows this worker brings, in their order, and the results of
 * partitions. A row belongs to the partition in which it begins.
 */
#ifndef BPS_FLOW_SPARSE_H
#define BPS_FLOW_SPARSE_H

#include <byteps/sparse.h>

#include "base/rows.h"
#include "flow/flow.h"

struct bps_kernels;

/* [app] Refuses what rows cannot be. */
bps_status bps_sparse_check(const struct bps_worker *worker, const struct bps_push_pull *request, uint32_t op,
                            struct bps_report *report);
/* [app] Puts the rows in order, if the request has some; they are in it from now on until bps_sparse_end(). */
bps_status bps_sparse_begin(const struct bps_push_pull *request);
/* [core] The operation is about to end: what has come is the caller's, if all has gone well. BPS_ERR_NOMEM. */
bps_status bps_sparse_end(const struct bps_operation *operation);
/* Bytes that an operation brings: of some rows, or all. */
uint64_t bps_sparse_bytes(const struct bps_operation *operation);

/* Bytes of a row; 0: all of the tensor is brought. */
uint32_t bps_sparse_row(const struct bps_operation *operation);

/* [core] Rows that a task brings, as bytes on the wire: at most, if some are given twice. */
size_t bps_sparse_packed(const struct bps_task *task);
/* [core] Puts them there, those given twice summed, times a scale; returns how many bytes there are. */
size_t bps_sparse_pack(const struct bps_task *task, const struct bps_kernels *kernels, double scale, char *to);
/*
 * [core] The result of a task, which stays as it is until the operation ends. It lies in a block of worker->blocks with
 * room for so many bytes, which is given back then; room 0: it is somebody else's. BPS_ERR_NOMEM; BPS_ERR_PROTOCOL:
 * these are no rows. Then the block is the caller's.
 */
bps_status bps_sparse_result(const struct bps_task *task, void *data, size_t bytes, size_t room);

/*
 * [core] The same of a slice of a task, so many bytes from this one on, whose tensor is a value; each part of a row
 * belongs to the slice in which it lies. The answer is as what was packed, with other elements, and is copied to the
 * result. BPS_ERR_NOMEM.
 */
size_t bps_sparse_slice_bound(const struct bps_task *task, uint32_t offset, uint32_t bytes);
size_t bps_sparse_slice_pack(const struct bps_task *task, uint32_t offset, uint32_t bytes,
                             const struct bps_kernels *kernels, double scale, char *to);
bps_status bps_sparse_slice_result(const struct bps_task *task, uint32_t offset, uint32_t bytes, const char *data);

#endif
