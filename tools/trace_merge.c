/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_merge.c - `byteps trace merge`: one file of those of all members. Events are written as they were read, but for
 * what had to change in them. The file is written beside its place and put there when it is whole.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cmd.h"
#include "tools/trace.h"
#include "tools/trace_steps.h"
#include "tools/trace_tracks.h"

/* ---- the text ---- */

struct writer {
    const struct bps_cmd_trace *trace;
    const struct bps_cmd_trace_tracks *tracks;
    FILE *to;
    bool more; /* an event was written */
    uint64_t arrows;
};

static json_t *members_json(const struct writer *w)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < w->trace->members; i++) {
        const struct bps_cmd_trace_member *member = &w->trace->member[i];
        json_t *out =
            json_pack("{s:s, s:I, s:s, s:f, s:I}", "member", member->name, "rank", (json_int_t)member->rank, "host",
                      member->host, "clock_error_us", member->clock_error, "lost", (json_int_t)member->lost);
        if (w->tracks->pid[i] >= 0) {
            json_object_set_new(out, "pid", json_integer(w->tracks->pid[i]));
        }
        json_array_append_new(all, out);
    }
    return all;
}

static void write_head(const struct writer *w)
{
    json_t *head = json_pack("{s:I, s:s, s:o, s:o}", "format", (json_int_t)1, "job", w->trace->file[0].job, "members",
                             members_json(w), "tensors", bps_cmd_trace_tensors_json(w->trace));
    fputs("{\"displayTimeUnit\":\"ms\",\n \"byteps\":", w->to);
    json_dumpf(head, w->to, JSON_COMPACT);
    fputs(",\n \"traceEvents\":[\n", w->to);
    json_decref(head);
}

static void begin_event(struct writer *w)
{
    fputs(w->more ? ",\n" : "", w->to);
    w->more = true;
}

static void write_string(const struct writer *w, const char *text)
{
    json_t *string = json_string(text);
    json_dumpf(string, w->to, JSON_ENCODE_ANY);
    json_decref(string);
}

/* The text of the event with the place, and the name, that it has here. */
static void write_event(struct writer *w, const struct bps_cmd_trace_event *event)
{
    const char *text = w->trace->file[event->file].text;
    const struct bps_cmd_trace_place *place = &w->tracks->place[event - w->trace->event];
    const char *name = event->unnamed ? bps_cmd_trace_tensor_name(w->trace, event->tensor) : NULL;
    size_t at = event->span.at, end = at + event->span.length;
    struct bps_cmd_trace_walk walk;
    begin_event(w);
    bool changed = name != NULL || place->pid != event->pid || place->tid != event->tid;
    if (changed && bps_cmd_trace_walk_begin(&walk, text, w->trace->file[event->file].size, at)) {
        while (bps_cmd_trace_walk_next(&walk) == BPS_CMD_TRACE_ITEM) {
            bool pid = bps_cmd_trace_walk_is(&walk, "pid"), tid = bps_cmd_trace_walk_is(&walk, "tid");
            bool named = name != NULL && bps_cmd_trace_walk_is(&walk, "name");
            if (!pid && !tid && !named) {
                continue;
            }
            fwrite(text + at, 1, walk.value.at - at, w->to);
            if (named) {
                write_string(w, name);
            } else {
                fprintf(w->to, "%" PRIu32, pid ? place->pid : place->tid);
            }
            at = walk.value.at + walk.value.length;
        }
    }
    fwrite(text + at, 1, end - at, w->to);
}

static void write_lanes(struct writer *w)
{
    for (size_t i = 0; i < w->tracks->lanes; i++) {
        const struct bps_cmd_trace_lane *lane = &w->tracks->lane[i];
        char *name = bps_cmd_print("%s (%" PRIu32 ")", lane->name, lane->number);
        begin_event(w);
        fprintf(w->to,
                "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32 ",\"args\":{\"name\":",
                lane->place.pid, lane->place.tid);
        write_string(w, name);
        fputs("}}", w->to);
        free(name);
    }
}

/* One end of an arrow: it binds to the event that begins at its moment. */
static void write_end(struct writer *w, const struct bps_cmd_trace_event *event, const char *name, bool from)
{
    const struct bps_cmd_trace_place *place = &w->tracks->place[event - w->trace->event];
    begin_event(w);
    fprintf(w->to,
            "{\"ph\":\"%s\",\"cat\":\"flow\",\"name\":\"%s\",\"id\":%" PRIu64 ",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32
            ",\"ts\":%s%" PRId64 ".%03d}",
            from ? "s" : "f\",\"bp\":\"e", name, w->arrows, place->pid, place->tid, event->begin < 0 ? "-" : "",
            (int64_t)llabs(event->begin / 1000), (int)llabs(event->begin % 1000));
}

/* From each push to its receive, and from each answer to its result. */
static void write_arrows(struct writer *w)
{
    struct bps_cmd_trace_index index;
    bps_cmd_trace_index_make(w->trace, &index);
    for (size_t i = 0; i < index.n; i++) {
        const struct bps_cmd_trace_event *to = index.event[i];
        bool push = to->kind == BPS_CMD_TRACE_RECEIVE;
        if (!push && to->kind != BPS_CMD_TRACE_RESULT) {
            continue;
        }
        struct bps_cmd_trace_range from = bps_cmd_trace_index_find(
            &index, push ? BPS_CMD_TRACE_PUSH : BPS_CMD_TRACE_ANSWER, to->rank, to, BPS_CMD_TRACE_OF_SLICE);
        if (from.n > 0) {
            w->arrows++;
            write_end(w, from.event[from.n - 1], push ? "push" : "result", true);
            write_end(w, to, push ? "push" : "result", false);
        }
    }
    bps_cmd_trace_index_fini(&index);
}

static void write_all(struct bps_cmd_trace *trace, FILE *to)
{
    struct bps_cmd_trace_tracks tracks;
    bps_cmd_trace_tracks_make(trace, &tracks);
    struct writer w = {.trace = trace, .tracks = &tracks, .to = to};
    write_head(&w);
    for (size_t i = 0; i < trace->events; i++) {
        if (trace->event[i].kind != BPS_CMD_TRACE_ARROW) {
            write_event(&w, &trace->event[i]);
        }
    }
    write_lanes(&w);
    write_arrows(&w);
    fputs("\n]}\n", to);
    bps_cmd_trace_tracks_fini(&tracks);
}

/* ---- the file ---- */

static char *unfinished; /* what a signal takes away */

static void clean_up(int signal)
{
    unlink(unfinished);
    raise(signal); /* which has its old meaning again */
}

static void clean_up_on_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction old, action = {.sa_handler = clean_up, .sa_flags = (int)SA_RESETHAND | SA_NODEFER};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) {
            sigaction(signals[i], &action, NULL);
        }
    }
}

/* Says so and takes away what there is. */
static int fail(const char *path, int error)
{
    int result = bps_cmd_failure("trace", "cannot write %s: %s", path, strerror(error));
    if (unfinished != NULL) {
        unlink(unfinished);
    }
    return result;
}

/* A device, a pipe or the like is written to; a file is replaced. */
static bool is_replaced(const char *path)
{
    struct stat status;
    return stat(path, &status) != 0 || S_ISREG(status.st_mode);
}

static FILE *open_output(const char *path)
{
    if (!is_replaced(path)) {
        return fopen(path, "wb");
    }
    unfinished = bps_cmd_print("%s.XXXXXX", path);
    int fd = mkstemp(unfinished);
    if (fd < 0) {
        int error = errno;
        free(unfinished);
        unfinished = NULL;
        errno = error;
        return NULL;
    }
    mode_t mask = umask(0);
    umask(mask);
    fchmod(fd, 0666 & ~mask);
    clean_up_on_signals();
    return fdopen(fd, "wb");
}

int bps_cmd_trace_merge(struct bps_cmd_trace *trace, const struct bps_cmd_trace_command *command)
{
    if (command->output == NULL) {
        write_all(trace, stdout);
        return 0;
    }
    errno = 0;
    FILE *to = open_output(command->output);
    if (to == NULL) {
        return fail(command->output, errno);
    }
    write_all(trace, to);
    bool bad = ferror(to) != 0;
    int result = 0, error = errno != 0 ? errno : EIO;
    if (fclose(to) != 0 || (!bad && unfinished != NULL && rename(unfinished, command->output) != 0)) {
        result = fail(command->output, errno);
    } else if (bad) {
        result = fail(command->output, error);
    }
    free(unfinished);
    unfinished = NULL;
    return result;
}
