/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf_sample.c - `byteps conf sample`: a configuration file from the tables of the core and of the plugins.
 *
 * Explanations begin with "# ", defaults with "#" alone. So the sample is valid as it is, and with any of its
 * defaults uncommented.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/option.h"
#include "conf/schema.h"
#include "plugin/registry.h"
#include "tools/conf.h"

/* ---- rows --------------------------------------------------------------------------------------------- */

#define WIDTH 100

/* "# ..." in as many lines as it takes. */
__attribute__((format(printf, 2, 3))) static void print_comment(int indent, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int column = printf("%*s#", indent, "");
    char *place = NULL;
    for (char *word = strtok_r(text, " \n", &place); word != NULL; word = strtok_r(NULL, " \n", &place)) {
        if (column > indent + 1 && column + 1 + (int)strlen(word) > WIDTH) {
            column = printf("\n%*s#", indent, "") - 1;
        }
        column += printf(" %s", word);
    }
    putchar('\n');
}

/* A default as libconfig writes it. */
static void print_default(const struct bps_option *row)
{
    const char *text = row->fallback == NULL ? "" : row->fallback;
    struct bps_text value = {0};
    if (row->type == BPS_OPT_DOUBLE) {
        bps_text_add(&value, "%s", text);
    } else {
        bps_text_scalar(&value, text);
    }
    printf("%s = %s;", row->name, value.data == NULL ? "\"\"" : value.data);
    bps_text_free(&value);
}

static void print_row(int indent, const struct bps_option *row)
{
    char allowed[512];
    bps_option_expected(row, allowed, sizeof allowed);
    print_comment(indent, "%s", row->help);
    print_comment(indent, "Expected: %s%s", allowed,
                  row->flags & BPS_OPT_AGREE ? "; equal on all members of the job" : "");
    printf("%*s#", indent, "");
    print_default(row);
    putchar('\n');
}

/* ---- plugins ------------------------------------------------------------------------------------------ */

/* For bps_plugin_each(): the plugins of one kind, each name once. */
struct finder {
    size_t count;
    char name[64][32];
};

static void find(void *arg, const struct bps_plugin_row *row)
{
    struct finder *finder = arg;
    bool room = finder->count < sizeof finder->name / sizeof *finder->name;
    if (row->refusal[0] != '\0' || !room) {
        return;
    }
    for (size_t i = 0; i < finder->count; i++) {
        if (strcmp(finder->name[i], row->name) == 0) {
            return;
        }
    }
    memcpy(finder->name[finder->count++], row->name, sizeof row->name);
}

static void find_plugins(uint32_t kind, struct finder *out)
{
    struct bps_report report;
    *out = (struct finder){0};
    if (bps_plugin_each(kind, find, out, &report) != BPS_OK) {
        print_comment(0, "The plugins cannot be listed: %s", report.text);
    }
}

static const struct bps_loaded *open_plugin(uint32_t kind, const char *name, int indent)
{
    const struct bps_loaded *loaded = NULL;
    struct bps_report report;
    if (bps_plugin_open(kind, name, NULL, &loaded, &report) != BPS_OK) {
        putchar('\n');
        print_comment(indent, "The plugin %s cannot be used: %s", name, report.text);
        return NULL;
    }
    putchar('\n');
    print_comment(indent, "Plugin %s %s: %s", name, loaded->module->version, loaded->plugin->summary);
    return loaded;
}

/* The default instance of this plugin; NULL: there is none. */
static const struct bps_default_instance *find_default(const struct bps_instance_map *map, const char *plugin)
{
    const struct bps_default_instance *d = map->defaults;
    while (d->name != NULL && strcmp(d->plugin, plugin) != 0) {
        d++;
    }
    return d->name != NULL ? d : NULL;
}

/* An instance of a plugin; those that are defaults are open, all others are comments. */
static void print_instance(const struct bps_instance_map *map, const char *plugin)
{
    const struct bps_loaded *loaded = open_plugin(map->kind, plugin, 4);
    const struct bps_default_instance *standard = find_default(map, plugin);
    if (loaded == NULL && standard == NULL) {
        return;
    }
    const char *comment = standard != NULL ? "" : "#";
    printf("    %s%s = {\n        #plugin = \"%s\";\n", comment, standard != NULL ? standard->name : plugin, plugin);
    const struct bps_option *row = loaded == NULL ? NULL : loaded->plugin->options;
    for (; row != NULL && row->name != NULL; row++) {
        putchar('\n');
        print_row(8, row);
    }
    printf("    %s};\n", comment);
}

/* A map without defaults is a comment, as a whole. */
static void print_map(const struct bps_instance_map *map)
{
    const char *comment = map->defaults[0].name != NULL ? "" : "#";
    struct finder finder;
    find_plugins(map->kind, &finder);
    if (finder.count == 0 && map->defaults[0].name == NULL) {
        return;
    }
    printf("\n# %s\n%s%s = {", map->help, comment, map->name);
    for (const struct bps_default_instance *d = map->defaults; d->name != NULL; d++) {
        print_instance(map, d->plugin);
    }
    for (size_t i = 0; i < finder.count; i++) {
        if (find_default(map, finder.name[i]) == NULL) {
            print_instance(map, finder.name[i]);
        }
    }
    printf("%s};\n", comment);
}

/* ---- stages ------------------------------------------------------------------------------------------- */

static void print_stage(const char *name)
{
    const struct bps_loaded *loaded = open_plugin(BPS_KIND_STAGE, name, 4);
    const struct bps_option *row = loaded == NULL ? NULL : loaded->plugin->options;
    if (loaded == NULL) {
        return;
    }
    printf("    #   { stage = \"%s\"; ", name);
    for (const struct bps_option *next = row; next != NULL && next->name != NULL; next++) {
        print_default(next);
        putchar(' ');
    }
    printf("}\n");
    for (; row != NULL && row->name != NULL; row++) {
        char allowed[512];
        bps_option_expected(row, allowed, sizeof allowed);
        print_comment(4, "%s: %s Expected: %s", row->name, row->help, allowed);
    }
}

/* A stage in each line; no line has a blank after its '#'. */
static void print_default_graph(void)
{
    const char *rest = BPS_GRAPH_DEFAULT, *end, *begin = "    #graph = ";
    while ((end = strstr(rest, "}, ")) != NULL) {
        printf("%s%.*s\n", begin, (int)(end + 2 - rest), rest);
        begin = "              #";
        rest = end + 3;
    }
    printf("%s%s;\n", begin, rest);
}

static void print_graph(void)
{
    putchar('\n');
    print_comment(4, "The stages that a tensor passes, in order: the built-in push_pull, exactly once; "
                     "around it the built-in pair local_reduce and local_broadcast, with which the workers "
                     "of a host sum first; and plugins of kind stage with their options, which may have a "
                     "condition such as when = \"bytes >= 64 KiB\".");
    print_comment(4, "Expected: a list of groups; equal on all members of the job");
    print_default_graph();
    struct finder finder;
    find_plugins(BPS_KIND_STAGE, &finder);
    for (size_t i = 0; i < finder.count; i++) {
        print_stage(finder.name[i]);
    }
}

int bps_conf_command_sample(void)
{
    print_comment(0, "A sample of byteps.conf with all keys; byteps.conf(5) explains the form. Lines that "
                     "begin with '# ' are explanations. Where no blank follows the '#', the line is a "
                     "default: remove the '#' to change it.");
    for (const struct bps_section *section = bps_sections; section->name != NULL; section++) {
        printf("\n# %s\n%s = {\n", section->help, section->name);
        for (const struct bps_option *row = section->table; row->name != NULL; row++) {
            printf("%s", row == section->table ? "" : "\n");
            print_row(4, row);
        }
        if (strcmp(section->name, "worker") == 0) {
            print_graph();
        }
        printf("};\n");
    }
    for (const struct bps_instance_map *map = bps_instance_maps; map->name != NULL; map++) {
        if (map->kind != BPS_KIND_FRAMEWORK) {
            print_map(map);
        }
    }
    return 0;
}
