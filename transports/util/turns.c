/* SPDX-License-Identifier: Apache-2.0 */
/* turns.c - whoever has much to do does some of it and queues for another turn, so that the others have theirs. */
#include "util.h"

void bps_util_turns_init(struct bps_util_turns *turns, const struct bps_host *host, bps_call_fn work, bps_call_fn after,
                         void *arg)
{
    *turns = (struct bps_util_turns){.host = host, .work = work, .after = after, .arg = arg};
    TAILQ_INIT(&turns->ready);
}

void bps_util_turn_remove(struct bps_util_turns *turns, struct bps_util_turn *turn)
{
    if (turn->queued) {
        TAILQ_REMOVE(&turns->ready, turn, entry);
        turns->nready--;
        turn->queued = false;
    }
}

void bps_util_turns_run(struct bps_util_turns *turns)
{
    /* Those that queue again come after the next events. */
    for (size_t n = turns->nready; n > 0 && !TAILQ_EMPTY(&turns->ready); n--) {
        struct bps_util_turn *turn = TAILQ_FIRST(&turns->ready);
        bps_util_turn_remove(turns, turn);
        turns->work(turn->arg);
    }
    if (turns->after != NULL) {
        turns->after(turns->arg);
    }
}

static void run_deferred(void *arg)
{
    struct bps_util_turns *turns = arg;
    turns->deferred = false;
    bps_util_turns_run(turns);
}

void bps_util_turn_queue(struct bps_util_turns *turns, struct bps_util_turn *turn)
{
    if (turn->queued) {
        return;
    }
    turn->queued = true;
    TAILQ_INSERT_TAIL(&turns->ready, turn, entry);
    turns->nready++;
    if (!turns->deferred) {
        turns->deferred = true;
        turns->host->defer(turns->host, run_deferred, turns);
    }
}
