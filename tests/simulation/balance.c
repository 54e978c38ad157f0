/* SPDX-License-Identifier: Apache-2.0 */
/*
 * balance.c - error feedback loses nothing and applies nothing twice: what was pushed is in the results, or in errors.
 *
 * Of each element of a tensor, over the rounds that the network has summed, if its slice of the result is finite:
 *
 *     pushed, by all workers = results, times what average divides by
 *                              + errors, as the workers save them: with that of the server, times the same
 *
 * A round counts even if a stage behind the network fails for all: who has the result, and who has not, nobody knows.
 * An error is in units of its learning rate; so each round counts times its own.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coded/coded.h"
#include "simulation.h"

#define EPSILON 0.01 /* of what a mean rounds; what is lost is more */

struct book {
    struct sim_round round;
    double pushed[SIM_ELEMENTS];
    float result[SIM_ELEMENTS];
    bool coded[SIM_ELEMENTS]; /* it came in this form */
    bool came[SIM_ELEMENTS];
    bool ended; /* well, on a worker */
};

/* What all workers have saved: in the part of one of them is what the server has. */
struct errors {
    uint32_t partition, slice; /* elements of each; 0: nothing is coded */
    double kept[SIM_ELEMENTS];
};

static struct book books[SIM_OPERATIONS][SIM_ROUNDS];
static struct errors errors[SIM_OPERATIONS];
static bool differs; /* not all workers have got the same */

void sim_balance_reset(void)
{
    memset(books, 0, sizeof books);
    memset(errors, 0, sizeof errors);
    differs = false;
}

void sim_balance_pushed(uint32_t number, uint32_t round, const struct sim_round *what, const float *x)
{
    struct book *book = &books[number][round];
    book->round = *what;
    for (uint32_t i = 0; i < what->count; i++) {
        book->pushed[i] += (double)x[i];
    }
}

void sim_balance_ended(uint32_t number, uint32_t round)
{
    books[number][round].ended = true;
}

/* The tensor's number in the job; false: it has no name. */
static bool number_of(const struct bps_tensor_entry *tensor, uint32_t *number)
{
    return !tensor->named.unnamed && sscanf(tensor->named.name, "t%u", number) == 1;
}

static void note_coded(const struct bps_coding *coding, const struct bps_coded_slice *slice, struct book *book,
                       size_t first, uint32_t count)
{
    float x[SIM_ELEMENTS];
    if (coding->ops->decode(coding->compressor->self, BPS_FLOAT32, slice->result, slice->result_bytes, x, count) ==
        BPS_OK) {
        differs |= book->coded[first] && memcmp(&book->result[first], x, count * sizeof *x) != 0;
        memcpy(&book->result[first], x, count * sizeof *x);
        memset(&book->coded[first], true, count);
    }
}

/* The slice of a result as it has come, before anything is made of it. */
static void note(const struct bps_task *task, uint32_t index)
{
    const struct bps_tensor_entry *tensor = task->tensor;
    const struct bps_push *push = bps_push_of(task);
    uint32_t count = bps_partition_bytes(task->bytes, push->slice, index) / sizeof(float), number;
    size_t first = (task->partition * tensor->worker->partition + (size_t)index * push->slice) / sizeof(float);
    if (number_of(tensor, &number) && first + count <= SIM_ELEMENTS) {
        struct book *book = &books[number][sim_round_now(tensor->worker)];
        memset(&book->came[first], true, count);
        if (push->payload == &bps_payload_coded) {
            note_coded(tensor->named.coding, &bps_coded_push_of(task)->slice[index], book, first, count);
        }
    }
}

void __real_bps_remote_placed(struct bps_task *task, uint32_t index);
void __wrap_bps_remote_placed(struct bps_task *task, uint32_t index);
void __wrap_bps_remote_placed(struct bps_task *task, uint32_t index)
{
    note(task, index);
    __real_bps_remote_placed(task, index);
    sim_result_came();
}

/* ---- errors ---- */

/* The bytes are those of state.c. */
void sim_balance_saved(const struct bps_tensor_entry *tensor, const void *state, size_t bytes)
{
    char text[BPS_CODING_TEXT];
    struct bps_reader r;
    uint32_t number;
    if (bytes == 0 || tensor->named.coding == NULL || !number_of(tensor, &number)) {
        return;
    }
    struct errors *e = &errors[number];
    bps_reader_init(&r, state, bytes);
    r.at += 2 * sizeof(uint32_t); /* magic, version */
    bps_get_string(&r, text, sizeof text);
    r.at += sizeof(uint32_t) + sizeof(uint64_t); /* type, count */
    e->partition = (uint32_t)bps_get_u64(&r);
    e->slice = bps_coding_slice(tensor->named.coding, BPS_FLOAT32) / (uint32_t)sizeof(float);
    while (r.at < r.end) {
        size_t first = (size_t)bps_get_u32(&r) * e->partition;
        uint64_t count = bps_get_u64(&r);
        uint32_t slices = bps_get_u32(&r);
        r.at += sizeof(uint32_t) + slices * sizeof(double); /* which arrays, rates */
        for (uint64_t i = 0; i < count; i++, r.at += sizeof(float)) {
            float error;
            memcpy(&error, r.at, sizeof error);
            e->kept[first + i] -= (double)error;
        }
    }
}

/* ---- the balance ---- */

/* The first of the rounds with the size of the last one: what was before it is forgotten. */
static uint32_t begin_of(const struct book *book)
{
    uint32_t round = SIM_ROUNDS - 1;
    while (round > 0 && book[round - 1].round.count == book[round].round.count) {
        round--;
    }
    return round;
}

static bool is_summed(const struct book *book)
{
    bool summed = true;
    for (uint32_t i = 0; i < book->round.count; i++) {
        summed &= book->came[i];
    }
    return summed || book->ended;
}

/* The slice was coded, and is finite: its errors have moved. */
static bool has_moved(const struct book *book, uint32_t first, uint32_t end)
{
    bool moved = is_summed(book) && first < end;
    for (uint32_t i = first; i < end; i++) {
        moved &= book->coded[i] && isfinite(book->result[i]);
    }
    return moved;
}

static bool is_balanced(uint32_t number, uint32_t first, uint32_t end)
{
    const struct book *book = books[number];
    const struct errors *e = &errors[number];
    double left[SIM_ELEMENTS] = {0}, rate = 1;
    for (uint32_t round = begin_of(book); round < SIM_ROUNDS; round++) {
        const struct sim_round *r = &book[round].round;
        if (has_moved(&book[round], first, end)) {
            rate = r->rate > 0 ? r->rate : 1;
            for (uint32_t i = first; i < end; i++) {
                left[i] += rate * (r->scale * book[round].pushed[i] - r->divisor * (double)book[round].result[i]);
            }
        }
    }
    for (uint32_t i = first; i < end; i++) {
        double kept = rate * e->kept[i];
        if (!(fabs(left[i] - kept) <= EPSILON)) { /* NaN is none */
            printf("  operation %u, element %u: %g is not in the results, but %g in errors\n", number, i, left[i],
                   kept);
            return false;
        }
    }
    return true;
}

bool sim_balance_holds(uint32_t number)
{
    const struct errors *e = &errors[number];
    uint32_t count = books[number][SIM_ROUNDS - 1].round.count, end;
    bool good = !differs;
    for (uint32_t first = 0; good && e->partition > 0 && first < count; first = end) {
        uint32_t partition = (first / e->partition + 1) * e->partition;
        end = first + e->slice < partition ? first + e->slice : partition;
        end = end < count ? end : count;
        good = is_balanced(number, first, end);
    }
    return good;
}
