/* SPDX-License-Identifier: Apache-2.0 */
/* timers.c - a heap of timers; each knows its place, so that it can be cancelled without a search. */
#include "base/timers.h"

#include <stdlib.h>

#include "base/clock.h"

#define FIRED SIZE_MAX /* place of a one-shot timer in its callback */

struct bps_timer {
    uint64_t deadline, period;
    bps_call_fn fn;
    void *arg;
    size_t place; /* in the heap */
};

static void heap_set(struct bps_timers *timers, size_t place, struct bps_timer *timer)
{
    timers->heap[place] = timer;
    timer->place = place;
}

static void heap_up(struct bps_timers *timers, size_t place, struct bps_timer *timer)
{
    while (place > 0 && timers->heap[(place - 1) / 2]->deadline > timer->deadline) {
        heap_set(timers, place, timers->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    heap_set(timers, place, timer);
}

static void heap_down(struct bps_timers *timers, size_t place, struct bps_timer *timer)
{
    for (;;) {
        size_t child = 2 * place + 1;
        if (child + 1 < timers->count && timers->heap[child + 1]->deadline < timers->heap[child]->deadline) {
            child++;
        }
        if (child >= timers->count || timers->heap[child]->deadline >= timer->deadline) {
            break;
        }
        heap_set(timers, place, timers->heap[child]);
        place = child;
    }
    heap_set(timers, place, timer);
}

static void heap_remove(struct bps_timers *timers, struct bps_timer *timer)
{
    size_t place = timer->place;
    struct bps_timer *last = timers->heap[--timers->count];
    timer->place = FIRED;
    if (last == timer) {
        return;
    }
    if (place > 0 && timers->heap[(place - 1) / 2]->deadline > last->deadline) {
        heap_up(timers, place, last);
    } else {
        heap_down(timers, place, last);
    }
}

static bool heap_reserve(struct bps_timers *timers)
{
    if (timers->count < timers->room) {
        return true;
    }
    size_t room = timers->room == 0 ? 16 : 2 * timers->room;
    struct bps_timer **heap = realloc(timers->heap, room * sizeof(struct bps_timer *));
    if (heap == NULL) {
        return false;
    }
    timers->heap = heap;
    timers->room = room;
    return true;
}

static uint64_t later(uint64_t now, uint64_t delay)
{
    return delay < UINT64_MAX - now ? now + delay : UINT64_MAX;
}

struct bps_timer *bps_timers_add(struct bps_timers *timers, uint64_t delay_ns, uint64_t period_ns, bps_call_fn fn,
                                 void *arg)
{
    struct bps_timer *timer = malloc(sizeof *timer);
    if (timer == NULL || !heap_reserve(timers)) {
        free(timer);
        return NULL;
    }
    *timer = (struct bps_timer){later(bps_now(), delay_ns), period_ns, fn, arg, FIRED};
    heap_up(timers, timers->count++, timer);
    return timer;
}

void bps_timers_cancel(struct bps_timers *timers, struct bps_timer *timer)
{
    /* A one-shot timer that is cancelled in its own callback is freed when that returns. */
    if (timer != NULL && timer->place != FIRED) {
        heap_remove(timers, timer);
        free(timer);
    }
}

uint64_t bps_timers_next(const struct bps_timers *timers)
{
    return timers->count > 0 ? timers->heap[0]->deadline : UINT64_MAX;
}

void bps_timers_fire(struct bps_timers *timers, uint64_t now)
{
    while (timers->count > 0 && timers->heap[0]->deadline <= now) {
        struct bps_timer *timer = timers->heap[0];
        timers->late = now - timer->deadline;
        if (timer->period == 0) {
            heap_remove(timers, timer);
            timer->fn(timer->arg);
            free(timer);
            continue;
        }
        /* Turns that were missed are not made up for. The callback may cancel and thereby free the timer. */
        uint64_t next = later(timer->deadline, timer->period);
        timer->deadline = next > now ? next : later(now, timer->period);
        heap_down(timers, 0, timer);
        timer->fn(timer->arg);
    }
}

void bps_timers_fini(struct bps_timers *timers)
{
    for (size_t i = 0; i < timers->count; i++) {
        free(timers->heap[i]);
    }
    free(timers->heap);
    *timers = (struct bps_timers){0};
}
