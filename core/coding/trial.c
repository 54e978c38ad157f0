/* SPDX-License-Identifier: Apache-2.0 */
/* trial.c - see trial.h. */
#include "coding/trial.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/clock.h"

#define WINDOW      (250 * BPS_MS) /* of partitions that never end all at once, at least */
#define WINDOWS     4u             /* that are enough to compare */
#define REMEMBERED  16u            /* and that count; what is older counts half */
#define GAIN        0.9            /* coding pays if a byte takes so much of the time without, */
#define FILL        0.5            /* and if something is under way for so much of the time without */
#define SHARE       50u            /* the other way is tried in the 50th part of the time, */
#define LEAST_PAUSE (10 * BPS_S)   /* and so rarely */

bool bps_trial_codes(const struct bps_trial *trial)
{
    return trial->pays != trial->trying;
}

static double cost(const struct bps_trial_mean *mean)
{
    return (double)mean->busy / (double)(mean->bytes > 0 ? mean->bytes : 1);
}

static double trial_fill(const struct bps_trial_mean *mean)
{
    return (double)mean->busy / (double)(mean->busy + mean->idle + 1);
}

/* It goes on to pay as long as it costs less. */
static bool pays(const struct bps_trial *trial)
{
    const struct bps_trial_mean *plain = &trial->mean[false];
    double gain = trial->pays ? 1.0 : GAIN;
    return trial_fill(plain) >= FILL && cost(&trial->mean[true]) < gain * cost(plain);
}

static void halve(struct bps_trial_mean *mean)
{
    *mean = (struct bps_trial_mean){mean->busy / 2, mean->idle / 2, mean->bytes / 2, mean->windows / 2};
}

/* After a window that says something of what is wanted now. */
static void trial_go_on(struct bps_trial *trial, uint64_t now)
{
    const struct bps_trial_mean *mean = &trial->mean[bps_trial_codes(trial)];
    if (mean->windows < WINDOWS || (!trial->trying && now < trial->next)) {
        return;
    }
    if (trial->trying) {
        uint64_t pause = SHARE * (now - trial->since);
        trial->pays = pays(trial);
        trial->trying = false;
        trial->judged = true;
        trial->next = now + (pause > LEAST_PAUSE ? pause : LEAST_PAUSE);
    } else {
        trial->trying = true;
        trial->since = now;
        trial->mean[bps_trial_codes(trial)] = (struct bps_trial_mean){.windows = 0};
    }
}

/* The first window after one of the other way has what begins only once. */
static void close_window(struct bps_trial *trial, bool coded, uint64_t now)
{
    struct bps_trial_mean *mean = &trial->mean[coded];
    bool counts = !trial->spoilt && trial->last == coded && trial->end > 0;
    if (counts) {
        mean->busy += now - trial->begin;
        mean->idle += trial->begin - trial->end;
        mean->bytes += trial->bytes;
        mean->windows++;
    }
    trial->last = coded;
    trial->end = trial->spoilt ? 0 : now;
    trial->begin = now;
    trial->bytes = 0;
    trial->spoilt = trial->under_way[!coded] > 0;
    if (counts && coded == bps_trial_codes(trial)) {
        trial_go_on(trial, now);
    }
    if (mean->windows >= REMEMBERED) {
        halve(mean);
    }
}

void bps_trial_begin(struct bps_trial *trial, bool coded, uint64_t now)
{
    if (trial->under_way[false] + trial->under_way[true] == 0) {
        trial->begin = now;
        trial->spoilt = false;
    }
    trial->under_way[coded]++;
    trial->spoilt |= trial->under_way[!coded] > 0;
}

void bps_trial_end(struct bps_trial *trial, bool coded, uint64_t bytes, bool well, uint64_t now)
{
    bps_assert(trial->under_way[coded] > 0);
    trial->under_way[coded]--;
    trial->bytes += bytes;
    trial->spoilt |= !well;
    if (trial->under_way[false] + trial->under_way[true] == 0 || now - trial->begin >= WINDOW) {
        close_window(trial, coded, now);
    }
}

bool bps_trial_tell(struct bps_trial *trial, char *text, size_t n)
{
    const double mib = 1u << 20;
    bool told = trial->judged;
    trial->judged = false;
    if (told) {
        snprintf(text, n, "%s: a MiB takes %.3g ms coded and %.3g ms plain, which keeps links busy %.0f %% of the time",
                 trial->pays ? "pays" : "does not pay", cost(&trial->mean[true]) * mib / BPS_MS,
                 cost(&trial->mean[false]) * mib / BPS_MS, 100 * trial_fill(&trial->mean[false]));
    }
    return told;
}
