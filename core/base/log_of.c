/* SPDX-License-Identifier: Apache-2.0 */
/* log_of.c - see log_of.h. */
#include "base/log_of.h"

#include <stdio.h>
#include <string.h>

#define WORDS_LIMIT 16u
#define WORD_BYTES  80u

struct words {
    uint32_t count;
    char word[WORDS_LIMIT][WORD_BYTES];
};

static struct words levels_asked, calls_asked;

static void log_of_copy(struct words *to, const struct bps_list *from)
{
    to->count = from->count < WORDS_LIMIT ? from->count : WORDS_LIMIT;
    for (uint32_t i = 0; i < to->count; i++) {
        snprintf(to->word[i], WORD_BYTES, "%s", from->items[i]);
    }
}

void bps_log_of_set(const struct bps_list *levels, const struct bps_list *calls)
{
    log_of_copy(&levels_asked, levels);
    log_of_copy(&calls_asked, calls);
    bps_plugin_calls_time(calls->count > 0);
}

uint32_t bps_log_of_parse(const char *word, size_t *length)
{
    static const char *const names[] = {[BPS_LOG_ERROR] = "error",
                                        [BPS_LOG_WARN] = "warn",
                                        [BPS_LOG_INFO] = "info",
                                        [BPS_LOG_DEBUG] = "debug",
                                        [BPS_LOG_TRACE] = "trace"};
    const char *equals = strrchr(word, '=');
    *length = equals != NULL ? (size_t)(equals - word) : 0;
    for (uint32_t level = BPS_LOG_ERROR; *length > 0 && level <= BPS_LOG_TRACE; level++) {
        if (strcmp(equals + 1, names[level]) == 0) {
            return level;
        }
    }
    return 0;
}

static bool log_of_is_word(const char *text, const char *word, size_t length)
{
    return strncmp(text, word, length) == 0 && text[length] == '\0';
}

static bool is_named(const struct bps_plugin_names *names, const char *word, size_t length)
{
    const char *dot = strchr(names->instance, '.');
    return log_of_is_word(names->plugin, word, length) || log_of_is_word(names->instance, word, length) ||
           (dot != NULL && log_of_is_word(dot + 1, word, length));
}

uint32_t bps_log_of_level(const struct bps_plugin_names *names)
{
    for (uint32_t i = 0; i < levels_asked.count; i++) {
        size_t length;
        uint32_t level = bps_log_of_parse(levels_asked.word[i], &length);
        if (level > 0 && is_named(names, levels_asked.word[i], length)) {
            return level;
        }
    }
    return 0;
}

bool bps_log_of_calls(const struct bps_plugin_names *names)
{
    for (uint32_t i = 0; i < calls_asked.count; i++) {
        if (is_named(names, calls_asked.word[i], strlen(calls_asked.word[i]))) {
            return true;
        }
    }
    return false;
}
