/* SPDX-License-Identifier: Apache-2.0 */
/* coded.c - what a worker keeps for all that is coded. */
#include "coded/coded.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

bps_status bps_coded_open(struct bps_worker *worker)
{
    struct bps_coded *coded = calloc(1, sizeof *coded);
    if (coded == NULL) {
        return BPS_ERR_NOMEM;
    }
    TAILQ_INIT(&coded->saves);
    TAILQ_INIT(&coded->handed);
    bps_pool_init(&coded->pool, bps_transport_attach, bps_transport_detach, worker->net);
    worker->coded = coded;
    worker->shards->feedback = bps_state_answer;
    worker->shards->lost = bps_state_lost;
    return BPS_OK;
}

/* A shard must know a coding before anything of it comes, on whichever lane. */
void bps_coded_tell(struct bps_task *task, struct bps_remote *remote)
{
    const struct bps_coding *coding = task->tensor->named.coding;
    struct bps_worker *worker = remote->worker;
    const struct bps_header header = {.type = BPS_FRAME_CODING, .epoch = worker->job.epoch};
    while (remote->codings < coding->number) {
        const char *text = bps_codings_at(&worker->graph->codings, ++remote->codings)->text;
        for (uint32_t i = 0; i < remote->lanes; i++) {
            bps_link_send(&remote->lane[i].link, &header, text, strlen(text));
        }
    }
}

void bps_coded_close(struct bps_worker *worker)
{
    if (worker->coded != NULL) {
        bps_assert(TAILQ_EMPTY(&worker->coded->saves));
        bps_state_forget_handed(worker->coded);
        bps_pool_fini(&worker->coded->pool);
        free(worker->coded);
    }
}
