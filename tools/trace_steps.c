/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_steps.c - where the time of each step of each worker went. A step lasts from its first operation to that of the
 * next one. What the program's threads wait in it is cut at the moments of the operation that they wait for; of several
 * that wait at once the first one counts. The rest is computation.
 */
#include "tools/trace_steps.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cmd.h"

/* A worker's events and rows while its steps are divided. */
struct worker {
    const struct bps_cmd_trace_index *index;
    struct bps_cmd_trace_range operations; /* of this rank, by tensor and round */
    struct bps_cmd_trace_way *way;         /* of each operation, once it is needed */
    bool *found;
    struct bps_cmd_trace_row *row;
    size_t rows;
    struct bps_cmd_trace_neighbours neighbours;
    struct bps_cmd_trace_steps *steps; /* what is counted */
};

/* ---- the rows ---- */

static int by_step(const void *a, const void *b)
{
    const struct bps_cmd_trace_event *x = *(const struct bps_cmd_trace_event *const *)a;
    const struct bps_cmd_trace_event *y = *(const struct bps_cmd_trace_event *const *)b;
    int result = (x->rank > y->rank) - (x->rank < y->rank);
    result = result != 0 ? result : (x->step > y->step) - (x->step < y->step);
    return result != 0 ? result : (x->begin > y->begin) - (x->begin < y->begin);
}

/* One row of each step of each worker, from its first operation to the end of all of its operations. */
static void make_rows(struct bps_cmd_trace_range operations, struct bps_cmd_trace_steps *out)
{
    const struct bps_cmd_trace_event **sorted = bps_cmd_alloc(operations.n, sizeof *sorted);
    for (size_t i = 0; i < operations.n; i++) {
        sorted[i] = operations.event[i];
    }
    qsort(sorted, operations.n, sizeof *sorted, by_step);
    for (size_t i = 0; i < operations.n; i++) {
        const struct bps_cmd_trace_event *event = sorted[i];
        struct bps_cmd_trace_row *row = out->rows == 0 ? NULL : &out->row[out->rows - 1];
        if (row == NULL || row->rank != event->rank || row->step != event->step) {
            out->row = bps_cmd_trace_grow(out->row, out->rows, sizeof *out->row);
            row = &out->row[out->rows++];
            *row = (struct bps_cmd_trace_row){event->rank, event->step, event->begin, event->end, {0}};
        }
        row->end = event->end > row->end ? event->end : row->end;
    }
    free(sorted);
}

/* A step ends where the next one of its worker begins, and none begins before an earlier one. */
static void join_rows(struct worker *worker)
{
    for (size_t i = 0; i < worker->rows; i++) {
        struct bps_cmd_trace_row *row = &worker->row[i];
        if (i > 0 && row->begin < row[-1].begin) {
            row->begin = row[-1].begin;
        }
        if (i > 0) {
            row[-1].end = row->begin;
        }
    }
    struct bps_cmd_trace_row *last = &worker->row[worker->rows - 1];
    last->end = last->end > last->begin ? last->end : last->begin;
}

/* ---- what is waited for ---- */

static void find_neighbours(const struct bps_cmd_trace *trace, uint32_t rank, struct bps_cmd_trace_neighbours *out)
{
    const char *host = NULL;
    for (uint32_t i = 0; i < trace->members; i++) {
        if (trace->member[i].worker && trace->member[i].rank == rank) {
            host = trace->member[i].host;
        }
    }
    for (uint32_t i = 0; i < trace->members && host != NULL && out->n < BPS_CMD_TRACE_NEIGHBOURS; i++) {
        const struct bps_cmd_trace_member *member = &trace->member[i];
        if (member->worker && member->rank != rank && strcmp(member->host, host) == 0) {
            out->rank[out->n++] = member->rank;
        }
    }
}

static const struct bps_cmd_trace_way *way_of(struct worker *worker, const struct bps_cmd_trace_event *like)
{
    static const struct bps_cmd_trace_way unknown;
    struct bps_cmd_trace_range range =
        bps_cmd_trace_index_find(worker->index, BPS_CMD_TRACE_OPERATION, like->rank, like, BPS_CMD_TRACE_OF_ROUND);
    if (range.n == 0) {
        return &unknown;
    }
    size_t i = (size_t)(range.event - worker->operations.event);
    struct bps_cmd_trace_way *way = &worker->way[i];
    if (!worker->found[i]) {
        worker->found[i] = true;
        bps_cmd_trace_way_find(worker->index, range.event[0], &worker->neighbours, way);
        worker->steps->slices += way->slice;
        worker->steps->unserved += way->slice && !way->served;
    }
    return way;
}

/* Divides a wait among the steps that it lies in, of which `*row` is the first that may be. */
static void divide(struct worker *worker, const struct bps_cmd_trace_event *wait, int64_t begin, size_t *row)
{
    const struct bps_cmd_trace_way *way = way_of(worker, wait);
    while (*row < worker->rows && worker->row[*row].end <= begin) {
        ++*row;
    }
    for (size_t i = *row; i < worker->rows && worker->row[i].begin < wait->end; i++) {
        int64_t from = begin > worker->row[i].begin ? begin : worker->row[i].begin;
        int64_t to = wait->end < worker->row[i].end ? wait->end : worker->row[i].end;
        if (from < to) {
            bps_cmd_trace_way_divide(worker->index, way, from, to, worker->row[i].part);
        }
    }
}

static int by_begin(const void *a, const void *b)
{
    const struct bps_cmd_trace_event *x = a, *y = b;
    int result = (x->begin > y->begin) - (x->begin < y->begin);
    return result != 0 ? result : (x->end > y->end) - (x->end < y->end);
}

/* Takes `n` waits, in any order. */
static void divide_all(struct worker *worker, struct bps_cmd_trace_event *wait, size_t n)
{
    size_t row = 0;
    int64_t until = INT64_MIN;
    qsort(wait, n, sizeof *wait, by_begin);
    for (size_t i = 0; i < n; i++) {
        int64_t begin = wait[i].begin > until ? wait[i].begin : until;
        if (begin < wait[i].end) {
            divide(worker, &wait[i], begin, &row);
            until = wait[i].end;
        }
    }
}

static size_t row_of(const struct worker *worker, uint64_t step)
{
    size_t low = 0, high = worker->rows - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (worker->row[middle].step < step) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/*
 * Programs that are called back wait for nothing. Then a step computes until its last operation begins, and waits for
 * that of them which ends last, up to its end.
 */
static size_t imagine_waits(const struct worker *worker, struct bps_cmd_trace_event **out)
{
    struct bps_cmd_trace_event *wait = bps_cmd_alloc(worker->rows, sizeof *wait);
    int64_t *started = bps_cmd_alloc(worker->rows, sizeof *started);
    for (size_t i = 0; i < worker->operations.n; i++) {
        const struct bps_cmd_trace_event *event = worker->operations.event[i];
        size_t row = row_of(worker, event->step);
        if (!wait[row].lasts) {
            started[row] = event->begin;
        }
        if (!wait[row].lasts || event->end > wait[row].end) {
            wait[row] = *event;
        }
        started[row] = started[row] > event->begin ? started[row] : event->begin;
    }
    for (size_t i = 0; i < worker->rows; i++) {
        wait[i].begin = started[i];
        wait[i].end = wait[i].end < worker->row[i].end ? wait[i].end : worker->row[i].end;
    }
    free(started);
    *out = wait;
    return worker->rows;
}

static void divide_worker(struct worker *worker)
{
    struct bps_cmd_trace_event like = {0}, *wait;
    struct bps_cmd_trace_range waits =
        bps_cmd_trace_index_find(worker->index, BPS_CMD_TRACE_WAIT, worker->row[0].rank, &like, BPS_CMD_TRACE_OF_RANK);
    size_t n = waits.n;
    join_rows(worker);
    if (n == 0) {
        n = imagine_waits(worker, &wait);
    } else {
        wait = bps_cmd_alloc(n, sizeof *wait);
        for (size_t i = 0; i < n; i++) {
            wait[i] = *waits.event[i];
        }
    }
    divide_all(worker, wait, n);
    free(wait);
    for (size_t i = 0; i < worker->rows; i++) {
        struct bps_cmd_trace_row *row = &worker->row[i];
        row->part[BPS_CMD_TRACE_COMPUTING] = row->end - row->begin;
        for (int part = BPS_CMD_TRACE_COMPUTING + 1; part < BPS_CMD_TRACE_PARTS; part++) {
            row->part[BPS_CMD_TRACE_COMPUTING] -= row->part[part];
        }
    }
}

void bps_cmd_trace_steps_make(const struct bps_cmd_trace *trace, struct bps_cmd_trace_steps *out)
{
    struct bps_cmd_trace_index index;
    *out = (struct bps_cmd_trace_steps){0};
    bps_cmd_trace_index_make(trace, &index);
    bps_cmd_trace_held_make(&index);
    struct bps_cmd_trace_range all = {index.event, 0};
    while (all.n < index.n && all.event[all.n]->kind == BPS_CMD_TRACE_OPERATION) {
        all.n++;
    }
    make_rows(all, out);
    for (size_t first = 0, next; first < out->rows; first = next) {
        struct bps_cmd_trace_event like = {0};
        struct worker worker = {.index = &index, .row = &out->row[first], .steps = out};
        worker.operations = bps_cmd_trace_index_find(&index, BPS_CMD_TRACE_OPERATION, out->row[first].rank, &like,
                                                     BPS_CMD_TRACE_OF_RANK);
        for (next = first; next < out->rows && out->row[next].rank == out->row[first].rank; next++) {
            worker.rows++;
        }
        worker.way = bps_cmd_alloc(worker.operations.n, sizeof *worker.way);
        worker.found = bps_cmd_alloc(worker.operations.n, sizeof *worker.found);
        find_neighbours(trace, out->row[first].rank, &worker.neighbours);
        divide_worker(&worker);
        free(worker.way);
        free(worker.found);
    }
    bps_cmd_trace_index_fini(&index);
}

void bps_cmd_trace_steps_fini(struct bps_cmd_trace_steps *steps)
{
    free(steps->row);
}
