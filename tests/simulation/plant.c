/* SPDX-License-Identifier: Apache-2.0 */
/* plant.c - errors that are planted into error feedback, to show that they are found. */
#include <string.h>

#include "coding/feedback.h"
#include "flow/worker.h"
#include "simulation.h"

static enum { NOTHING, TWICE, NEVER, FAILED, INFINITE, SERVER, RATIO, SIZE, PLANTS } plant;
static const char *const names[PLANTS] = {
    "nothing",  "twice", /* a worker's error moves twice */
    "never",             /* it does not move */
    "failed",            /* it moves although the round has failed, */
    "infinite",          /* or its result is not finite */
    "server",            /* the server loses its error */
    "ratio",             /* the error is applied as if learning rates were equal */
    "size",              /* the server's error is kept when the tensor changes its size */
};

bool sim_plant(const char *name)
{
    uint32_t i = 0;
    while (i < PLANTS && strcmp(names[i], name) != 0) {
        i++;
    }
    plant = i;
    return i < PLANTS;
}

bps_status __real_bps_feedback_move(struct bps_feedback *feedback, const struct bps_feedback_slice *slice,
                                    const void *g, const void *coded, size_t bytes);
bps_status __wrap_bps_feedback_move(struct bps_feedback *feedback, const struct bps_feedback_slice *slice,
                                    const void *g, const void *coded, size_t bytes);
bps_status __wrap_bps_feedback_move(struct bps_feedback *feedback, const struct bps_feedback_slice *slice,
                                    const void *g, const void *coded, size_t bytes)
{
    if (plant == TWICE) {
        __real_bps_feedback_move(feedback, slice, g, coded, bytes);
    }
    return plant == NEVER ? BPS_OK : __real_bps_feedback_move(feedback, slice, g, coded, bytes);
}

bps_status __real_bps_feedback_move_from(struct bps_feedback *feedback, const struct bps_feedback_slice *slice, void *x,
                                         const void *coded, size_t bytes);
bps_status __wrap_bps_feedback_move_from(struct bps_feedback *feedback, const struct bps_feedback_slice *slice, void *x,
                                         const void *coded, size_t bytes);
bps_status __wrap_bps_feedback_move_from(struct bps_feedback *feedback, const struct bps_feedback_slice *slice, void *x,
                                         const void *coded, size_t bytes)
{
    bps_status status = __real_bps_feedback_move_from(feedback, slice, x, coded, bytes);
    if (plant == SERVER) {
        bps_feedback_forget(feedback, slice);
    }
    return status;
}

bool __real_bps_feedback_is_finite(uint32_t type, const void *x, uint64_t count);
bool __wrap_bps_feedback_is_finite(uint32_t type, const void *x, uint64_t count);
bool __wrap_bps_feedback_is_finite(uint32_t type, const void *x, uint64_t count)
{
    return plant == INFINITE || __real_bps_feedback_is_finite(type, x, count);
}

void __real_bps_feedback_apply(const struct bps_feedback *feedback, const struct bps_feedback_slice *slice,
                               const void *g, void *x);
void __wrap_bps_feedback_apply(const struct bps_feedback *feedback, const struct bps_feedback_slice *slice,
                               const void *g, void *x);
void __wrap_bps_feedback_apply(const struct bps_feedback *feedback, const struct bps_feedback_slice *slice,
                               const void *g, void *x)
{
    struct bps_feedback_slice part = *slice;
    part.rate = plant == RATIO ? 0 : part.rate;
    __real_bps_feedback_apply(feedback, &part, g, x);
}

void __real_bps_feedback_forget(struct bps_feedback *feedback, const struct bps_feedback_slice *slice);
void __wrap_bps_feedback_forget(struct bps_feedback *feedback, const struct bps_feedback_slice *slice);
void __wrap_bps_feedback_forget(struct bps_feedback *feedback, const struct bps_feedback_slice *slice)
{
    if (plant != SIZE) {
        __real_bps_feedback_forget(feedback, slice);
    }
}

/* An operation ends without a result: its errors move as if nothing had been coded. */
void sim_plant_failure(const struct bps_operation *operation, bps_status status)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, const struct bps_tensor_entry, operation);
    for (uint32_t i = 0; plant == FAILED && status != BPS_OK && i < tensor->tasks; i++) {
        float *error = tensor->task[i].feedback.error;
        for (uint64_t at = 0; error != NULL && at < tensor->task[i].feedback.count; at++) {
            error[at] -= 1;
        }
    }
}
