/* SPDX-License-Identifier: Apache-2.0 */
/* trace_header.c - what a timeline says of itself: which job, which members, and the names of tensors. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "conf/tree.h"
#include "tools/cmd.h"
#include "tools/trace_read.h"

#define MEMBERS_LIMIT 16384u

static int refuse(const struct bps_cmd_trace_file *file, const char *what)
{
    return bps_cmd_failure("trace",
                           "%s: %s; expected a timeline that a member of a job or 'byteps trace merge' has "
                           "written",
                           file->path, what);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

static int add_member(struct bps_cmd_trace *trace, uint32_t file, const json_t *from)
{
    struct bps_cmd_trace_member member = {.file = file, .pid = -1};
    uint64_t rank, pid;
    const char *name = text_of(from, "member");
    if (name[0] == '\0' || !bps_cmd_trace_whole(from, "rank", INT32_MAX, &rank)) {
        return refuse(&trace->file[file], "a member has no name or no rank");
    }
    if (trace->members == MEMBERS_LIMIT) {
        return bps_cmd_failure("trace", "%s: more than %u members", trace->file[file].path, MEMBERS_LIMIT);
    }
    for (uint32_t i = 0; i < trace->members; i++) {
        if (strcmp(trace->member[i].name, name) == 0) {
            return bps_cmd_failure("trace", "%s and %s are both of %s; expected one file of each member",
                                   trace->file[trace->member[i].file].path, trace->file[file].path,
                                   bps_shown(name).text);
        }
    }
    if (trace->file[file].merged && bps_cmd_trace_whole(from, "pid", INT32_MAX, &pid)) {
        member.pid = (int64_t)pid;
    }
    member.rank = (uint32_t)rank;
    member.worker = strncmp(name, "worker", 6) == 0;
    member.name = bps_cmd_print("%s", name);
    member.host = bps_cmd_print("%s", text_of(from, "host"));
    member.clock_error = json_number_value(json_object_get(from, "clock_error_us"));
    bps_cmd_trace_whole(from, "lost", INT64_MAX, &member.lost);
    trace->member = bps_cmd_trace_grow(trace->member, trace->members, sizeof member);
    trace->member[trace->members++] = member;
    return 0;
}

static int add_members(struct bps_cmd_trace *trace, uint32_t file, const json_t *header)
{
    const json_t *members = json_object_get(header, "members"), *member;
    size_t i;
    trace->file[file].merged = json_is_array(members);
    if (!trace->file[file].merged) {
        return add_member(trace, file, header);
    }
    json_array_foreach(members, i, member)
    {
        int result = add_member(trace, file, member);
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

static void add_tensors(struct bps_cmd_trace *trace, json_t *tensors)
{
    const char *key;
    json_t *value;
    json_object_foreach(tensors, key, value)
    {
        char *end;
        errno = 0;
        uint64_t id = strtoull(key, &end, 10);
        if (key[0] >= '0' && key[0] <= '9' && *end == '\0' && errno == 0 && json_is_string(value)) {
            bps_cmd_trace_tensor_add(trace, id, json_string_value(value));
        }
    }
}

int bps_cmd_trace_header_read(struct bps_cmd_trace *trace, uint32_t file, const json_t *header)
{
    struct bps_cmd_trace_file *f = &trace->file[file];
    uint64_t format;
    if (!json_is_object(header)) {
        return refuse(f, "there is no \"byteps\"");
    }
    if (!bps_cmd_trace_whole(header, "format", INT32_MAX, &format) || text_of(header, "job")[0] == '\0') {
        return refuse(f, "its \"byteps\" has no format or no job");
    }
    if (format != 1) {
        return bps_cmd_failure("trace", "%s: its format is %" PRIu64 "; this program reads format 1", f->path, format);
    }
    f->job = bps_cmd_print("%s", text_of(header, "job"));
    if (file > 0 && strcmp(f->job, trace->file[0].job) != 0) {
        return bps_cmd_failure("trace", "%s and %s are of different jobs: %s and %s; give the files of one job",
                               trace->file[0].path, f->path, bps_shown(trace->file[0].job).text,
                               bps_shown(f->job).text);
    }
    add_tensors(trace, json_object_get(header, "tensors"));
    return add_members(trace, file, header);
}
