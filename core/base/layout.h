/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h - how large the public structs are at least: in the first minor of this ABI. */
#ifndef BPS_BASE_LAYOUT_H
#define BPS_BASE_LAYOUT_H

#define LEAST(struct_, bytes_) BPS_LEAST_##struct_ = (bytes_),
#define FIELD(struct_, field_, offset_)
#define GREW(struct_, field_, minor_, bytes_)
#define NOW(struct_, bytes_)
enum {
#include "base/layout.def"
};
#undef LEAST
#undef FIELD
#undef GREW
#undef NOW

/* Bytes of the struct in the first minor that had it: BPS_LEAST(bps_frame). */
#define BPS_LEAST(struct_) ((size_t)BPS_LEAST_##struct_)

#endif
