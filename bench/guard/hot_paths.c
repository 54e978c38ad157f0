/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hot_paths.c - runs one case: hot_paths NAME. instructions.py runs it below callgrind, which counts while
 * hot_path_count() is on the stack. Without a name it lists the cases, and how often each is counted.
 */
#include "hot_paths.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const struct hot_path *const lists[] = {hot_paths_core, hot_paths_reducer, hot_paths_sum, hot_paths_transport,
                                               hot_paths_job};
#define LISTS (sizeof lists / sizeof *lists)

void hot_path_count(const struct hot_path *path);

void hot_path_need(bool holds, const char *format, ...)
{
    va_list arguments;
    if (holds) {
        return;
    }
    fputs("hot_paths: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

struct bps_instance *hot_path_reducer(void)
{
    struct bps_conf_node isa = {.name = "isa", .text = "baseline", .origin = "hot_paths"};
    struct bps_conf_node *children[] = {&isa};
    const struct bps_conf_node options = {
        .kind = BPS_CONF_GROUP, .origin = "hot_paths", .children = children, .count = 1};
    struct bps_instance *reducer;
    struct bps_report report = {""};
    bps_status status =
        bps_instance_open(BPS_KIND_REDUCER, "cpu", "sum", &options, "reducers.sum", NULL, &reducer, &report);
    hot_path_need(status == BPS_OK, "%s", report.text);
    return reducer;
}

/* Never inlined: callgrind knows it by its name. */
__attribute__((noinline)) void hot_path_count(const struct hot_path *path)
{
    for (unsigned i = 0; i < path->times; i++) {
        path->run();
    }
}

static void print_list(void)
{
    for (size_t i = 0; i < LISTS; i++) {
        for (const struct hot_path *path = lists[i]; path->name != NULL; path++) {
            printf("%s %u\n", path->name, path->times);
        }
    }
}

static const struct hot_path *find(const char *name)
{
    for (size_t i = 0; i < LISTS; i++) {
        for (const struct hot_path *path = lists[i]; path->name != NULL; path++) {
            if (strcmp(path->name, name) == 0) {
                return path;
            }
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        print_list();
        return 0;
    }
    const struct hot_path *path = find(argv[1]);
    hot_path_need(path != NULL, "there is no case '%s'", argv[1]);
    path->open(path->arg);
    for (unsigned i = 0; i < path->times; i++) {
        path->run(); /* until memory, queues and the C library are as in the middle of a job */
    }
    hot_path_count(path);
    return 0;
}
