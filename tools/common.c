/* SPDX-License-Identifier: Apache-2.0 */
/* common.c - what the subcommands share: messages, --conf and --set, memory. */
#include "tools/cmd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <getopt.h>

#include "base/plugin_call.h"
#include "base/watchdog.h"

static void say(const char *command, const char *format, va_list args)
{
    fprintf(stderr, "byteps %s: ", command);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

int bps_cmd_usage(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(command, format, args);
    va_end(args);
    fprintf(stderr, "Try 'byteps %s --help'.\n", command);
    return BPS_EXIT_USAGE;
}

int bps_cmd_failure(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(command, format, args);
    va_end(args);
    return BPS_EXIT_FAILURE;
}

int bps_cmd_bad_option(const char *command, int code, char **argv)
{
    const char *word = argv[optind - 1];
    bool is_long = strncmp(word, "--", 2) == 0;
    if (code == ':') {
        return is_long || !optopt || optopt >= BPS_CMD_OPT_CONF
                   ? bps_cmd_usage(command, "option '%s' needs a value", word)
                   : bps_cmd_usage(command, "option '-%c' needs a value", optopt);
    }
    if (!is_long && optopt) {
        return bps_cmd_usage(command, "unknown option '-%c'", optopt);
    }
    return optopt ? bps_cmd_usage(command, "option '%s' takes no value", word)
                  : bps_cmd_usage(command, "unknown or ambiguous option '%s'", word);
}

int bps_cmd_finish(const char *command, int status)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return bps_cmd_failure(command, "cannot write standard output: %s", strerror(errno));
    }
    return status;
}

bool bps_cmd_conf_take(struct bps_cmd_conf *conf, int code, const char *value)
{
    if (code == BPS_CMD_OPT_CONF) {
        conf->file = value;
        return true;
    }
    if (code == BPS_CMD_OPT_SET) {
        bps_cmd_conf_set(conf, value);
        return true;
    }
    return false;
}

void bps_cmd_conf_set(struct bps_cmd_conf *conf, const char *text)
{
    const char **set = bps_cmd_alloc(conf->nset + 1, sizeof(*set));
    if (conf->nset) {
        memcpy(set, conf->set, conf->nset * sizeof(*set));
    }
    set[conf->nset] = text;
    free(conf->set);
    conf->set = set;
    conf->nset++;
}

void bps_cmd_conf_fini(struct bps_cmd_conf *conf)
{
    free(conf->set);
    *conf = (struct bps_cmd_conf){0};
}

struct bps_conf *bps_cmd_conf_load(const char *command, const struct bps_cmd_conf *conf, const char *role)
{
    struct bps_cmd_conf all = {.file = conf->file};
    for (size_t i = 0; i < conf->nset; i++) {
        bps_cmd_conf_set(&all, conf->set[i]);
    }
    char *role_text = role ? bps_cmd_print("cluster.role=%s", role) : NULL;
    if (role_text) {
        bps_cmd_conf_set(&all, role_text);
    }
    struct bps_conf *loaded = NULL;
    struct bps_report report;
    if (bps_conf_load(all.file, all.set, all.nset, &loaded, &report) != BPS_OK) {
        bps_cmd_failure(command, "%s", report.text);
        loaded = NULL;
    }
    free(role_text);
    bps_cmd_conf_fini(&all);
    return loaded;
}

void bps_cmd_guard(const struct bps_conf *conf)
{
    static struct bps_watchdog_user user = {.limits = {.warn = 5 * BPS_S}};
    if (conf != NULL) {
        uint64_t warn = conf->cluster.stall_warning;
        user.limits.warn = warn > 0 && warn < user.limits.warn ? warn : user.limits.warn;
        user.limits.call = conf->cluster.stall_timeout;
    }
    bps_plugin_calls_last_words();
    bps_watchdog_begin(&user, NULL); /* without it, all is as before but for the words */
}

static _Noreturn void no_memory(void)
{
    fputs("byteps: out of memory\n", stderr);
    exit(BPS_EXIT_FAILURE);
}

void *bps_cmd_alloc(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size ? size : 1);
    if (!memory) {
        no_memory();
    }
    return memory;
}

char *bps_cmd_print(const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0) {
        no_memory();
    }
    return text;
}
