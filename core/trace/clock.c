/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace/clock.c - comparisons of clocks, of which the best of each few seconds count. Between them the difference of
 * the clocks is interpolated, as clocks drift by up to 50 us per second.
 */
#include "trace/clock.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/clock.h"

#define EACH (4 * BPS_S)
#define KEPT 1024u /* when there are more, every second one goes */

struct comparison {
    uint64_t at, error; /* ns of this host */
    int64_t ahead;      /* of the other clock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct comparison kept[KEPT];
static uint32_t count;

static void thin_out(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i += 2) {
        kept[n++] = kept[i];
    }
    count = n;
}

void bps_trace_clock_compare(uint64_t asked, uint64_t told, uint64_t heard)
{
    const struct comparison c = {asked + (heard - asked) / 2, (heard - asked) / 2,
                                 (int64_t)(told - (asked + (heard - asked) / 2))};
    pthread_mutex_lock(&lock);
    if (count == 0 || c.at - kept[count - 1].at > EACH) {
        if (count == KEPT) {
            thin_out();
        }
        kept[count++] = c;
    } else if (c.error < kept[count - 1].error) {
        kept[count - 1] = c;
    }
    pthread_mutex_unlock(&lock);
}

void bps_trace_clock_forget(void)
{
    pthread_mutex_lock(&lock);
    count = 0;
    pthread_mutex_unlock(&lock);
}

/* How far the other clock is ahead at that time of this host. */
static int64_t ahead_at(uint64_t at)
{
    uint32_t low = 0, high = count;
    while (low < high) { /* the first comparison that is later */
        uint32_t middle = (low + high) / 2;
        if (kept[middle].at <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0 || low == count) {
        return count == 0 ? 0 : kept[low == 0 ? 0 : count - 1].ahead;
    }
    const struct comparison *a = &kept[low - 1], *b = &kept[low];
    double part = (double)(at - a->at) / (double)(b->at - a->at);
    return a->ahead + (int64_t)(part * (double)(b->ahead - a->ahead));
}

uint64_t bps_trace_clock_common(uint64_t at)
{
    pthread_mutex_lock(&lock);
    uint64_t common = at + (uint64_t)ahead_at(at);
    pthread_mutex_unlock(&lock);
    return common;
}

uint64_t bps_trace_clock_error(void)
{
    uint64_t error = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < count; i++) {
        error = kept[i].error > error ? kept[i].error : error;
    }
    pthread_mutex_unlock(&lock);
    return error;
}
