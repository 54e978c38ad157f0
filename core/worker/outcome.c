/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outcome.c - the results that nobody had read when their job ended.
 *
 * Shutdown finishes what is in flight, so whoever holds a handle may ask for its result afterwards. The worker
 * and its tensors are gone by then; of each such operation a handle, a status and a text are left, until the
 * next job has ended.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/log.h"
#include "flow/flow.h"
#include "worker/outcome.h"

struct outcome {
    bps_handle handle;
    bps_status status;
    bool read;
    char *text; /* of an error, or NULL */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct outcome *outcomes;
static size_t count;
static _Atomic size_t unread; /* so that waiting takes no lock as long as there are none */

static void outcome_forget(void)
{
    for (size_t i = 0; i < count; i++) {
        free(outcomes[i].text);
    }
    free(outcomes);
    outcomes = NULL;
    count = 0;
    atomic_store(&unread, 0);
}

void bps_outcomes_begin(void)
{
    pthread_mutex_lock(&lock);
}

void bps_outcomes_end(struct bps_worker *worker)
{
    uint32_t slots = atomic_load(&worker->names.count);
    outcome_forget();
    outcomes = calloc(slots, sizeof *outcomes);
    if (outcomes == NULL) {
        bps_warn("worker", "out of memory: results of operations that were not waited for are lost");
    }
    for (bps_tensor slot = 1; outcomes != NULL && slot < slots; slot++) {
        struct outcome *outcome = &outcomes[count];
        if (bps_operation_last(worker, slot, &outcome->handle, &outcome->status, &outcome->text)) {
            count++;
        }
    }
    atomic_store(&unread, count);
    pthread_mutex_unlock(&lock);
}

bool bps_outcomes_unread(void)
{
    return atomic_load(&unread) > 0;
}

static int by_slot(const void *a, const void *b)
{
    uint32_t x = (uint32_t)((const struct outcome *)a)->handle;
    uint32_t y = (uint32_t)((const struct outcome *)b)->handle;
    return (x > y) - (x < y);
}

/* They were kept in the order of their slots, which are the lower half of a handle. */
static struct outcome *outcome_find(bps_handle handle)
{
    const struct outcome key = {.handle = handle};
    struct outcome *found = bsearch(&key, outcomes, count, sizeof key, by_slot);
    return found != NULL && found->handle == handle && !found->read ? found : NULL;
}

bool bps_outcome_look(bps_handle handle, bps_status *status)
{
    pthread_mutex_lock(&lock);
    const struct outcome *outcome = outcome_find(handle);
    if (outcome != NULL) {
        *status = outcome->status;
    }
    pthread_mutex_unlock(&lock);
    return outcome != NULL;
}

bool bps_outcome_take(bps_handle handle, bps_status *status, struct bps_report *report)
{
    pthread_mutex_lock(&lock);
    struct outcome *outcome = outcome_find(handle);
    if (outcome != NULL) {
        *status = outcome->status;
        if (outcome->status != BPS_OK) {
            BPS_REPORT(report, "%s", outcome->text != NULL ? outcome->text : bps_strerror(outcome->status));
        }
        outcome->read = true;
        atomic_fetch_sub(&unread, 1);
    }
    pthread_mutex_unlock(&lock);
    return outcome != NULL;
}

void bps_outcomes_in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    count = 0; /* the memory itself another thread may have been changing */
    atomic_store(&unread, 0);
}
