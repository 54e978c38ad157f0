/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - configuration values as text that libconfig reads back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "conf/tree.h"

/* Numbers that libconfig would give back as the same text, and booleans. */
static bool is_bare(const char *value)
{
    if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0) {
        return true;
    }
    const char *digits = value[0] == '-' ? value + 1 : value;
    size_t n = strspn(digits, "0123456789");
    return n >= 1 && n <= 18 && digits[n] == '\0' && (digits[0] != '0' || (n == 1 && digits == value));
}

/* One byte of a quoted string, escaped where needed. Bytes above 127 stay as they are: they may be UTF-8. */
static void add_escaped(struct bps_text *text, char byte)
{
    char letter = byte == '\n' ? 'n' : byte == '\t' ? 't' : byte == '"' || byte == '\\' ? byte : '\0';
    bool control = (byte > 0 && byte < 0x20) || byte == 0x7f;
    bps_text_add(text, letter != '\0' ? "\\%c" : control ? "\\x%02x" : "%c", letter != '\0' ? letter : byte);
}

void bps_text_quoted(struct bps_text *text, const char *value)
{
    bps_text_add(text, "\"");
    for (; *value != '\0'; value++) {
        add_escaped(text, *value);
    }
    bps_text_add(text, "\"");
}

void bps_text_scalar(struct bps_text *text, const char *value)
{
    if (is_bare(value)) {
        bps_text_add(text, "%s", value);
    } else {
        bps_text_quoted(text, value);
    }
}

void bps_text_value(struct bps_text *text, const struct bps_conf_node *node)
{
    if (node->kind == BPS_CONF_SCALAR) {
        bps_text_scalar(text, node->text);
        return;
    }
    bool group = node->kind == BPS_CONF_GROUP;
    bps_text_add(text, group ? "{" : "(");
    for (uint32_t i = 0; i < node->count; i++) {
        bps_text_add(text, i != 0 && !group ? ", " : " ");
        if (group) {
            bps_text_add(text, "%s = ", node->children[i]->name);
        }
        bps_text_value(text, node->children[i]);
        bps_text_add(text, group ? ";" : "");
    }
    bps_text_add(text, group ? " }" : " )");
}

struct bps_shown bps_shown(const char *value)
{
    struct bps_shown shown;
    struct bps_text text = bps_text_in(shown.text, sizeof shown.text);
    if (is_bare(value)) {
        bps_text_add(&text, "%s", value);
        return shown;
    }
    bps_text_add(&text, "\"");
    while (*value != '\0' && text.length < sizeof shown.text - sizeof "\\x00...\"") {
        add_escaped(&text, *value++);
    }
    bps_text_add(&text, "%s\"", *value == '\0' ? "" : "...");
    return shown;
}
