/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - configuration values as text that libconfig reads back. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "conf/tree.h"

void bps_text_free(struct bps_text *text)
{
    free(text->data);
    *text = (struct bps_text){0};
}

/* Makes room for `bytes` more and a terminator. */
static bool text_reserve(struct bps_text *text, size_t bytes)
{
    if (!text->failed && !bps_array_reserve(text->data, text->room, text->length + bytes + 1)) {
        bps_text_free(text);
        text->failed = true;
    }
    return !text->failed;
}

void bps_text_add(struct bps_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0 || !text_reserve(text, (size_t)length)) {
        return;
    }
    va_start(args, format);
    vsnprintf(text->data + text->length, (size_t)length + 1, format, args);
    va_end(args);
    text->length += (size_t)length;
}

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
static int escape(char *out, size_t n, unsigned char byte)
{
    switch (byte) {
    case '"':
    case '\\':
        return snprintf(out, n, "\\%c", byte);
    case '\n':
        return snprintf(out, n, "\\n");
    case '\t':
        return snprintf(out, n, "\\t");
    default:
        return snprintf(out, n, byte < 0x20 || byte == 0x7f ? "\\x%02x" : "%c", byte);
    }
}

void bps_text_quoted(struct bps_text *text, const char *value)
{
    bps_text_add(text, "\"");
    for (; *value != '\0'; value++) {
        char one[8];
        escape(one, sizeof one, (unsigned char)*value);
        bps_text_add(text, "%s", one);
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
    if (is_bare(value)) {
        snprintf(shown.text, sizeof shown.text, "%s", value);
        return shown;
    }
    size_t at = 0, end = sizeof shown.text - sizeof "\\x00...\"";
    shown.text[at++] = '"';
    while (*value != '\0' && at < end) {
        at += (size_t)escape(shown.text + at, sizeof shown.text - at, (unsigned char)*value++);
    }
    snprintf(shown.text + at, sizeof shown.text - at, "%s\"", *value == '\0' ? "" : "...");
    return shown;
}
