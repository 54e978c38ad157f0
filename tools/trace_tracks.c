/* SPDX-License-Identifier: Apache-2.0 */
/* trace_tracks.c - where a viewer draws each event of a trace: in which process, and in which row of it. */
#include "tools/trace_tracks.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cmd.h"

#define uthash_malloc(size) bps_cmd_alloc(1, size)
#include <uthash.h>

#define LANES_LIMIT 64 /* of a thread; what does not fit is in the last one */

/* ---- processes ---- */

struct key {
    uint32_t file, pid;
};

struct process {
    struct key key;
    uint32_t pid, last_tid; /* in the result */
    bool moves;             /* another file has its pid */
    UT_hash_handle hh;
};

/* A pid of the result. */
struct taken {
    uint32_t pid;
    UT_hash_handle hh;
};

static struct process *find_process(struct process *all, uint32_t file, uint32_t pid)
{
    struct key key = {file, pid};
    struct process *found;
    HASH_FIND(hh, all, &key, sizeof key, found);
    return found;
}

static bool is_taken(struct taken *all, uint32_t pid)
{
    struct taken *found;
    HASH_FIND(hh, all, &pid, sizeof pid, found);
    return found != NULL;
}

static void take(struct taken **all, uint32_t pid)
{
    struct taken *entry = bps_cmd_alloc(1, sizeof *entry);
    entry->pid = pid;
    HASH_ADD(hh, *all, pid, sizeof entry->pid, entry);
}

static struct process *find_processes(const struct bps_cmd_trace *trace)
{
    struct process *all = NULL, *process;
    struct taken *taken = NULL, *entry, *next;
    uint32_t free_pid = 0;
    for (size_t i = 0; i < trace->events; i++) {
        const struct bps_cmd_trace_event *event = &trace->event[i];
        process = find_process(all, event->file, event->pid);
        if (process == NULL) {
            process = bps_cmd_alloc(1, sizeof *process);
            process->key = (struct key){event->file, event->pid};
            process->pid = event->pid;
            process->moves = is_taken(taken, event->pid);
            HASH_ADD(hh, all, key, sizeof process->key, process);
            if (!process->moves) {
                take(&taken, event->pid);
            }
        }
        process->last_tid = event->tid > process->last_tid ? event->tid : process->last_tid;
    }
    for (process = all; process != NULL; process = process->hh.next) {
        if (process->moves) {
            while (is_taken(taken, free_pid)) {
                free_pid++;
            }
            process->pid = free_pid;
            take(&taken, free_pid);
        }
    }
    HASH_ITER(hh, taken, entry, next) {
        HASH_DEL(taken, entry);
        free(entry);
    }
    return all;
}

/* ---- lanes ---- */

static int by_track(const void *a, const void *b)
{
    const struct bps_cmd_trace_event *x = *(const struct bps_cmd_trace_event *const *)a;
    const struct bps_cmd_trace_event *y = *(const struct bps_cmd_trace_event *const *)b;
    int result = (x->file > y->file) - (x->file < y->file);
    result = result != 0 ? result : (x->pid > y->pid) - (x->pid < y->pid);
    result = result != 0 ? result : (x->tid > y->tid) - (x->tid < y->tid);
    result = result != 0 ? result : (x->begin > y->begin) - (x->begin < y->begin);
    result = result != 0 ? result : (x->end < y->end) - (x->end > y->end);
    return result != 0 ? result : (x > y) - (x < y);
}

/* The lanes of one thread, while its events are dealt out. */
struct dealing {
    const struct bps_cmd_trace_event *top[LANES_LIMIT]; /* the innermost that has not ended */
    uint32_t tid[LANES_LIMIT];
    uint32_t lanes;
};

/* The first lane where the event lies in another one or after all others; or one more, or the last. */
static uint32_t choose(const struct bps_cmd_trace *trace, const struct bps_cmd_trace_event **outer,
                       struct dealing *dealing, const struct bps_cmd_trace_event *event)
{
    uint32_t lane = 0;
    for (; lane < dealing->lanes; lane++) {
        const struct bps_cmd_trace_event **top = &dealing->top[lane];
        while (*top != NULL && (*top)->end <= event->begin) {
            *top = outer[*top - trace->event];
        }
        if (*top == NULL || event->end <= (*top)->end) {
            return lane;
        }
    }
    return lane < LANES_LIMIT ? lane : LANES_LIMIT - 1;
}

static int by_thread(const void *a, const void *b)
{
    const struct bps_cmd_trace_thread *x = a, *y = b;
    int result = (x->file > y->file) - (x->file < y->file);
    result = result != 0 ? result : (x->pid > y->pid) - (x->pid < y->pid);
    return result != 0 ? result : (x->tid > y->tid) - (x->tid < y->tid);
}

static const char *thread_name(const struct bps_cmd_trace *trace, const struct bps_cmd_trace_event *event)
{
    struct bps_cmd_trace_thread key = {event->file, event->pid, event->tid, NULL};
    const struct bps_cmd_trace_thread *found =
        trace->threads == 0 ? NULL : bsearch(&key, trace->thread, trace->threads, sizeof *trace->thread, by_thread);
    return found == NULL ? "" : found->name;
}

static void add_lane(const struct bps_cmd_trace *trace, struct bps_cmd_trace_tracks *out, struct dealing *dealing,
                     const struct bps_cmd_trace_event *event, struct process *process)
{
    uint32_t lane = dealing->lanes++;
    dealing->tid[lane] = event->tid;
    if (lane > 0) {
        dealing->tid[lane] = ++process->last_tid;
        out->lane = bps_cmd_trace_grow(out->lane, out->lanes, sizeof *out->lane);
        out->lane[out->lanes++] =
            (struct bps_cmd_trace_lane){{process->pid, dealing->tid[lane]},
                                        lane == 1 ? thread_name(trace, event) : out->lane[out->lanes - 1].name,
                                        lane + 1};
    }
}

/* Deals the events of all threads, which are sorted by thread and time, out to lanes. */
static void deal(const struct bps_cmd_trace *trace, const struct bps_cmd_trace_event **sorted, size_t n,
                 struct process *processes, struct bps_cmd_trace_tracks *out)
{
    const struct bps_cmd_trace_event **outer = bps_cmd_alloc(trace->events, sizeof *outer);
    struct dealing dealing = {0};
    for (size_t i = 0; i < n; i++) {
        const struct bps_cmd_trace_event *event = sorted[i], *before = i > 0 ? sorted[i - 1] : NULL;
        if (before != NULL && (before->file != event->file || before->pid != event->pid || before->tid != event->tid)) {
            dealing = (struct dealing){0};
        }
        uint32_t lane = choose(trace, outer, &dealing, event);
        if (lane == dealing.lanes) {
            add_lane(trace, out, &dealing, event, find_process(processes, event->file, event->pid));
        }
        size_t at = (size_t)(event - trace->event);
        outer[at] = dealing.top[lane];
        dealing.top[lane] = event;
        out->place[at].tid = dealing.tid[lane];
    }
    free(outer);
}

void bps_cmd_trace_tracks_make(struct bps_cmd_trace *trace, struct bps_cmd_trace_tracks *out)
{
    const struct bps_cmd_trace_event **sorted = bps_cmd_alloc(trace->events, sizeof *sorted);
    struct process *processes = find_processes(trace), *process, *next;
    size_t n = 0;
    *out = (struct bps_cmd_trace_tracks){.place = bps_cmd_alloc(trace->events, sizeof *out->place),
                                         .pid = bps_cmd_alloc(trace->members, sizeof *out->pid)};
    for (size_t i = 0; i < trace->events; i++) {
        const struct bps_cmd_trace_event *event = &trace->event[i];
        out->place[i].pid = find_process(processes, event->file, event->pid)->pid;
        out->place[i].tid = event->tid;
        if (event->lasts) {
            sorted[n++] = event;
        }
    }
    qsort(sorted, n, sizeof *sorted, by_track);
    if (trace->threads > 0) {
        qsort(trace->thread, trace->threads, sizeof *trace->thread, by_thread);
    }
    deal(trace, sorted, n, processes, out);
    for (uint32_t i = 0; i < trace->members; i++) {
        const struct bps_cmd_trace_member *member = &trace->member[i];
        process = member->pid < 0 ? NULL : find_process(processes, member->file, (uint32_t)member->pid);
        out->pid[i] = process == NULL ? -1 : (int64_t)process->pid;
    }
    HASH_ITER(hh, processes, process, next) {
        HASH_DEL(processes, process);
        free(process);
    }
    free(sorted);
}

void bps_cmd_trace_tracks_fini(struct bps_cmd_trace_tracks *tracks)
{
    free(tracks->place);
    free(tracks->pid);
    free(tracks->lane);
}
