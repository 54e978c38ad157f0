/* SPDX-License-Identifier: Apache-2.0 */
/* conf_findings.c - what `byteps conf check` finds: lines for people, or JSON for programs. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/conf.h"

void bps_findings_begin(struct bps_findings *findings, const struct bps_conf_command *command)
{
    const char *variable = getenv("BYTEPS_CONF");
    *findings = (struct bps_findings){
        .json = command->json,
        .file = command->conf.file != NULL              ? command->conf.file
                : variable != NULL && *variable != '\0' ? variable
                                                        : NULL,
        .files = json_array(),
        .settings = json_array(),
        .errors = json_array(),
        .warnings = json_array(),
    };
}

void bps_findings_source(void *arg, const char *name, bool is_file)
{
    struct bps_findings *findings = arg;
    bps_text_add(&findings->sources, "%s%s", findings->sources.length > 0 ? ", " : "", name);
    json_array_append_new(is_file ? findings->files : findings->settings, bps_conf_json_text(name));
}

/* ---- the parts of a message ---- */

/* What is behind the name of a file in a message that begins with it; NULL: another file is meant. */
static const char *behind(const char *text, const char *file)
{
    size_t n = file == NULL ? 0 : strlen(file);
    return n > 0 && strncmp(text, file, n) == 0 && text[n] == ':' ? text + n : NULL;
}

/* The same for any file that there may be; NULL: the message does not begin with one. */
static const char *behind_file(const struct bps_findings *findings, const char *text)
{
    const char *rest = behind(text, findings->file);
    for (size_t i = 0; rest == NULL && i < json_array_size(findings->files); i++) {
        rest = behind(text, json_string_value(json_array_get(findings->files, i)));
    }
    return rest != NULL || text[0] != '/' ? rest : strchr(text, ':'); /* a system-wide one that cannot be read */
}

/* How long a key is at the start of a text, with ": " or " = " behind it; 0: there is none. */
static size_t key_length(const char *text)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || (text[n] != '\0' && strchr("_-.[]", text[n]) != NULL)) {
        n++;
    }
    return strncmp(text + n, ": ", 2) == 0 || strncmp(text + n, " = ", 3) == 0 ? n : 0;
}

/* Of "FILE:LINE: KEY = VALUE: why" and the like, as much as is there. */
static json_t *json_problem(const struct bps_findings *findings, const char *text)
{
    json_t *json = json_pack("{s:n, s:n, s:n, s:o}", "file", "line", "key", "text", bps_conf_json_text(text));
    const char *rest = behind_file(findings, text);
    if (rest != NULL) {
        char *file = bps_cmd_print("%.*s", (int)(rest - text), text), *end;
        long line = strtol(rest + 1, &end, 10);
        json_object_set_new(json, "file", bps_conf_json_text(file));
        free(file);
        if (isdigit((unsigned char)rest[1]) && *end == ':') {
            json_object_set_new(json, "line", json_integer(line));
            rest = end;
        }
    } else {
        rest = strstr(text, ": ");
    }
    size_t n = rest == NULL || strlen(rest) < 2 ? 0 : key_length(rest + 2);
    if (n > 0) {
        json_object_set_new(json, "key", json_stringn(rest + 2, n));
    }
    return json;
}

/* ---- telling ---- */

void bps_findings_problem(void *arg, const char *text)
{
    struct bps_findings *findings = arg;
    findings->problems++;
    if (findings->json) {
        json_array_append_new(findings->errors, json_problem(findings, text));
    } else {
        fprintf(stderr, "%s\n", text);
    }
}

void bps_findings_note(void *arg, const char *text)
{
    struct bps_findings *findings = arg;
    if (findings->json) {
        json_array_append_new(findings->warnings, bps_conf_json_text(text));
    } else {
        printf("note: %s\n", text);
    }
}

static void print_end(const struct bps_findings *findings)
{
    const char *sources = findings->sources.data;
    printf("read: %s\n", sources != NULL ? sources : "no file, so that all values are defaults");
    if (findings->problems == 0) {
        printf("%s: ok\n", findings->file != NULL ? findings->file : "configuration");
    }
}

int bps_findings_end(struct bps_findings *findings)
{
    int status = findings->problems == 0 ? 0 : BPS_EXIT_FAILURE;
    json_t *all = json_pack("{s:b, s:o, s:o, s:o, s:o}", "ok", status == 0, "files", findings->files, "settings",
                            findings->settings, "errors", findings->errors, "warnings", findings->warnings);
    if (findings->json) {
        if (all == NULL || json_dumpf(all, stdout, JSON_INDENT(2)) != 0) {
            status = bps_cmd_failure("conf", "cannot write JSON");
        }
        putchar('\n');
    } else {
        print_end(findings);
    }
    json_decref(all);
    bps_text_free(&findings->sources);
    return status;
}
