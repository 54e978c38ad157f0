/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_rig.h - for the tests of the reducer "cuda": an instance of it, driven by its table alone, and an
 * application that uses the same devices through the driver.
 */
#ifndef CUDA_RIG_H
#define CUDA_RIG_H

#include <byteps/device.h>

#include "../unit/checks.h"
#include "base/loop.h"
#include "plugin/instance.h"
#include "tests/gpu/standin/standin.h"

#define DEVICES 2

struct rig {
    struct bps_loop *loop;
    struct bps_instance *instance;
    void *self;
    const struct bps_device_ops *ops;
    struct CUctx_st *context[DEVICES]; /* the application's */
    unsigned warnings;
};

/* Opens the plugin and the application's contexts; that of device 0 is current. */
void rig_open(struct rig *rig);
/* What open says where it must fail. */
bps_status rig_refused(struct bps_report *report);
/* Closes the plugin: it leaves nothing behind but what the application has. */
void rig_close_plugin(struct rig *rig);
/* Closes both: nothing is left at all. */
void rig_close(struct rig *rig);

/* What an operation of the plugin calls in the end. */
struct call {
    struct rig *rig;
    unsigned *left; /* counted down; the loop stops at 0 */
    unsigned count, order;
    bps_status status;
    char text[256];
};
/* Prepares `n` calls that rig_run() waits for. */
void calls_init(struct rig *rig, struct call *calls, unsigned n, unsigned *left);
void call_done(void *arg, bps_status status, const char *text);
/* Runs the loop until no call is left. */
void rig_run(struct rig *rig, unsigned *left);

/* Operations that must work. */
void rig_copy(struct rig *rig, int32_t device, bool to_device, void *to, const void *from, uint64_t bytes,
              struct call *call);
struct bps_mark *rig_mark(struct rig *rig, int32_t device, struct CUstream_st *stream);
void rig_await(struct rig *rig, struct bps_mark *mark, struct call *call);
void rig_follow(struct rig *rig, int32_t device, struct CUstream_st *stream, struct bps_mark *mark);

/* ---- the application ---- */

#define CUDA(call_) ck_assert_uint_eq(call_, CUDA_OK)

struct CUstream_st *stream_new(unsigned flags);
void *device_alloc(size_t bytes);
/* All bytes are there when it returns. */
void device_write(void *memory, const void *bytes, size_t count);
void device_free(void *memory);

/* Holds a stream until it is opened. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
};
void gate_close(struct gate *gate, struct CUstream_st *stream);
void gate_open(struct gate *gate);

#endif
