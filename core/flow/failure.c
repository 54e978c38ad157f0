/* SPDX-License-Identifier: Apache-2.0 */
/* failure.c - the end of a job that has failed, as everything here may find out; what follows is the worker's life. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/report.h"
#include "flow/flow.h"

/* The scheduler knows more about a loss than the end of a connection tells, but it must not be waited for long. */
#define VERDICT_LIMIT BPS_S

void bps_worker_fail(struct bps_worker *worker, bps_status status, const char *text)
{
    if (worker->failure != BPS_OK || worker->phase == BPS_WORKER_ENDED) {
        return;
    }
    worker->failure = bps_failing(status);
    worker->failure_text = strdup(text);
    if (worker->failure_text == NULL) {
        worker->failure_text = calloc(1, 1);
    } else {
        bps_make_printable(worker->failure_text);
    }
    worker->life->failed(worker);
}

static void on_no_verdict(void *arg)
{
    struct bps_worker *worker = arg;
    bool waits = bps_member_is_away(worker->member) && worker->open_links > 0; /* for another one, which will know */
    worker->grace = waits ? bps_loop_timer(worker->loop, VERDICT_LIMIT, 0, on_no_verdict, worker) : NULL;
    if (worker->grace == NULL) {
        bps_worker_fail(worker, BPS_ERR_LOST, worker->suspicion);
    }
}

void bps_worker_suspect(struct bps_worker *worker, bps_status status, const char *text)
{
    if (worker->suspicion[0] != '\0' || worker->failure != BPS_OK) {
        return;
    }
    snprintf(worker->suspicion, sizeof worker->suspicion, "%s", text);
    if (status != BPS_ERR_REFUSED) {
        worker->grace = bps_loop_timer(worker->loop, VERDICT_LIMIT, 0, on_no_verdict, worker);
    }
    if (worker->grace == NULL) {
        bps_worker_fail(worker, status == BPS_ERR_REFUSED ? status : BPS_ERR_LOST, worker->suspicion);
    }
}
