/* SPDX-License-Identifier: Apache-2.0 */
/* trace_read.c - the timelines of the members of a job, read from their files. */
#include "tools/trace_read.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "tools/cmd.h"

#define uthash_malloc(size) bps_cmd_alloc(1, size)
#include <uthash.h>

#define SIZE_LIMIT    (4ull << 30) /* bytes of a file */
#define BYTES_AT_ONCE 65536u

struct bps_cmd_trace_tensor {
    uint64_t id;
    char *name;
    UT_hash_handle hh;
};

/* ---- what grows ---- */

void *bps_cmd_trace_grow(void *array, size_t n, size_t size)
{
    if ((n & (n - 1)) != 0) {
        return array;
    }
    void *larger = bps_cmd_alloc(n == 0 ? 1 : 2 * n, size);
    if (n > 0) {
        memcpy(larger, array, n * size);
    }
    free(array);
    return larger;
}

static struct bps_cmd_trace_tensor *find_tensor(const struct bps_cmd_trace *trace, uint64_t id)
{
    struct bps_cmd_trace_tensor *found;
    HASH_FIND(hh, trace->tensors, &id, sizeof id, found);
    return found;
}

void bps_cmd_trace_tensor_add(struct bps_cmd_trace *trace, uint64_t id, const char *name)
{
    if (find_tensor(trace, id) == NULL) {
        struct bps_cmd_trace_tensor *tensor = bps_cmd_alloc(1, sizeof *tensor);
        tensor->id = id;
        tensor->name = bps_cmd_print("%s", name);
        HASH_ADD(hh, trace->tensors, id, sizeof tensor->id, tensor);
    }
}

const char *bps_cmd_trace_tensor_name(const struct bps_cmd_trace *trace, uint64_t id)
{
    const struct bps_cmd_trace_tensor *tensor = find_tensor(trace, id);
    return tensor == NULL ? NULL : tensor->name;
}

json_t *bps_cmd_trace_tensors_json(const struct bps_cmd_trace *trace)
{
    json_t *names = json_object();
    for (const struct bps_cmd_trace_tensor *tensor = trace->tensors; tensor != NULL; tensor = tensor->hh.next) {
        char number[32];
        snprintf(number, sizeof number, "%" PRIu64, tensor->id);
        json_object_set_new(names, number, json_string(tensor->name));
    }
    return names;
}

/* ---- bytes ---- */

static int load(struct bps_cmd_trace_file *file)
{
    FILE *from = fopen(file->path, "rb");
    size_t room = 0, got;
    if (from == NULL) {
        return bps_cmd_failure("trace", "cannot open %s: %s", file->path, strerror(errno));
    }
    while (file->size < SIZE_LIMIT && bps_array_reserve(file->text, room, file->size + BYTES_AT_ONCE) &&
           (got = fread(file->text + file->size, 1, room - file->size, from)) > 0) {
        file->size += got;
    }
    int error = ferror(from) ? errno : 0;
    bool whole = feof(from) && file->size < SIZE_LIMIT;
    fclose(from);
    if (error != 0) {
        return bps_cmd_failure("trace", "cannot read %s: %s", file->path, strerror(error));
    }
    return whole ? 0
                 : bps_cmd_failure("trace", "%s: too large; expected a timeline of at most %llu bytes", file->path,
                                   SIZE_LIMIT);
}

size_t bps_cmd_trace_line(const struct bps_cmd_trace_file *file, size_t at)
{
    size_t line = 1;
    for (size_t i = 0; i < at && i < file->size; i++) {
        line += file->text[i] == '\n';
    }
    return line;
}

static int malformed(const struct bps_cmd_trace_file *file, size_t at, const char *what)
{
    if (bps_cmd_trace_skip_space(file->text, file->size, at) == file->size) {
        return bps_cmd_failure("trace", "%s: it is truncated; expected a timeline, which is a whole JSON object",
                               file->path);
    }
    return bps_cmd_failure("trace", "%s:%zu: not JSON: %s; expected a timeline, which is a JSON object", file->path,
                           bps_cmd_trace_line(file, at), what);
}

/* Parses a part of the file. NULL: prints why. */
static json_t *parse(const struct bps_cmd_trace_file *file, struct bps_cmd_trace_span span)
{
    json_error_t error;
    json_t *value = json_loadb(file->text + span.at, span.length, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    if (value == NULL) {
        malformed(file, span.at, error.text);
    }
    return value;
}

/* ---- events ---- */

static void ignore(struct bps_cmd_trace_file *file, size_t where, const char *why)
{
    if (file->ignored++ == 0) {
        file->why = why;
        file->where = where;
    }
}

/* Remembers what the track of a thread is called. */
static void note_thread(struct bps_cmd_trace *trace, const struct bps_cmd_trace_event *event, const json_t *from)
{
    const char *what = json_string_value(json_object_get(from, "name"));
    const char *name = json_string_value(json_object_get(json_object_get(from, "args"), "name"));
    if (name == NULL || strcmp(what, "thread_name") != 0) {
        return;
    }
    trace->thread = bps_cmd_trace_grow(trace->thread, trace->threads, sizeof *trace->thread);
    trace->thread[trace->threads++] =
        (struct bps_cmd_trace_thread){event->file, event->pid, event->tid, bps_cmd_print("%s", name)};
}

static int read_events(struct bps_cmd_trace *trace, uint32_t index, size_t at)
{
    struct bps_cmd_trace_file *file = &trace->file[index];
    struct bps_cmd_trace_walk walk;
    enum bps_cmd_trace_found found;
    if (!bps_cmd_trace_walk_begin(&walk, file->text, file->size, at) || walk.object) {
        return malformed(file, walk.at, "\"traceEvents\" is not an array");
    }
    while ((found = bps_cmd_trace_walk_next(&walk)) == BPS_CMD_TRACE_ITEM) {
        struct bps_cmd_trace_event event;
        json_t *from = parse(file, walk.value);
        if (from == NULL) {
            return BPS_EXIT_FAILURE;
        }
        const char *why = bps_cmd_trace_event_read(from, &event);
        if (why != NULL) {
            ignore(file, walk.value.at, why);
        } else {
            event.file = index;
            event.span = walk.value;
            trace->event = bps_cmd_trace_grow(trace->event, trace->events, sizeof event);
            trace->event[trace->events++] = event;
            if (!event.lasts) {
                note_thread(trace, &event, from);
            }
        }
        json_decref(from);
    }
    return found == BPS_CMD_TRACE_END ? 0 : malformed(file, walk.at, "expected an event after a comma, or ]");
}

/* ---- whose they are ---- */

struct process {
    uint32_t pid;
    const struct bps_cmd_trace_member *member;
    UT_hash_handle hh;
};

static struct process *find_processes(const struct bps_cmd_trace *trace, uint32_t file)
{
    struct process *processes = NULL, *found;
    for (uint32_t i = 0; i < trace->members; i++) {
        const struct bps_cmd_trace_member *member = &trace->member[i];
        uint32_t pid = (uint32_t)member->pid;
        HASH_FIND(hh, processes, &pid, sizeof pid, found);
        if (member->file == file && member->pid >= 0 && found == NULL) {
            struct process *process = bps_cmd_alloc(1, sizeof *process);
            process->pid = pid;
            process->member = member;
            HASH_ADD(hh, processes, pid, sizeof process->pid, process);
        }
    }
    return processes;
}

/* Gives a worker's events its rank; without a worker they are none of BytePS. */
static void find_owners(struct bps_cmd_trace *trace, uint32_t file, size_t first)
{
    if (!trace->file[file].merged && first < trace->events) {
        trace->member[trace->members - 1].pid = trace->event[first].pid;
    }
    struct process *processes = find_processes(trace, file), *found, *next;
    for (size_t i = first; i < trace->events; i++) {
        struct bps_cmd_trace_event *event = &trace->event[i];
        if (event->kind > BPS_CMD_TRACE_RESULT) {
            continue;
        }
        HASH_FIND(hh, processes, &event->pid, sizeof event->pid, found);
        if (found != NULL && found->member->worker) {
            event->rank = found->member->rank;
        } else {
            ignore(&trace->file[file], event->span.at, "it is a worker's, but its pid is not that of a worker");
            event->kind = BPS_CMD_TRACE_OTHER;
        }
    }
    HASH_ITER(hh, processes, found, next) {
        HASH_DEL(processes, found);
        free(found);
    }
}

/* ---- a file ---- */

/* Finds the two parts of interest. */
static int find_parts(const struct bps_cmd_trace_file *file, struct bps_cmd_trace_span *header,
                      struct bps_cmd_trace_span *events)
{
    struct bps_cmd_trace_walk walk;
    enum bps_cmd_trace_found found;
    if (!bps_cmd_trace_walk_begin(&walk, file->text, file->size, 0) || !walk.object) {
        return malformed(file, walk.at, "it does not begin with {");
    }
    while ((found = bps_cmd_trace_walk_next(&walk)) == BPS_CMD_TRACE_ITEM) {
        if (bps_cmd_trace_walk_is(&walk, "byteps")) {
            *header = walk.value;
        } else if (bps_cmd_trace_walk_is(&walk, "traceEvents")) {
            *events = walk.value;
        }
    }
    if (found == BPS_CMD_TRACE_END && bps_cmd_trace_skip_space(file->text, file->size, walk.at) < file->size) {
        return malformed(file, walk.at, "unexpected text after the last }");
    }
    return found == BPS_CMD_TRACE_END ? 0 : malformed(file, walk.at, "expected a key and a value after a comma, or }");
}

static void tell_ignored(const struct bps_cmd_trace_file *file)
{
    if (file->ignored > 0) {
        fprintf(stderr, "byteps trace: %s: %" PRIu64 " event%s ignored; that of line %zu, as %s\n", file->path,
                file->ignored, file->ignored == 1 ? "" : "s", bps_cmd_trace_line(file, file->where), file->why);
    }
}

int bps_cmd_trace_read(struct bps_cmd_trace *trace, const char *path)
{
    struct bps_cmd_trace_span header = {0}, events = {0};
    uint32_t index = trace->files;
    size_t first = trace->events;
    trace->file = bps_cmd_trace_grow(trace->file, index, sizeof *trace->file);
    trace->file[index] = (struct bps_cmd_trace_file){.path = bps_cmd_print("%s", path)};
    trace->files++;
    int result = load(&trace->file[index]);
    if (result == 0) {
        result = find_parts(&trace->file[index], &header, &events);
    }
    if (result == 0) {
        json_t *value = header.length == 0 ? NULL : parse(&trace->file[index], header);
        result = header.length > 0 && value == NULL ? BPS_EXIT_FAILURE : bps_cmd_trace_header_read(trace, index, value);
        json_decref(value);
    }
    if (result == 0 && events.length == 0) {
        result = bps_cmd_failure("trace", "%s: there is no \"traceEvents\"; expected a timeline", path);
    }
    if (result == 0) {
        result = read_events(trace, index, events.at);
    }
    if (result == 0) {
        find_owners(trace, index, first);
        tell_ignored(&trace->file[index]);
    }
    return result;
}

void bps_cmd_trace_fini(struct bps_cmd_trace *trace)
{
    struct bps_cmd_trace_tensor *tensor, *next;
    for (uint32_t i = 0; i < trace->files; i++) {
        free(trace->file[i].path);
        free(trace->file[i].text);
        free(trace->file[i].job);
    }
    for (uint32_t i = 0; i < trace->members; i++) {
        free(trace->member[i].name);
        free(trace->member[i].host);
    }
    for (uint32_t i = 0; i < trace->threads; i++) {
        free(trace->thread[i].name);
    }
    HASH_ITER(hh, trace->tensors, tensor, next) {
        HASH_DEL(trace->tensors, tensor);
        free(tensor->name);
        free(tensor);
    }
    free(trace->event);
    free(trace->thread);
    free(trace->member);
    free(trace->file);
}
