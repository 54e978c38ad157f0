/* SPDX-License-Identifier: Apache-2.0 */
/* run_hosts.c - the hosts of a job, and how many workers each has: from --hosts, or from a file as mpirun reads it. */
#include "tools/run.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool parse_slots(const char *text, int *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < 1 || value > BPS_RUN_SLOTS_LIMIT) {
        return false;
    }
    *out = (int)value;
    return true;
}

/* "name", "name:2" or "[::1]:2", split in place. */
static bool split_host(char *word, char **name, char **slots)
{
    *name = *word == '[' ? word + 1 : word;
    char *end = strchr(word, *word == '[' ? ']' : ':');
    if (*word == '[') {
        if (!end || (end[1] && end[1] != ':')) {
            return false;
        }
        *end++ = '\0';
    }
    *slots = end && *end ? end + 1 : NULL;
    if (end) {
        *end = '\0';
    }
    return true;
}

/* One that begins with '-' would be an option of ssh. */
static bool is_name(const char *name)
{
    bool good = *name != '\0' && *name != '-';
    for (const char *c = name; *c; c++) {
        good = good && !iscntrl((unsigned char)*c) && !strchr(" ,[]", *c);
    }
    return good;
}

static bool parse_host(char *word, struct bps_run_host *out)
{
    char *slots;
    *out = (struct bps_run_host){.slots = 1};
    bool good = split_host(word, &out->name, &slots) && is_name(out->name);
    good = good && (!slots || parse_slots(slots, &out->slots));
    out->size = out->slots;
    return good;
}

int bps_run_hosts_parse(struct bps_run_options *o, const char *option, const char *text)
{
    if (o->hosts) {
        return bps_cmd_usage(BPS_RUN_NAME, "%s: the hosts are given twice", option);
    }
    size_t count = 1;
    for (const char *c = text; *c; c++) {
        count += *c == ',';
    }
    o->hosts = bps_run_keep(o, bps_cmd_alloc(count, sizeof(*o->hosts)));
    for (o->nhosts = 0; o->nhosts < count; o->nhosts++) {
        size_t n = strcspn(text, ",");
        char *word = bps_run_keep(o, bps_cmd_print("%.*s", (int)n, text));
        if (!parse_host(word, &o->hosts[o->nhosts])) {
            return bps_cmd_usage(BPS_RUN_NAME, "%s: '%.*s' is not a host; expected NAME or NAME:WORKERS", option,
                                 (int)n, text);
        }
        o->hosts[o->nhosts].machine = (int)o->nhosts;
        text += n + (text[n] == ',');
    }
    o->plan.machines = (int)count;
    return -1;
}

/* ---- a script ---- */

struct bps_run_host *bps_run_hosts_of_lines(char *text, size_t *count, struct bps_report *why)
{
    size_t lines = 1, number = 0;
    for (const char *c = text; *c; c++) {
        lines += *c == '\n';
    }
    struct bps_run_host *hosts = bps_cmd_alloc(lines, sizeof(*hosts));
    *count = 0;
    for (char *line; (line = strsep(&text, "\n"));) {
        size_t n = strlen(line);
        number++;
        while (n > 0 && isspace((unsigned char)line[n - 1])) {
            line[--n] = '\0';
        }
        char *copy = bps_cmd_print("%s", line);
        bool good = n == 0 || parse_host(line, &hosts[*count]);
        if (!good) {
            bps_fail(why, BPS_ERR_CONF, "line %zu: '%.80s' is not a host; expected NAME or NAME:WORKERS", number, copy);
            bps_make_printable(why->text);
        }
        free(copy);
        if (!good) {
            free(hosts);
            return NULL;
        }
        *count += n > 0;
    }
    return hosts;
}

/* ---- a file ---- */

/* Adds what a line names, "name", "name:2" or "name slots=2", to "a:2,b:2". False: it is no such line. */
static bool add_line(FILE *list, char *line, bool first)
{
    char *rest = line, *name, *slots, *more;
    line[strcspn(line, "#")] = '\0';
    name = strtok_r(rest, " \t\r\n", &rest);
    slots = name ? strtok_r(NULL, " \t\r\n", &rest) : NULL;
    more = slots ? strtok_r(NULL, " \t\r\n", &rest) : NULL;
    if (!name) {
        return true;
    }
    fprintf(list, "%s%s", first ? "" : ",", name);
    if (slots) {
        fprintf(list, ":%s", slots + 6);
    }
    return !more && !strchr(name, ',') && (!slots || (strncmp(slots, "slots=", 6) == 0 && slots[6]));
}

/* The file as a text like that of --hosts. Returns -1, or an exit status after a message. */
static int read_lines(FILE *file, const char *path, FILE *list)
{
    char *line = NULL;
    size_t size = 0;
    int number = 0, status = -1;
    while (status < 0 && getline(&line, &size, file) > 0) {
        char *copy = bps_cmd_print("%.*s", (int)strcspn(line, "\n"), line);
        number++;
        if (!add_line(list, line, ftell(list) == 0)) {
            status = bps_cmd_usage(BPS_RUN_NAME,
                                   "--hostfile %s:%d: '%s' is not a host; expected NAME, NAME:WORKERS or "
                                   "NAME slots=WORKERS",
                                   path, number, copy);
        }
        free(copy);
    }
    free(line);
    return status;
}

int bps_run_hosts_read(struct bps_run_options *o, const char *path)
{
    char *text = NULL;
    size_t size;
    FILE *file = fopen(path, "re"), *list = file ? open_memstream(&text, &size) : NULL;
    int status = list ? read_lines(file, path, list) : 0;
    if (!list) {
        status = bps_cmd_failure(BPS_RUN_NAME, "--hostfile %s: %s", path, strerror(errno));
    } else if (fclose(list) != 0 && status < 0) {
        status = bps_cmd_failure(BPS_RUN_NAME, "--hostfile %s: out of memory", path);
    }
    if (file) {
        fclose(file);
    }
    if (status < 0 && !*text) {
        status = bps_cmd_usage(BPS_RUN_NAME, "--hostfile %s: there is no host in it", path);
    }
    if (status < 0) {
        char *option = bps_run_keep(o, bps_cmd_print("--hostfile %s", path));
        status = bps_run_hosts_parse(o, option, text);
    }
    free(text);
    return status;
}
