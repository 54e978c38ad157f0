/* SPDX-License-Identifier: Apache-2.0 */
/* access.c - reading a loaded configuration. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/option.h"
#include "conf/schema.h"
#include "conf/value.h"

const struct bps_conf_node *bps_conf_find(const struct bps_conf *conf, const char *path)
{
    const struct bps_conf_node *node = conf->root;
    while (node != NULL) {
        char name[256];
        size_t n = strcspn(path, ".");
        if (n == 0 || n >= sizeof name) {
            return NULL;
        }
        memcpy(name, path, n);
        name[n] = '\0';
        node = bps_conf_member(node, name);
        if (path[n] == '\0') {
            return node;
        }
        path += n + 1;
    }
    return NULL;
}

void bps_conf_each(const struct bps_conf *conf,
                   void (*fn)(void *arg, const char *key, const char *text, const char *origin,
                              const struct bps_option *option),
                   void *arg)
{
    for (const struct bps_section *section = bps_sections; section->name != NULL; section++) {
        for (const struct bps_option *row = section->table; row->name != NULL; row++) {
            char key[128], text[1024];
            snprintf(key, sizeof key, "%s.%s", section->name, row->name);
            bps_option_format(row, bps_section_struct(conf, section), text, sizeof text);
            const struct bps_conf_node *node = bps_conf_find(conf, key);
            fn(arg, key, text, node == NULL ? "default" : node->origin, row);
        }
    }
}

/* ---- agreement ---- */

static void agree_key(void *arg, const char *key, const char *text, const char *origin, const struct bps_option *option)
{
    (void)origin;
    if ((option->flags & BPS_OPT_AGREE) != 0) {
        bps_text_add(arg, "%s = ", key);
        bps_text_scalar(arg, text);
        bps_text_add(arg, "\n");
    }
}

/* Numbers are written alike however they were spelled: 1, 1.0 and "1e0". */
static void agree_scalar(struct bps_text *text, const char *value)
{
    double number;
    char spelled[64];
    if (bps_parse_double(value, &number) == BPS_OK) {
        bps_format_double(number, spelled, sizeof spelled);
        value = spelled;
    }
    bps_text_scalar(text, value);
}

/* A stage with its name first and its other members by name; a list of one item like that item. */
static void agree_node(struct bps_text *text, const struct bps_conf_node *node)
{
    if (node->kind == BPS_CONF_SCALAR) {
        agree_scalar(text, node->text);
    } else if (node->count == 1) {
        agree_node(text, node->children[0]);
    } else {
        bps_text_add(text, "(");
        for (uint32_t i = 0; i < node->count; i++) {
            bps_text_add(text, i == 0 ? " " : ", ");
            agree_node(text, node->children[i]);
        }
        bps_text_add(text, " )");
    }
}

static int access_by_name(const void *a, const void *b)
{
    const struct bps_conf_node *x = *(struct bps_conf_node *const *)a, *y = *(struct bps_conf_node *const *)b;
    bool x_first = strcmp(x->name, "stage") == 0, y_first = strcmp(y->name, "stage") == 0;
    return x_first != y_first ? (x_first ? -1 : 1) : strcmp(x->name, y->name);
}

static bool agree_stage(struct bps_text *text, const struct bps_conf_node *stage)
{
    struct bps_conf_node **members = malloc((stage->count + 1u) * sizeof *members);
    if (members == NULL) {
        return false;
    }
    if (stage->count != 0) {
        memcpy(members, stage->children, stage->count * sizeof *members);
    }
    qsort(members, stage->count, sizeof *members, access_by_name);
    bps_text_add(text, "{");
    for (uint32_t i = 0; i < stage->count; i++) {
        bps_text_add(text, " %s = ", members[i]->name);
        agree_node(text, members[i]);
        bps_text_add(text, ";");
    }
    bps_text_add(text, " }");
    free(members);
    return true;
}

char *bps_conf_agreement(const struct bps_conf *conf)
{
    struct bps_text text = {0};
    bps_conf_each(conf, agree_key, &text);
    const struct bps_conf_node *graph = bps_conf_find(conf, "worker.graph");
    bps_text_add(&text, "worker.graph = (");
    for (uint32_t i = 0; graph != NULL && i < graph->count; i++) {
        bps_text_add(&text, i == 0 ? " " : ", ");
        if (!agree_stage(&text, graph->children[i])) {
            bps_text_free(&text);
            return NULL;
        }
    }
    bps_text_add(&text, " )\n");
    return text.data;
}
