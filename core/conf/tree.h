/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h - the tree of configuration values while it is built: memory, nodes, merging, text.
 *
 * All memory of a tree comes from one arena and goes with it, so nothing is freed piece by piece.
 */
#ifndef BPS_CONF_TREE_H
#define BPS_CONF_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "conf/conf.h"

/* Zeroed memory; NULL: none left. */
void *bps_arena_alloc(struct bps_arena *arena, size_t bytes);
char *bps_arena_copy(struct bps_arena *arena, const char *text);
char *bps_arena_format(struct bps_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bps_arena_free(struct bps_arena *arena);

/* A new node without children. Name, text and origin are not copied: they live as long as the arena. */
struct bps_conf_node *bps_tree_node(struct bps_arena *arena, uint32_t kind, const char *name, const char *text,
                                    const char *origin);
/* false: no memory. */
bool bps_tree_append(struct bps_arena *arena, struct bps_conf_node *parent, struct bps_conf_node *child);

/* Puts the members of one group into another: groups merge, everything else replaces. false: no memory. */
bool bps_tree_merge(struct bps_arena *arena, struct bps_conf_node *into, const struct bps_conf_node *from);

/* Puts `value` at the dotted path below `root`; groups replace what is in the way. false: no memory. */
bool bps_tree_put(struct bps_arena *arena, struct bps_conf_node *root, const char *path, struct bps_conf_node *value);

/* ---- text ---- */

/* A scalar as libconfig writes it: numbers and booleans bare, everything else quoted and escaped. */
void bps_text_scalar(struct bps_text *text, const char *value);
void bps_text_quoted(struct bps_text *text, const char *value);
/* A node's value in libconfig syntax on one line, which a file or --set understands. */
void bps_text_value(struct bps_text *text, const struct bps_conf_node *node);

/* The same as bps_text_scalar() for messages: cut to what one line can bear. */
#define BPS_SHOWN_MAX 100
struct bps_shown {
    char text[BPS_SHOWN_MAX];
};
struct bps_shown bps_shown(const char *value);

#endif
