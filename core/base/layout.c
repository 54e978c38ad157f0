/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - the public structs are as layout.def says, or this does not compile. */
#include <byteps/collectives.h>
#include <byteps/compressor.h>
#include <byteps/device.h>
#include <byteps/elastic.h>
#include <byteps/framework.h>
#include <byteps/groups.h>
#include <byteps/launcher.h>
#include <byteps/reducer.h>
#include <byteps/sparse.h>
#include <byteps/stage.h>
#include <byteps/transport.h>

#define AS_DOCUMENTED "a compiled program relies on this: docs/abi.md says what may change"

#define LEAST(struct_, bytes_) _Static_assert((bytes_) <= sizeof(struct struct_), AS_DOCUMENTED);
#define FIELD(struct_, field_, offset_)                                                                                \
    _Static_assert(offsetof(struct struct_, field_) == (offset_), #struct_ "." #field_ ": " AS_DOCUMENTED);
#define GREW(struct_, field_, minor_, bytes_)                                                                          \
    _Static_assert((minor_) <= BPS_ABI_MINOR && offsetof(struct struct_, field_) >= (bytes_),                          \
                   #struct_ "." #field_ " is new and begins behind all that was there, padding included");
#define NOW(struct_, bytes_) _Static_assert(sizeof(struct struct_) == (bytes_), #struct_ ": " AS_DOCUMENTED);
#include "base/layout.def"
