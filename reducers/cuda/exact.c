/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exact.c - steps of a group that NCCL would round on the way, or has no type for: it only carries their
 * elements, and kernels of our own combine them, with one rounding.
 *
 * Each place combines a share of a tensor, or the root of a reduction all of it: first everybody sends the
 * others theirs, then each combines its own, and then sends the result to all. What comes from the others
 * needs room on the device: several steps make one pass if there is room for them, and a long one is cut.
 */
#include "instance.h"

#define ROOM  ((size_t)16 << 20)
#define ALIGN 16u /* elements, and bytes: what a kernel takes at once */

/* A part of a step. */
struct span {
    const struct bps_group_step *step;
    uint64_t first, count; /* elements */
    uint8_t *room;
};

struct pass {
    uint32_t spans;
    size_t used; /* of the room */
    struct span span[BPS_STEPS_LIMIT];
};

/* What a place combines of a span. */
struct share {
    uint64_t first, count; /* elements */
};

/* ---- who combines what ---- */

static uint64_t round_up(uint64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* The elements of the largest share. */
static uint64_t largest_share(const struct bps_group *group, const struct bps_group_step *step, uint64_t count)
{
    return step->kind == BPS_STEP_REDUCE ? count : round_up((count + group->size - 1) / group->size);
}

static struct share share_of(const struct bps_group *group, const struct span *span, uint32_t place)
{
    uint64_t each = largest_share(group, span->step, span->count), first = place * each;
    if (span->step->kind == BPS_STEP_REDUCE) {
        first = place == span->step->root ? 0 : span->count;
    }
    first = first < span->count ? first : span->count;
    uint64_t count = span->count - first < each ? span->count - first : each;
    return (struct share){span->first + first, count};
}

/* The room for one other place's elements, with space to align them as the result is. */
static size_t slot_bytes(const struct bps_group *group, const struct span *span)
{
    const struct bps_group_step *step = span->step;
    uint64_t largest = largest_share(group, step, span->count);
    return round_up(largest * cuda_element_bytes(step->dtype)) + ALIGN;
}

static uint8_t *at(const struct span *span, const void *base, uint64_t element)
{
    return (uint8_t *)(uintptr_t)base + element * cuda_element_bytes(span->step->dtype);
}

/* Where the elements of another place are put for this one's share. */
static uint8_t *slot_of(const struct bps_group *group, const struct span *span, struct share own, uint32_t place)
{
    uint32_t index = place < group->place ? place : place - 1;
    uintptr_t target = (uintptr_t)at(span, span->step->to, own.first);
    return span->room + index * slot_bytes(group, span) + target % ALIGN;
}

/* ---- a pass ---- */

static nccl_result send(const struct bps_group *group, const struct span *span, const void *base, struct share share,
                        uint32_t to)
{
    size_t bytes = share.count * cuda_element_bytes(span->step->dtype);
    return bytes == 0 ? NCCL_OK
                      : group->cuda->nccl.send(at(span, base, share.first), bytes, NCCL_UINT8, (int)to,
                                               group->communicator, group->stream);
}

static nccl_result receive(const struct bps_group *group, const struct span *span, void *memory, struct share share,
                           uint32_t from)
{
    size_t bytes = share.count * cuda_element_bytes(span->step->dtype);
    return bytes == 0
               ? NCCL_OK
               : group->cuda->nccl.receive(memory, bytes, NCCL_UINT8, (int)from, group->communicator, group->stream);
}

/* Everybody's elements go to those who combine them. */
static nccl_result gather(const struct bps_group *group, const struct span *span)
{
    struct share own = share_of(group, span, group->place);
    nccl_result result = NCCL_OK;
    for (uint32_t place = 0; place < group->size && !nccl_is_error(result); place++) {
        if (place == group->place) {
            continue;
        }
        result = send(group, span, span->step->from, share_of(group, span, place), place);
        if (!nccl_is_error(result)) {
            result = receive(group, span, slot_of(group, span, own, place), own, place);
        }
    }
    return result;
}

/* The results go to all. */
static nccl_result spread(const struct bps_group *group, const struct span *span)
{
    struct share own = share_of(group, span, group->place);
    nccl_result result = NCCL_OK;
    bool is_wanted = span->step->kind != BPS_STEP_REDUCE;
    for (uint32_t place = 0; is_wanted && place < group->size && !nccl_is_error(result); place++) {
        if (place == group->place) {
            continue;
        }
        struct share other = share_of(group, span, place);
        result = send(group, span, span->step->to, own, place);
        if (!nccl_is_error(result)) {
            result = receive(group, span, at(span, span->step->to, other.first), other, place);
        }
    }
    return result;
}

/* A power of two that rounds nothing, so that the sum of an average is not more than its type holds. */
static double share_of_average(uint32_t size)
{
    double share = 1;
    while (share * size > 1) {
        share /= 2;
    }
    return share;
}

static cuda_result combine(const struct bps_group *group, const struct span *span)
{
    const struct bps_group_step *step = span->step;
    struct share own = share_of(group, span, group->place);
    bool is_average = step->op == BPS_AVERAGE;
    double share = is_average ? share_of_average(group->size) : 1, shares[BPS_REDUCTION_SOURCES];
    struct bps_reduction reduction = {
        .op = is_average ? BPS_SUM : step->op,
        .dtype = step->dtype,
        .n = group->size,
        .dst = at(span, step->to, own.first),
        .count = own.count,
        .scales = shares,
        .scale = 1 / share,
        .divisor = is_average ? group->size : 1,
    };
    for (uint32_t place = 0; place < group->size; place++) {
        reduction.src[place] =
            place == group->place ? at(span, step->from, own.first) : slot_of(group, span, own, place);
        shares[place] = share;
    }
    return cuda_launch(group->device, group->stream, &reduction);
}

static bool carry(struct bps_group *group, const struct pass *pass,
                  nccl_result (*way)(const struct bps_group *, const struct span *))
{
    const struct nccl *nccl = &group->cuda->nccl;
    nccl_result result = nccl->begin();
    for (uint32_t i = 0; i < pass->spans && !nccl_is_error(result); i++) {
        result = way(group, &pass->span[i]);
    }
    nccl_result ended = nccl->end();
    return cuda_communicator_settle(group, nccl_is_error(result) ? result : ended);
}

static bool perform(struct bps_group *group, struct pass *pass)
{
    cuda_result result = CUDA_OK;
    if (!carry(group, pass, gather)) {
        return false;
    }
    for (uint32_t i = 0; i < pass->spans && result == CUDA_OK; i++) {
        result = combine(group, &pass->span[i]);
    }
    if (result != CUDA_OK) {
        cuda_communicator_fail(group, "kernel", result);
        return false;
    }
    bool fine = carry(group, pass, spread);
    pass->spans = 0;
    pass->used = 0;
    return fine;
}

/* ---- steps ---- */

/* The sum of an average of these would wrap. */
static bool is_integer(uint32_t dtype)
{
    return dtype == BPS_UINT8 || dtype == BPS_INT8 || dtype == BPS_INT16 || dtype == BPS_INT32 || dtype == BPS_INT64;
}

bool cuda_exact_takes(struct cuda *cuda, int32_t device, uint32_t size, uint32_t op, uint32_t dtype)
{
    return size > 1 && size <= BPS_REDUCTION_SOURCES && (op != BPS_AVERAGE || !is_integer(dtype)) &&
           cuda_can_reduce(cuda, device, op == BPS_AVERAGE ? BPS_SUM : op, dtype);
}

/* How many elements of a step find room, when nothing else is there: a multiple of what all shares have. */
static uint64_t longest_span(const struct bps_group *group, const struct bps_group_step *step)
{
    uint64_t bytes = ROOM / (group->size - 1) - 2 * ALIGN;
    uint64_t each = bytes / cuda_element_bytes(step->dtype) / ALIGN * ALIGN;
    return step->kind == BPS_STEP_REDUCE ? each : each * group->size;
}

static bool add(struct bps_group *group, struct pass *pass, struct span span)
{
    size_t bytes = (group->size - 1) * slot_bytes(group, &span);
    if ((pass->spans == BPS_STEPS_LIMIT || bytes > ROOM - pass->used) && !perform(group, pass)) {
        return false;
    }
    span.room = group->room + pass->used;
    pass->used += bytes;
    pass->span[pass->spans++] = span;
    return true;
}

bool cuda_exact_give(struct bps_group *group, const struct bps_group_step *steps, uint32_t n)
{
    struct pass pass = {.spans = 0};
    bool fine = true;
    for (uint32_t i = 0; i < n; i++) {
        const struct bps_group_step *step = &steps[i];
        if (nccl_combines(group->size, step->kind, step->op, step->dtype)) {
            continue;
        }
        uint64_t longest = longest_span(group, step);
        for (uint64_t first = 0; first < step->count && fine; first += longest) {
            uint64_t left = step->count - first;
            fine = add(group, &pass, (struct span){step, first, left < longest ? left : longest, NULL});
        }
    }
    return fine && (pass.spans == 0 || perform(group, &pass));
}

/* ---- room ---- */

cuda_result cuda_exact_open(struct bps_group *group)
{
    unsigned long long room = 0;
    if (cuda_kernels_get(group->device) == NULL) {
        return CUDA_OK; /* it will not be needed */
    }
    cuda_result result = group->cuda->driver.memory_alloc(&room, ROOM);
    group->room = (uint8_t *)(uintptr_t)room;
    return result;
}

void cuda_exact_close(struct bps_group *group)
{
    if (group->room != NULL) {
        group->cuda->driver.memory_free((uintptr_t)group->room);
    }
}
