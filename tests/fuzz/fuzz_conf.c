/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_conf.c - the configuration parser: any bytes as a file, as settings and as option values.
 *
 * What is taken must survive being written and read again.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/load.h"
#include "conf/option.h"
#include "conf/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Asked by the leak sanitizer: libconfig forgets a string that it has read when a syntax error follows. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libconfig.so\n";
}

static void fail(const char *what, const char *text)
{
    fprintf(stderr, "%s: %s\n", what, text);
    abort();
}

static void ignore(void *arg, const char *text)
{
    (void)arg;
    (void)text;
}

/* The same configuration again from what it is when written. */
static void try_again(const struct bps_conf *conf, const char *agreement)
{
    static const char *const sections[] = {"cluster", "worker", "server", "log", "transports", "reducers"};
    enum { SECTIONS = sizeof sections / sizeof *sections };
    struct bps_text text[SECTIONS] = {0};
    const char *set[SECTIONS];
    for (size_t i = 0; i < SECTIONS; i++) {
        bps_text_add(&text[i], "%s=", sections[i]);
        bps_text_value(&text[i], bps_conf_find(conf, sections[i]));
        set[i] = text[i].data;
    }
    struct bps_conf_request request = {.confdir = "/nonexistent", .set = set, .nset = SECTIONS, .incomplete = true};
    struct bps_conf *again = NULL;
    struct bps_report report = {""};
    if (bps_conf_load_from(&request, &again, &report) != BPS_OK) {
        fail("what was taken is refused when it is read again", report.text);
    }
    char *second = bps_conf_agreement(again);
    if (second == NULL || strcmp(agreement, second) != 0) {
        fail("what was taken is another when it is read again", agreement);
    }
    free(second);
    bps_conf_free(again);
    for (size_t i = 0; i < SECTIONS; i++) {
        bps_text_free(&text[i]);
    }
}

static void try_file(const char *text, size_t size)
{
    struct bps_conf_request request = {
        .confdir = "/nonexistent",
        .text = text,
        .ntext = size,
        .incomplete = true,
        .problem = ignore,
    };
    struct bps_conf *conf = NULL;
    struct bps_report report = {""};
    bps_status status = bps_conf_load_from(&request, &conf, &report);
    if (status == BPS_OK) {
        char *agreement = bps_conf_agreement(conf);
        try_again(conf, agreement);
        free(agreement);
    } else if (report.text[0] == '\0') {
        fail("refused without a reason", text);
    }
    bps_conf_free(status == BPS_OK ? conf : NULL);
}

static void try_setting(const char *text)
{
    struct bps_conf_request request = {.confdir = "/nonexistent", .set = &text, .nset = 1, .incomplete = true};
    struct bps_conf *conf = NULL;
    struct bps_report report = {""};
    if (bps_conf_load_from(&request, &conf, &report) == BPS_OK) {
        bps_conf_free(conf);
    } else if (report.text[0] == '\0') {
        fail("refused without a reason", text);
    }
}

/* Canonical text must be read back as the same value. */
static void try_values(const char *text)
{
    for (uint32_t type = BPS_OPT_BOOL; type <= BPS_OPT_LIST; type++) {
        union {
            uint64_t number;
            const char *string;
            struct bps_list list;
        } first, second;
        struct bps_option table[] = {{"value", type, 0, 0, "", type == BPS_OPT_CHOICE ? "a|bb|c d" : NULL, ""}, {0}};
        char canonical[4096], again[4096];
        memset(&first, 0, sizeof first); /* the padding too, where other members have their bytes */
        memset(&second, 0, sizeof second);
        if (bps_option_parse(table, text, &first, NULL) != BPS_OK) {
            continue;
        }
        bps_option_format(table, &first, canonical, sizeof canonical);
        if (bps_option_parse(table, canonical, &second, NULL) != BPS_OK) {
            fail("canonical text is refused", canonical);
        }
        bps_option_format(table, &second, again, sizeof again);
        if (strcmp(canonical, again) != 0) {
            fail("canonical text is read as another value", canonical);
        }
        bps_options_release(table, &first);
        bps_options_release(table, &second);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL) {
        return 0;
    }
    if (size != 0) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    try_file((const char *)data, size);
    try_setting(text);
    if (size < 4096) {
        try_values(text);
    }
    free(text);
    return 0;
}
