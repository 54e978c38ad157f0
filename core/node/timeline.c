/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.c - the timeline of a member of a job. */
#include "node/timeline.h"

#include <unistd.h>

#include "base/clock.h"
#include "trace/clock.h"
#include "trace/trace.h"

#define AT_ONCE 8u /* questions one after another, of which the fastest answer counts */

bps_status bps_timeline_open(const struct bps_conf *conf, struct bps_report *report)
{
    const struct bps_conf_trace *trace = &conf->trace;
    uint64_t to = trace->to < 0 ? UINT32_MAX - 1 : (uint64_t)trace->to;
    return bps_trace_open(trace->file, (uint64_t)trace->from, to, report);
}

/* A number that no other job has: a hash (FNV-1a) of the keys, which all members have drawn. */
static uint64_t timeline_number_of(const struct bps_book *book)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < book->members; i++) {
        for (size_t k = 0; k < sizeof book->member[i].public_key; k++) {
            hash = (hash ^ book->member[i].public_key[k]) * 0x100000001b3u;
        }
    }
    return hash;
}

void bps_timeline_join(const struct bps_book *book, uint32_t member)
{
    char host[256] = "";
    struct bps_trace_member identity = {.role = "worker", .rank = member, .number = member, .host = host};
    if (!bps_trace_is_on()) {
        return;
    }
    if (book == NULL) {
        gethostname(host, sizeof host - 1);
        identity.job = bps_now() ^ (uint64_t)getpid() << 40;
    } else {
        bool works = member < book->workers;
        identity.role = works ? "worker" : "server";
        identity.rank = works ? member : member - book->workers;
        identity.host = book->member[member].host;
        identity.job = timeline_number_of(book);
    }
    bps_trace_identify(&identity);
}

/* ---- the common clock ---- */

void bps_timeline_ask(struct bps_clock_questions *questions, struct bps_link *scheduler)
{
    struct bps_writer w;
    if (!bps_trace_is_on() || questions->asked != 0 || scheduler->state != BPS_LINK_OPEN) {
        return;
    }
    questions->asked = bps_now();
    bps_writer_init(&w);
    bps_put_u64(&w, questions->asked);
    bps_link_send_message(scheduler, BPS_FRAME_CLOCK, &w);
    bps_writer_fini(&w);
}

bps_status bps_timeline_told(struct bps_clock_questions *questions, struct bps_link *scheduler,
                             struct bps_reader *answer)
{
    uint64_t asked = bps_get_u64(answer), told = bps_get_u64(answer);
    if (!bps_reader_done(answer) || asked != questions->asked || asked == 0) {
        return BPS_ERR_PROTOCOL;
    }
    bps_trace_clock_compare(asked, told, bps_now());
    questions->asked = 0;
    if (++questions->answers < AT_ONCE) {
        bps_timeline_ask(questions, scheduler);
    }
    return BPS_OK;
}

bps_status bps_timeline_tell(struct bps_link *member, struct bps_reader *question)
{
    struct bps_writer w;
    uint64_t asked = bps_get_u64(question);
    if (!bps_reader_done(question)) {
        return BPS_ERR_PROTOCOL;
    }
    bps_writer_init(&w);
    bps_put_u64(&w, asked);
    bps_put_u64(&w, bps_now());
    bps_status status = bps_link_send_message(member, BPS_FRAME_CLOCK, &w);
    bps_writer_fini(&w);
    return status;
}
