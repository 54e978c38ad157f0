/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c - memory, nodes and merging of configuration trees. */
#include "conf/tree.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bps_arena_block {
    struct bps_arena_block *next;
    max_align_t data[];
};

void *bps_arena_alloc(struct bps_arena *arena, size_t bytes)
{
    struct bps_arena_block *block = calloc(1, sizeof *block + bytes);
    if (block == NULL) {
        return NULL;
    }
    block->next = arena->blocks;
    arena->blocks = block;
    return block->data;
}

char *bps_arena_copy(struct bps_arena *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = bps_arena_alloc(arena, bytes);
    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

char *bps_arena_format(struct bps_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) {
        return NULL;
    }
    char *text = bps_arena_alloc(arena, (size_t)length + 1);
    if (text != NULL) {
        va_start(args, format);
        vsnprintf(text, (size_t)length + 1, format, args);
        va_end(args);
    }
    return text;
}

void bps_arena_free(struct bps_arena *arena)
{
    while (arena->blocks != NULL) {
        struct bps_arena_block *block = arena->blocks;
        arena->blocks = block->next;
        free(block);
    }
}

/* ---- nodes ---- */

struct bps_conf_node *bps_tree_node(struct bps_arena *arena, uint32_t kind, const char *name, const char *text,
                                    const char *origin)
{
    struct bps_conf_node *node = bps_arena_alloc(arena, sizeof *node);
    if (node != NULL) {
        node->kind = kind;
        node->name = name;
        node->text = text;
        node->origin = origin;
    }
    return node;
}

bool bps_tree_append(struct bps_arena *arena, struct bps_conf_node *parent, struct bps_conf_node *child)
{
    /* The array doubles whenever its size is a power of two; what it leaves behind goes with the arena. */
    uint32_t count = parent->count;
    if ((count & (count - 1)) == 0) {
        struct bps_conf_node **larger = bps_arena_alloc(arena, (count == 0 ? 1 : 2 * (size_t)count) * sizeof *larger);
        if (larger == NULL) {
            return false;
        }
        if (count != 0) {
            memcpy(larger, parent->children, count * sizeof *larger);
        }
        parent->children = larger;
    }
    parent->children[parent->count++] = child;
    return true;
}

const struct bps_conf_node *bps_conf_member(const struct bps_conf_node *group, const char *name)
{
    if (group == NULL || group->kind != BPS_CONF_GROUP) {
        return NULL;
    }
    for (uint32_t i = 0; i < group->count; i++) {
        if (strcmp(group->children[i]->name, name) == 0) {
            return group->children[i];
        }
    }
    return NULL;
}

/* Puts `child` in the place of the member of the same name, or at the end. */
static bool put_member(struct bps_arena *arena, struct bps_conf_node *group, struct bps_conf_node *child)
{
    for (uint32_t i = 0; i < group->count; i++) {
        if (strcmp(group->children[i]->name, child->name) == 0) {
            group->children[i] = child;
            return true;
        }
    }
    return bps_tree_append(arena, group, child);
}

bool bps_tree_merge(struct bps_arena *arena, struct bps_conf_node *into, const struct bps_conf_node *from)
{
    for (uint32_t i = 0; i < from->count; i++) {
        struct bps_conf_node *child = from->children[i];
        struct bps_conf_node *old = (struct bps_conf_node *)bps_conf_member(into, child->name);
        bool both = old != NULL && old->kind == BPS_CONF_GROUP && child->kind == BPS_CONF_GROUP;
        if (both ? !bps_tree_merge(arena, old, child) : !put_member(arena, into, child)) {
            return false;
        }
        if (both) {
            old->origin = child->origin;
        }
    }
    return true;
}

bool bps_tree_put(struct bps_arena *arena, struct bps_conf_node *root, const char *path, struct bps_conf_node *value)
{
    char *name = bps_arena_copy(arena, path);
    for (char *dot; name != NULL && (dot = strchr(name, '.')) != NULL; name = dot + 1) {
        *dot = '\0';
        struct bps_conf_node *next = (struct bps_conf_node *)bps_conf_member(root, name);
        if (next == NULL || next->kind != BPS_CONF_GROUP) {
            next = bps_tree_node(arena, BPS_CONF_GROUP, name, NULL, value->origin);
            if (next == NULL || !put_member(arena, root, next)) {
                return false;
            }
        }
        root = next;
    }
    if (name == NULL) {
        return false;
    }
    value->name = name;
    struct bps_conf_node one = {.kind = BPS_CONF_GROUP, .count = 1, .children = &value};
    return bps_tree_merge(arena, root, &one);
}
