/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_output.c - what the processes of a job print: line by line, with a prefix, never mixed within a line.
 *
 * Nothing here waits. A sink that is not read fast enough makes the processes wait that write to it, as if
 * they wrote to it themselves. Bytes pass as they are; only a missing newline at the end is added, and a line
 * longer than LINE_LIMIT is broken. On a terminal a carriage return ends a line too, so that progress bars
 * move.
 */
#include "tools/run.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_SIZE  65536u
#define LINE_LIMIT (16u << 20)
#define SINK_LIMIT (256u << 10)

/* Makes room for n more bytes behind `used`. */
static void reserve(char **data, size_t used, size_t *size, size_t n)
{
    if (*size - used >= n) {
        return;
    }
    size_t grown = *size ? *size : READ_SIZE;
    while (grown - used < n) {
        grown *= 2;
    }
    char *moved = bps_cmd_alloc(grown, 1);
    if (used) {
        memcpy(moved, *data, used);
    }
    free(*data);
    *data = moved;
    *size = grown;
}

void bps_run_sink_init(struct bps_run_sink *sink, int fd)
{
    struct stat about;
    *sink = (struct bps_run_sink){.fd = fd};
    sink->regular = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
    sink->terminal = isatty(fd);
}

static void sink_close(struct bps_run_sink *sink)
{
    if (sink->owned && sink->fd >= 0) {
        close(sink->fd);
    }
    sink->fd = -1;
}

void bps_run_sink_fini(struct bps_run_sink *sink)
{
    sink_close(sink);
    free(sink->data);
    *sink = (struct bps_run_sink){.fd = -1};
}

void bps_run_sink_put(struct bps_run_sink *sink, const void *data, size_t n)
{
    if (sink->fd < 0 || n == 0) {
        return;
    }
    if (sink->at == sink->used) {
        sink->at = sink->used = 0;
    }
    reserve(&sink->data, sink->used, &sink->size, n);
    memcpy(sink->data + sink->used, data, n);
    sink->used += n;
}

bool bps_run_sink_room(const struct bps_run_sink *sink)
{
    return bps_run_sink_pending(sink) < SINK_LIMIT;
}

/* A pipe that poll calls writable takes PIPE_BUF bytes at once; more could make us wait. */
static size_t ready(const struct bps_run_sink *sink)
{
    size_t pending = bps_run_sink_pending(sink);
    if (sink->regular) {
        return pending;
    }
    struct pollfd p = {.fd = sink->fd, .events = POLLOUT};
    if (pending == 0 || poll(&p, 1, 0) <= 0) {
        return 0;
    }
    return pending < PIPE_BUF ? pending : PIPE_BUF;
}

void bps_run_sink_flush(struct bps_run_sink *sink)
{
    size_t n;
    while (sink->fd >= 0 && (n = ready(sink)) > 0) {
        ssize_t done = write(sink->fd, sink->data + sink->at, n);
        if (done >= 0) {
            sink->at += (size_t)done;
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            sink->error = errno;
            sink_close(sink);
            sink->at = sink->used = 0;
        }
    }
}

/* ---- streams ------------------------------------------------------------------------------------------- */

/* The length of the first line with its end, 0 if its end has not come yet. */
static size_t line_length(struct bps_run_stream *stream, size_t at)
{
    char *from = stream->data + at + stream->scanned;
    size_t n = stream->used - at - stream->scanned;
    char *end = memchr(from, '\n', n);
    if (stream->sink->terminal && *stream->prefix) {
        /* "\r\n" is one end, so a carriage return counts only when the byte behind it is known. */
        char *cr = memchr(from, '\r', end ? (size_t)(end - from) : n);
        if (cr && cr + 1 < from + n && cr[1] != '\n') {
            end = cr;
        }
    }
    if (!end) {
        stream->scanned += n > 0 && from[n - 1] == '\r' ? n - 1 : n;
        return 0;
    }
    stream->scanned = 0;
    return (size_t)(end - (stream->data + at)) + 1;
}

/* Tracebacks and the like end with a line that is not indented. */
static void keep_last(struct bps_run_stream *stream, const char *line, size_t n)
{
    if (stream->last && n > 1 && !strchr(" \t\r\n", line[0])) {
        size_t length = n < BPS_RUN_LAST ? n : BPS_RUN_LAST - 1;
        memcpy(stream->last, line, length);
        stream->last[length] = '\0';
        stream->last[strcspn(stream->last, "\r\n")] = '\0';
    }
}

static void emit(struct bps_run_stream *stream, const char *line, size_t n, bool is_broken)
{
    if (stream->record && n > 1 && line[0] == BPS_RUN_RECORD) {
        char text[512];
        size_t length = n - 2 < sizeof(text) - 1 ? n - 2 : sizeof(text) - 1; /* without the newline */
        memcpy(text, line + 1, length);
        text[length] = '\0';
        stream->record(stream->record_arg, text);
        return;
    }
    if (stream->log) {
        bps_run_sink_put(stream->log, line, n);
        bps_run_sink_put(stream->log, "\n", is_broken);
        bps_run_sink_flush(stream->log);
    }
    keep_last(stream, line, n);
    bps_run_sink_put(stream->sink, stream->prefix, strlen(stream->prefix));
    if (stream->sink->terminal && *stream->prefix) {
        bps_run_sink_put(stream->sink, "\033[K", 3); /* a longer progress bar may stand on this line */
    }
    bps_run_sink_put(stream->sink, line, n);
    bps_run_sink_put(stream->sink, "\n", is_broken);
}

static void emit_lines(struct bps_run_stream *stream)
{
    size_t at = 0, n;
    while (at < stream->used && (n = line_length(stream, at)) > 0) {
        emit(stream, stream->data + at, n, false);
        at += n;
    }
    if (stream->used - at >= LINE_LIMIT) {
        emit(stream, stream->data + at, stream->used - at, true);
        at = stream->used;
        stream->scanned = 0;
    }
    stream->used -= at;
    if (at && stream->used) {
        memmove(stream->data, stream->data + at, stream->used);
    }
}

bool bps_run_stream_read(struct bps_run_stream *stream)
{
    if (stream->fd < 0) {
        return false;
    }
    reserve(&stream->data, stream->used, &stream->size, READ_SIZE);
    ssize_t n = read(stream->fd, stream->data + stream->used, READ_SIZE);
    if (n > 0) {
        stream->used += (size_t)n;
        emit_lines(stream);
        return true;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        bps_run_stream_end(stream);
    }
    return false;
}

void bps_run_stream_drain(struct bps_run_stream *stream)
{
    for (int i = 0; i < 32 && bps_run_stream_read(stream); i++) {
    }
}

void bps_run_stream_end(struct bps_run_stream *stream)
{
    if (stream->fd < 0) {
        return;
    }
    if (stream->used) {
        emit(stream, stream->data, stream->used, true);
    }
    close(stream->fd);
    free(stream->data);
    free(stream->prefix);
    *stream = (struct bps_run_stream){.fd = -1};
}

char *bps_run_prefix(const char *label, int rank, bool color)
{
    static const int colors[] = {32, 36, 33, 35, 34, 92, 96, 93, 95, 94};
    if (!color) {
        return bps_cmd_print("[%s] ", label);
    }
    bool worker = strncmp(label, "worker", 6) == 0;
    int number = worker ? colors[(size_t)rank % (sizeof(colors) / sizeof(colors[0]))] : 90;
    return bps_cmd_print("\033[%dm[%s]\033[0m ", number, label);
}
