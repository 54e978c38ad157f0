/* SPDX-License-Identifier: Apache-2.0 */
/* credit.c - unanswered bytes by urgency, as a stack: more urgent tensors come on top, and go first. */
#include "worker/credit.h"

void bps_credit_init(struct bps_credit *credit, uint64_t base)
{
    base = base > 0 ? base : UINT64_MAX;
    *credit = (struct bps_credit){.base = base, .limit = base};
}

bool bps_credit_admits(const struct bps_credit *credit, int32_t priority)
{
    uint64_t used = 0;
    for (uint32_t i = credit->levels; i > 0 && credit->level[i - 1].priority >= priority; i--) {
        used += credit->level[i - 1].bytes;
    }
    return used < credit->limit;
}

void bps_credit_sent(struct bps_credit *credit, int32_t priority, uint64_t bytes)
{
    credit->unanswered += bytes;
    while (credit->levels > 0 && credit->level[credit->levels - 1].priority > priority) {
        bytes += credit->level[--credit->levels].bytes;
    }
    bool known = credit->levels > 0 && credit->level[credit->levels - 1].priority == priority;
    if (!known && credit->levels < BPS_CREDIT_LEVELS) {
        credit->level[credit->levels++] = (struct bps_credit_level){.priority = priority};
    }
    credit->level[credit->levels - 1].bytes += bytes;
}

/* Takes as much as the level has; what is left. */
static uint64_t take(struct bps_credit_level *level, uint64_t bytes)
{
    uint64_t taken = bytes < level->bytes ? bytes : level->bytes;
    level->bytes -= taken;
    return bytes - taken;
}

void bps_credit_answered(struct bps_credit *credit, int32_t priority, uint64_t bytes)
{
    credit->unanswered -= bytes;
    credit->answered = true;
    for (uint32_t i = credit->levels; i > 0 && bytes > 0; i--) {
        if (credit->level[i - 1].priority <= priority) {
            bytes = take(&credit->level[i - 1], bytes);
        }
    }
    while (credit->levels > 0 && credit->level[credit->levels - 1].bytes == 0) {
        credit->levels--;
    }
    if (credit->unanswered < credit->base) {
        credit->limit = credit->base;
    }
}

bool bps_credit_look(struct bps_credit *credit)
{
    bool stalled = !credit->answered;
    credit->answered = false;
    if (stalled && credit->limit <= UINT64_MAX / 2) {
        credit->limit *= 2;
    }
    return stalled;
}
