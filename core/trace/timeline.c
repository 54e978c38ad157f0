/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.c - spans as JSON in the format of Chrome's trace events: docs/timeline.md describes what is in it. */
#include "trace/timeline.h"

#include <inttypes.h>

#include "base/tensor.h"
#include "base/text.h"
#include "trace/clock.h"

#define FORMAT 1

/* By kind: the category of its events, its place among the tracks, from above, and what they are called. */
static const struct kind {
    const char *category;
    uint32_t order;
    const char *track;
} kinds[BPS_TRACE_KINDS] = {
    [BPS_TRACE_OPERATION] = {"operation", 9, "operations"},
    [BPS_TRACE_WAIT] = {"wait", 0, "the program waits"},
    [BPS_TRACE_STAGE] = {"stage", 8, "stage"},
    [BPS_TRACE_CREDIT] = {"credit", 2, "no credit at"},
    [BPS_TRACE_PUSH] = {"push", 1, "to"},
    [BPS_TRACE_RESULT] = {"result", 3, "from"},
    [BPS_TRACE_RECEIVE] = {"receive", 4, "from"},
    [BPS_TRACE_GATHER] = {"gather", 5, "waits for others"},
    [BPS_TRACE_SUM] = {"sum", 6, "sum"},
    [BPS_TRACE_ANSWER] = {"answer", 7, "to"},
};

static bool is_of_slice(uint32_t kind)
{
    return kind >= BPS_TRACE_PUSH;
}

static bool is_of_server(uint32_t kind)
{
    return kind >= BPS_TRACE_RECEIVE;
}

static bool has_rank(uint32_t kind)
{
    return kind == BPS_TRACE_RECEIVE || kind == BPS_TRACE_ANSWER;
}

static bool has_shard(uint32_t kind)
{
    return kind == BPS_TRACE_CREDIT || is_of_slice(kind);
}

static uint32_t shard_of(const struct bps_trace_record *r)
{
    return is_of_server(r->kind) ? r->peer >> 16 : r->peer;
}

/* What is between the quotes of a string. The text is UTF-8 without control characters. */
static void put_escaped(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            putc('\\', file);
        }
        putc(*text, file);
    }
}

static void put_text(FILE *file, const char *text)
{
    putc('"', file);
    put_escaped(file, text);
    putc('"', file);
}

static void put_name(FILE *file, uint32_t id, const struct bps_trace_words *words)
{
    const char *name = words->tensor(id);
    char text[40];
    if (name == NULL) {
        bool unnamed = id >= BPS_ID_UNNAMED;
        snprintf(text, sizeof text, "%s %" PRIu32,
                 !unnamed               ? "tensor"
                 : id >= BPS_ID_BARRIER ? "barrier"
                                        : "unnamed",
                 unnamed ? id & (BPS_ID_UNNAMED / 2 - 1) : id);
        name = text;
    }
    put_text(file, name);
}

static void put_track_name(FILE *file, const struct bps_trace_lane *lane, const struct bps_trace_words *words)
{
    const struct bps_trace_record *r = &lane->of;
    const char *track = kinds[r->kind].track;
    char text[120];
    struct bps_text name = bps_text_in(text, sizeof text);
    if (r->kind == BPS_TRACE_STAGE) {
        bps_text_add(&name, "%s %s", track, words->label(r->label));
    } else if (is_of_server(r->kind)) {
        bps_text_add(&name, "shard %" PRIu32 ": %s", shard_of(r), track);
        if (has_rank(r->kind)) {
            bps_text_add(&name, " worker %" PRIu32, r->peer & 0xffff);
        }
    } else if (has_shard(r->kind)) {
        bps_text_add(&name, "%s shard %" PRIu32, track, r->peer);
    } else {
        bps_text_add(&name, "%s", track);
    }
    put_text(file, text);
}

static void put_meta(FILE *file, const char *what, uint32_t pid, size_t tid)
{
    fprintf(file, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%" PRIu32 ",\"tid\":%zu,\"args\":{", what, pid, tid);
}

static void put_lane(FILE *file, size_t tid, const struct bps_trace_lane *lane, const struct bps_trace_words *words)
{
    uint32_t pid = words->member->number;
    uint64_t order = (uint64_t)kinds[lane->of.kind].order << 20 | (lane->of.peer & 0xff) << 12 | (lane->number & 0xfff);
    put_meta(file, "thread_name", pid, tid);
    fputs("\"name\":", file);
    put_track_name(file, lane, words);
    fputs("}},\n", file);
    put_meta(file, "thread_sort_index", pid, tid);
    fprintf(file, "\"sort_index\":%" PRIu64 "}},\n", order);
}

static void put_args(FILE *file, const struct bps_trace_span *span, const struct bps_trace_words *words)
{
    const struct bps_trace_record *r = &span->begin;
    fprintf(file, "\"args\":{\"step\":%" PRIu32, r->step - 1);
    if (r->kind != BPS_TRACE_CREDIT) {
        fprintf(file, ",\"tensor\":%" PRIu32 ",\"round\":%" PRIu32 ",\"bytes\":%" PRIu32, r->tensor, r->round,
                r->bytes);
    }
    if (r->kind == BPS_TRACE_OPERATION) {
        fputs(",\"op\":", file);
        put_text(file, words->label(r->label));
    }
    if (r->kind == BPS_TRACE_STAGE || is_of_slice(r->kind)) {
        fprintf(file, ",\"partition\":%" PRIu32, r->partition);
    }
    if (is_of_slice(r->kind)) {
        fprintf(file, ",\"offset\":%" PRIu32, r->offset);
    }
    if (has_shard(r->kind)) {
        fprintf(file, ",\"shard\":%" PRIu32, shard_of(r));
    }
    if (has_rank(r->kind)) {
        fprintf(file, ",\"rank\":%" PRIu32, r->peer & 0xffff);
    }
    fputs(span->finished ? "}" : ",\"unfinished\":true}", file);
}

static void put_span(FILE *file, const struct bps_trace_span *span, const struct bps_trace_words *words)
{
    const struct bps_trace_record *r = &span->begin;
    uint64_t from = bps_trace_clock_common(r->at), until = bps_trace_clock_common(span->until);
    fprintf(file, "{\"ph\":\"X\",\"cat\":\"%s\",\"name\":", kinds[r->kind].category);
    if (r->kind == BPS_TRACE_STAGE) {
        put_text(file, words->label(r->label));
    } else if (r->kind == BPS_TRACE_CREDIT) {
        put_text(file, "no credit");
    } else {
        put_name(file, r->tensor, words);
    }
    fprintf(file, ",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32 ",\"ts\":%" PRIu64 ".%03u,\"dur\":%.3f,",
            words->member->number, span->lane + 1, from / 1000, (unsigned)(from % 1000),
            until > from ? (double)(until - from) / 1e3 : 0.0);
    put_args(file, span, words);
    putc('}', file);
}

struct list {
    FILE *file;
    const char *before; /* the next entry */
};

static void put_tensor(void *arg, uint32_t id, const char *name)
{
    struct list *list = arg;
    fprintf(list->file, "%s\"%" PRIu32 "\":", list->before, id);
    put_text(list->file, name);
    list->before = ",\n  ";
}

void bps_trace_print(FILE *file, const struct bps_trace_spans *spans, const struct bps_trace_words *words)
{
    const struct bps_trace_member *member = words->member;
    struct list tensors = {file, "\n  "};
    fprintf(file, "{\"displayTimeUnit\":\"ms\",\n\"byteps\":{\"format\":%d,\"member\":\"%s %" PRIu32 "\"", FORMAT,
            member->role, member->rank);
    fprintf(file, ",\"rank\":%" PRIu32 ",\"host\":", member->rank);
    put_text(file, member->host);
    fprintf(file, ",\"job\":\"%016" PRIx64 "\",\"clock_error_us\":%.3f,\"lost\":%" PRIu64 ",\"tensors\":{", member->job,
            (double)bps_trace_clock_error() / 1e3, words->lost);
    words->each_tensor(put_tensor, &tensors);
    fputs("}},\n\"traceEvents\":[\n", file);
    for (size_t i = 0; i < spans->lanes; i++) {
        put_lane(file, i + 1, &spans->lane[i], words);
    }
    for (size_t i = 0; i < spans->n; i++) {
        put_span(file, &spans->span[i], words);
        fputs(",\n", file);
    }
    put_meta(file, "process_sort_index", member->number, 0);
    fprintf(file, "\"sort_index\":%" PRIu32 "}},\n", member->number);
    put_meta(file, "process_name", member->number, 0);
    fprintf(file, "\"name\":\"%s %" PRIu32 " (host ", member->role, member->rank);
    put_escaped(file, member->host);
    fputs(")\"}}\n]}\n", file);
}
