/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin_serves.c - asks the python3 of the PATH for the versions of frameworks. It looks into the records of what is
 * installed and imports nothing, which would take seconds. What it prints is foreign text.
 */
#include "tools/plugin_serves.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/cmd.h"

#define LIMIT_NS (10 * 1000000000ull)

/*
 * The first line is the interpreter, then one for each module. A package is often named otherwise than its module:
 * tensorflow-cpu has the module tensorflow. The current folder does not count.
 */
static const char script[] = "import importlib.metadata as metadata, importlib.util, sys\n"
                             "sys.path = [folder for folder in sys.path if folder]\n"
                             "versions = {}\n"
                             "for one in metadata.distributions():\n"
                             "    name = (one.metadata['Name'] or '').replace('-', '_')\n"
                             "    for module in [name, *(one.read_text('top_level.txt') or '').split()]:\n"
                             "        versions.setdefault(module, one.version)\n"
                             "print(sys.executable)\n"
                             "for module in sys.argv[1:]:\n"
                             "    there = importlib.util.find_spec(module) is not None\n"
                             "    print(versions.get(module, '?') if there else '-')\n";

/* ---- the question -------------------------------------------------------------------------------------- */

static void add_module(struct bps_serves *serves, const char *module)
{
    for (size_t i = 0; i < serves->count; i++) {
        if (strcmp(serves->items[i].module, module) == 0) {
            return;
        }
    }
    if (serves->count < BPS_SERVES_MAX) {
        serves->items[serves->count++].module = module;
    }
}

__attribute__((noreturn)) static void become_python(const struct bps_serves *serves, int out)
{
    const char *words[BPS_SERVES_MAX + 4] = {"python3", "-c", script};
    int nothing = open("/dev/null", O_RDWR);

    for (size_t i = 0; i < serves->count; i++) {
        words[3 + i] = serves->items[i].module;
    }
    if (nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 && dup2(nothing, STDERR_FILENO) >= 0 &&
        dup2(out, STDOUT_FILENO) >= 0) {
        execvp(words[0], (char *const *)words);
    }
    _exit(errno == ENOENT ? 127 : 126);
}

/* Reads to the end, at most n - 1 bytes; false: the time was over, or there was more. */
static bool read_all(int fd, char *buf, size_t n)
{
    uint64_t end = bps_now() + LIMIT_NS;
    size_t used = 0;

    for (;;) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        uint64_t now = bps_now();
        if (now >= end || used == n - 1) {
            return false;
        }
        if (poll(&poller, 1, (int)((end - now) / 1000000) + 1) <= 0) {
            continue;
        }
        ssize_t got = read(fd, buf + used, n - 1 - used);
        if (got <= 0) {
            buf[used] = '\0';
            return got == 0;
        }
        used += (size_t)got;
    }
}

/* Takes a line off the text; what cannot be printed becomes '?'. False: there is none. */
static bool take_line(char **text, char *out, size_t n)
{
    size_t length = strcspn(*text, "\n");

    if ((*text)[length] == '\0') {
        return false;
    }
    snprintf(out, n, "%.*s", (int)length, *text);
    for (char *c = out; *c; c++) {
        *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
    }
    *text += length + 1;
    return true;
}

static bool understand(struct bps_serves *serves, char *text)
{
    bool ok = take_line(&text, serves->python, sizeof serves->python);

    for (size_t i = 0; i < serves->count; i++) {
        ok = ok && take_line(&text, serves->items[i].version, sizeof serves->items[i].version);
    }
    return ok;
}

/* Leaves the answer, or the problem. */
static void ask(struct bps_serves *serves)
{
    char text[8192];
    int ends[2], status = 0;
    pid_t pid = -1;
    bool whole = false;

    if (pipe2(ends, O_CLOEXEC) == 0) {
        fflush(NULL);
        pid = fork();
        if (pid == 0) {
            become_python(serves, ends[1]);
        }
        close(ends[1]);
        whole = pid > 0 && read_all(ends[0], text, sizeof text);
        close(ends[0]);
    }
    if (pid < 0) {
        snprintf(serves->problem, sizeof serves->problem, "cannot start another process: %s", strerror(errno));
        return;
    }
    if (!whole) {
        kill(pid, SIGKILL);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (whole && WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        snprintf(serves->problem, sizeof serves->problem, "there is no python3 in the PATH");
    } else if (!whole || status != 0 || !understand(serves, text)) {
        snprintf(serves->problem, sizeof serves->problem, "the python3 of the PATH does not report its packages");
        serves->python[0] = '\0';
    }
}

void bps_serves_ask(struct bps_serves *out, const struct bps_plugin_row *rows, size_t count)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < rows[i].frameworks; j++) {
            add_module(out, rows[i].framework[j].module);
        }
    }
    if (out->count > 0) {
        ask(out);
    }
}

/* ---- the answer ---------------------------------------------------------------------------------------- */

/* Compares versions number by number: 2.9 is older than 2.13. */
static bool is_older(const char *version, const char *than)
{
    while (*than) {
        char *rest_version, *rest_than;
        unsigned long a = strtoul(version, &rest_version, 10), b = strtoul(than, &rest_than, 10);
        if (a != b) {
            return a < b;
        }
        version = rest_version + (*rest_version == '.');
        than = rest_than + (*rest_than == '.');
        if (rest_than == than) {
            break;
        }
    }
    return false;
}

static const char *version_of(const struct bps_serves *serves, const char *module)
{
    for (size_t i = 0; serves->python[0] && i < serves->count; i++) {
        if (strcmp(serves->items[i].module, module) == 0) {
            return serves->items[i].version;
        }
    }
    return "?";
}

/* Why it cannot be used; NULL: it can, or nobody knows. */
static const char *problem_of(const struct bps_serves *serves, const struct bps_framework_note_body *note)
{
    const char *version = version_of(serves, note->module);

    if (!serves->python[0]) {
        return serves->problem;
    }
    if (strcmp(version, "-") == 0) {
        return "not installed";
    }
    return strcmp(version, "?") != 0 && is_older(version, note->oldest) ? "too old" : NULL;
}

static bool any_version(const struct bps_framework_note_body *note)
{
    return strcmp(note->oldest, "0") == 0;
}

static void print_one(const struct bps_serves *serves, const struct bps_framework_note_body *note)
{
    const char *version = version_of(serves, note->module), *problem = problem_of(serves, note);

    printf("    serves %s", note->module);
    if (!any_version(note)) {
        printf(" %s or later", note->oldest);
    }
    if (!serves->python[0]) {
        printf(": %s\n", problem);
    } else if (strcmp(version, "-") == 0) {
        printf(": not installed for %s\n", serves->python);
    } else {
        printf(": %s found for %s%s\n", strcmp(version, "?") == 0 ? "a version that is not recorded" : version,
               serves->python, problem ? ", which is too old" : "");
    }
}

void bps_serves_print(const struct bps_serves *serves, const struct bps_plugin_row *row)
{
    for (uint32_t i = 0; i < row->frameworks; i++) {
        print_one(serves, &row->framework[i]);
    }
}

static json_t *text_or_null(const char *text)
{
    json_t *json = text && *text ? json_string(text) : NULL;

    return json ? json : json_null();
}

json_t *bps_serves_json(const struct bps_serves *serves, const struct bps_plugin_row *row)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < row->frameworks; i++) {
        const struct bps_framework_note_body *note = &row->framework[i];
        const char *version = version_of(serves, note->module);
        bool known = strcmp(version, "?") != 0 && strcmp(version, "-") != 0;
        json_t *json = json_object();
        json_object_set_new(json, "module", text_or_null(note->module));
        json_object_set_new(json, "oldest", text_or_null(any_version(note) ? NULL : note->oldest));
        json_object_set_new(json, "python", text_or_null(serves->python));
        json_object_set_new(json, "found", text_or_null(known ? version : NULL));
        json_object_set_new(json, "problem", text_or_null(problem_of(serves, note)));
        json_array_append_new(list, json);
    }
    return list;
}
