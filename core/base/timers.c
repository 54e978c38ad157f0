/* SPDX-License-Identifier: Apache-2.0 */
/* timers.c - the timers of a loop. One that is called once is in the heap no more while its callback runs. */
#include "base/timers.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"

struct bps_timer {
    uint64_t deadline, period;
    bps_call_fn fn;
    void *arg;
    size_t place; /* in the heap */
};

static bool enqueue_timer(struct bps_timers *timers, struct bps_timer *timer)
{
    return bps_heap_push(&timers->heap, 0, timer->deadline, timer, &timer->place);
}

static uint64_t later(uint64_t now, uint64_t delay)
{
    return delay < UINT64_MAX - now ? now + delay : UINT64_MAX;
}

struct bps_timer *bps_timers_add(struct bps_timers *timers, uint64_t delay_ns, uint64_t period_ns, bps_call_fn fn,
                                 void *arg)
{
    bps_assert(fn != NULL);
    struct bps_timer *timer = malloc(sizeof *timer);
    if (timer == NULL) {
        return NULL;
    }
    *timer = (struct bps_timer){later(bps_now(), delay_ns), period_ns, fn, arg, 0};
    if (!enqueue_timer(timers, timer)) {
        free(timer);
        return NULL;
    }
    return timer;
}

void bps_timers_cancel(struct bps_timers *timers, struct bps_timer *timer)
{
    /* A one-shot timer that is cancelled in its own callback is freed when that returns. */
    if (timer != NULL && bps_heap_remove(&timers->heap, &timer->place)) {
        free(timer);
    }
}

uint64_t bps_timers_next(const struct bps_timers *timers)
{
    const struct bps_timer *timer = bps_heap_top(&timers->heap);
    return timer != NULL ? timer->deadline : UINT64_MAX;
}

void bps_timers_fire(struct bps_timers *timers, uint64_t now)
{
    struct bps_timer *timer;
    while ((timer = bps_heap_top(&timers->heap)) != NULL && timer->deadline <= now) {
        bps_heap_pop(&timers->heap);
        timers->late = now - timer->deadline;
        bps_assert(timer->fn != NULL);
        if (timer->period == 0) {
            timer->fn(timer->arg);
            free(timer);
            continue;
        }
        /* Turns that were missed are not made up for. The callback may cancel and thereby free the timer. */
        uint64_t next = later(timer->deadline, timer->period);
        timer->deadline = next > now ? next : later(now, timer->period);
        enqueue_timer(timers, timer);
        timer->fn(timer->arg);
    }
}

void bps_timers_fini(struct bps_timers *timers)
{
    struct bps_timer *timer;
    while ((timer = bps_heap_pop(&timers->heap)) != NULL) {
        free(timer);
    }
    bps_heap_fini(&timers->heap);
}
