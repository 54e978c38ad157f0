/* SPDX-License-Identifier: Apache-2.0 */
/* source.c - reads configuration files, follows @include, and refuses what no configuration looks like. */
#include "conf/source.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/report.h"

#define TEXT_MAX    (256u << 10) /* bytes of a configuration with all that it includes */
#define DEPTH_MAX   8u           /* files that include each other */
#define FILES_MAX   256u         /* includes in all */
#define NESTING_MAX 32u          /* brackets within each other */
#define DIGITS_MAX  18u          /* of a whole number: libconfig takes more, but gives back other numbers */

/* Some editors begin files of UTF-8 with it. */
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

/* What the scanner is in, as libconfig sees it. */
enum state { CODE, LINE_COMMENT, BLOCK_COMMENT, STRING };

struct scan {
    struct bps_source *source;
    const char *file; /* in the arena */
    const char *at, *end;
    unsigned line;
    enum state state;
    unsigned opened; /* line on which the comment or string began */
    bool fresh;      /* nothing before on this line */
    unsigned nesting;
    unsigned brackets[NESTING_MAX]; /* lines on which they were opened */
    unsigned depth;                 /* of includes */
    struct bps_report *report;
};

static bps_status scan_text(struct scan *scan);

/* ---- the text and its lines ---- */

static bps_status add_line(struct scan *scan)
{
    struct bps_source *source = scan->source;
    if (!bps_array_reserve(source->lines, source->lines_room, source->count + 1)) {
        return bps_out_of_memory(scan->report);
    }
    source->lines[source->count++] = (struct bps_source_line){scan->file, scan->line};
    return BPS_OK;
}

static bps_status add_byte(struct scan *scan, char byte)
{
    struct bps_source *source = scan->source;
    if (source->text.length >= TEXT_MAX) {
        return bps_fail(scan->report, BPS_ERR_CONF,
                        "%.800s: too large; a configuration has at most %u KiB with all that it includes", scan->file,
                        TEXT_MAX >> 10);
    }
    bps_text_add(&source->text, "%c", byte);
    bps_text_add(&source->code, "%c", byte);
    if (source->text.failed || source->code.failed) {
        return bps_out_of_memory(scan->report);
    }
    return byte == '\n' ? add_line(scan) : BPS_OK;
}

/* ---- reading files ---- */

static bps_status refuse_file(const char *path, const char *why, struct bps_report *report)
{
    return bps_fail(report, BPS_ERR_CONF, "%.800s: %s", path, why);
}

/* The whole of an open file, at most one byte more than is allowed; freed by the caller. */
static bps_status read_all(int fd, const char *path, char **out, size_t *n, struct bps_report *report)
{
    char *data = malloc(TEXT_MAX + 1);
    if (data == NULL) {
        return bps_out_of_memory(report);
    }
    size_t length = 0;
    while (length <= TEXT_MAX) {
        ssize_t got = read(fd, data + length, TEXT_MAX + 1 - length);
        if (got == 0) {
            break;
        }
        if (got < 0 && errno != EINTR) {
            BPS_REPORT(report, "%.800s: cannot be read: %s", path, strerror(errno));
            free(data);
            return BPS_ERR_CONF;
        }
        length += got > 0 ? (size_t)got : 0;
    }
    *out = data;
    *n = length;
    return BPS_OK;
}

static bps_status source_read_file(const char *path, bool optional, char **out, size_t *n, struct bps_report *report)
{
    /* Without O_NONBLOCK the open of a pipe that nobody writes to would never return. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        if (optional && (errno == ENOENT || errno == ENOTDIR)) {
            return BPS_ERR_IO;
        }
        return bps_fail(report, BPS_ERR_CONF, "%.800s: cannot be opened: %s", path, strerror(errno));
    }
    struct stat info;
    bps_status status;
    if (fstat(fd, &info) != 0) {
        status = refuse_file(path, strerror(errno), report);
    } else if (S_ISDIR(info.st_mode)) {
        status = refuse_file(path, "is a directory; expected a configuration file", report);
    } else {
        fcntl(fd, F_SETFL, 0);
        status = read_all(fd, path, out, n, report);
    }
    close(fd);
    return status;
}

/* ---- scanning ---- */

static bps_status refuse_line(const struct scan *scan, unsigned line, const char *why)
{
    return bps_fail(scan->report, BPS_ERR_CONF, "%.800s:%u: %s", scan->file, line, why);
}

static bool is_looking_at(const struct scan *scan, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(scan->end - scan->at) >= n && memcmp(scan->at, word, n) == 0;
}

/* The file that `name` means in a line of the file `from`; in the arena, NULL: no memory. */
static char *included_path(struct bps_arena *arena, const char *from, const char *name, size_t n)
{
    const char *slash = strrchr(from, '/');
    if (name[0] == '/' || slash == NULL) {
        return bps_arena_format(arena, "%.*s", (int)n, name);
    }
    return bps_arena_format(arena, "%.*s/%.*s", (int)(slash - from), from, (int)n, name);
}

/* Puts a file in the place of the line that includes it. */
static bps_status include_file(struct scan *scan, const char *name, size_t n)
{
    if (scan->depth + 1 >= DEPTH_MAX || scan->source->files++ >= FILES_MAX) {
        return refuse_line(scan, scan->line, "too many files are included; check whether they include each other");
    }
    struct scan inner = *scan;
    inner.file = included_path(scan->source->arena, scan->file, name, n);
    if (inner.file == NULL) {
        return bps_out_of_memory(scan->report);
    }
    char *data = NULL;
    struct bps_report why;
    bps_status status = source_read_file(inner.file, false, &data, &n, &why);
    if (status != BPS_OK) {
        BPS_REPORT(scan->report, "%.400s:%u: @include: %.600s", scan->file, scan->line, why.text);
        return status;
    }
    bps_source_tell(scan->source->sources, inner.file, true);
    inner.at = data;
    inner.end = data + n;
    inner.line = 1;
    inner.fresh = true;
    inner.depth++;
    status = scan_text(&inner);
    free(data);
    scan->nesting = inner.nesting; /* less than before if the file closes a bracket of this one */
    return status;
}

/* At the start of a line: handles `@include "FILE"` if it is there. */
static bps_status scan_include(struct scan *scan, bool *found)
{
    const char *start = scan->at;
    *found = false;
    while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\t')) {
        scan->at++;
    }
    if (!is_looking_at(scan, "@include")) {
        scan->at = start;
        return BPS_OK;
    }
    *found = true;
    scan->at += strlen("@include");
    while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\t')) {
        scan->at++;
    }
    const char *name = scan->at + 1;
    size_t left = scan->at < scan->end ? (size_t)(scan->end - name) : 0;
    const char *quote = left != 0 && *scan->at == '"' ? memchr(name, '"', left) : NULL;
    if (quote == NULL || quote == name || memchr(name, '\n', (size_t)(quote - name)) != NULL ||
        memchr(name, '\0', (size_t)(quote - name)) != NULL) {
        return refuse_line(scan, scan->line, "@include without a file; expected @include \"FILE\"");
    }
    scan->at = quote + 1;
    scan->fresh = false;
    return include_file(scan, name, (size_t)(quote - name));
}

static void scan_bracket(struct scan *scan, char byte)
{
    if (byte == '{' || byte == '(' || byte == '[') {
        if (scan->nesting < NESTING_MAX) {
            scan->brackets[scan->nesting] = scan->line;
        }
        scan->nesting++;
    } else if ((byte == '}' || byte == ')' || byte == ']') && scan->nesting > 0) {
        scan->nesting--;
    }
}

/* Follows comments, strings and brackets. Returns how many bytes belong together: 1 or 2. */
static size_t scan_state(struct scan *scan)
{
    char byte = *scan->at;
    switch (scan->state) {
    case CODE:
        scan->opened = scan->line;
        if (is_looking_at(scan, "/*")) {
            scan->state = BLOCK_COMMENT;
            return 2;
        }
        scan->state = byte == '#' || is_looking_at(scan, "//") ? LINE_COMMENT : byte == '"' ? STRING : CODE;
        scan_bracket(scan, byte);
        return 1;
    case LINE_COMMENT:
        scan->state = byte == '\n' ? CODE : LINE_COMMENT;
        return 1;
    case BLOCK_COMMENT:
        if (is_looking_at(scan, "*/")) {
            scan->state = CODE;
            return 2;
        }
        return 1;
    case STRING:
        if (is_looking_at(scan, "\\\"") || is_looking_at(scan, "\\\\")) {
            return 2;
        }
        scan->state = byte == '"' ? CODE : STRING;
        return 1;
    }
    return 1;
}

static bool is_of_name(char byte)
{
    return isalnum((unsigned char)byte) || byte == '_' || byte == '-' || byte == '*';
}

/* Whether digits here begin a number: they may follow a sign, but are not the rest of a name or a fraction. */
static bool begins_number(const struct scan *scan)
{
    const char *text = scan->source->text.data;
    size_t n = scan->source->text.length;
    if (scan->state != CODE || !isdigit((unsigned char)*scan->at)) {
        return false;
    }
    n -= n > 0 && (text[n - 1] == '-' || text[n - 1] == '+');
    return n == 0 || (!is_of_name(text[n - 1]) && text[n - 1] != '.');
}

/* A whole number as it is written, without what libconfig may want behind it. */
struct number {
    size_t length; /* bytes; 0: there is none here */
    bool is_long;  /* it has more digits than libconfig gives back */
};

static struct number whole_number(const struct scan *scan)
{
    if (!begins_number(scan)) {
        return (struct number){0, false};
    }
    bool hex = is_looking_at(scan, "0x") || is_looking_at(scan, "0X");
    const char *digits = scan->at + (hex ? 2 : 0), *at = digits;
    while (at < scan->end && (hex ? isxdigit((unsigned char)*at) : isdigit((unsigned char)*at))) {
        at++;
    }
    size_t n = (size_t)(at - digits);
    if (n == 0 || (!hex && at < scan->end && strchr(".eE", *at) != NULL && *at != '\0')) {
        return (struct number){0, false};
    }
    return (struct number){(size_t)(at - scan->at), n > (hex ? 15 : DIGITS_MAX)};
}

/* Copies what scan_state() has seen. */
static bps_status scan_copy(struct scan *scan, size_t n)
{
    for (; n > 0; n--) {
        char byte = *scan->at++;
        if (byte == '\0') {
            return refuse_line(scan, scan->line, "a zero byte; expected text, is this a configuration file?");
        }
        bps_status status = add_byte(scan, byte);
        if (status != BPS_OK) {
            return status;
        }
        scan->fresh = byte == '\n';
        scan->line += byte == '\n';
    }
    return BPS_OK;
}

/* libconfig keeps 32 bits of a number unless an L follows, which people do not know. */
static bps_status scan_number(struct scan *scan, const struct number *number)
{
    if (number->is_long) {
        return refuse_line(scan, scan->line, "a number with too many digits; write it in quotes");
    }
    bps_status status = scan_copy(scan, number->length);
    if (status == BPS_OK && !is_looking_at(scan, "L")) {
        bps_text_add(&scan->source->code, "L");
        status = scan->source->code.failed ? bps_out_of_memory(scan->report) : BPS_OK;
    }
    return status;
}

/* What a file must not leave open; `nesting` is how many brackets were open before it. */
static bps_status check_end(const struct scan *scan, unsigned nesting)
{
    if (scan->state == STRING) {
        return refuse_line(scan, scan->opened, "a string that does not end; \" is missing");
    }
    if (scan->state == BLOCK_COMMENT) {
        return refuse_line(scan, scan->opened, "a comment that does not end; */ is missing");
    }
    if (scan->nesting > nesting) {
        return refuse_line(scan, scan->brackets[scan->nesting - 1], "a bracket that is not closed");
    }
    return BPS_OK;
}

static bps_status scan_text(struct scan *scan)
{
    unsigned nesting = scan->nesting;
    bps_status status = BPS_OK;
    if (is_looking_at(scan, BYTE_ORDER_MARK)) {
        scan->at += strlen(BYTE_ORDER_MARK);
    }
    while (status == BPS_OK && scan->at < scan->end) {
        bool found = false;
        if (scan->state == CODE && scan->fresh) {
            status = scan_include(scan, &found);
        }
        if (status != BPS_OK || found) {
            continue;
        }
        struct number number = whole_number(scan);
        if (number.length > 0) {
            status = scan_number(scan, &number);
            continue;
        }
        size_t n = scan_state(scan);
        if (scan->nesting > NESTING_MAX) {
            return refuse_line(scan, scan->line, "brackets are nested too deep");
        }
        status = scan_copy(scan, n);
    }
    if (status == BPS_OK) {
        status = check_end(scan, nesting);
    }
    if (status == BPS_OK && !scan->fresh) {
        status = add_byte(scan, '\n'); /* also ends a comment before the including file goes on */
    }
    return status;
}

/* ---- entries ---- */

void bps_source_tell(const struct bps_conf_sources *sources, const char *name, bool is_file)
{
    if (sources != NULL) {
        sources->source(sources->arg, name, is_file);
    }
}

bps_status bps_source_text(struct bps_source *source, const char *name, const char *text, size_t n,
                           struct bps_report *report)
{
    struct scan scan = {
        .source = source,
        .file = bps_arena_copy(source->arena, name),
        .at = text,
        .end = text + n,
        .line = 1,
        .fresh = true,
        .report = report,
    };
    return scan.file == NULL ? bps_out_of_memory(report) : scan_text(&scan);
}

bps_status bps_source_file(struct bps_source *source, const char *path, bool optional, struct bps_report *report)
{
    char *data = NULL;
    size_t n = 0;
    bps_status status = source_read_file(path, optional, &data, &n, report);
    if (status == BPS_OK) {
        bps_source_tell(source->sources, path, true);
        status = bps_source_text(source, path, data, n, report);
    }
    free(data);
    return status;
}

void bps_source_free(struct bps_source *source)
{
    bps_text_free(&source->text);
    bps_text_free(&source->code);
    free(source->lines);
    source->lines = NULL;
}

struct bps_source_line bps_source_origin(const struct bps_source *source, unsigned line)
{
    if (source->count == 0) {
        return (struct bps_source_line){"?", 0};
    }
    size_t i = line == 0 ? 0 : line - 1;
    return source->lines[i < source->count ? i : source->count - 1];
}
