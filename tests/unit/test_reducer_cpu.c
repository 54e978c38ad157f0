/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_reducer_cpu.c - the option isa of the reducer "cpu". What its kernels give is for `byteps plugin check cpu`.
 *
 * What this CPU or this build lacks must be refused with a message.
 */
#include <stdlib.h>
#include <string.h>

#include "checks.h"

#include <byteps/reducer.h>

const struct bps_module *bps_module_reducer_cpu(void);

static const char *const isas[] = {"auto", "baseline", "avx2", "avx512", "avx512bf16"};

#define ISAS 5

static void host_log(const struct bps_host *host, uint32_t level, const char *format, ...)
{
    (void)host;
    (void)level;
    (void)format;
}

static const struct bps_host host = {.size = sizeof(struct bps_host), .instance = "sum", .log = host_log};
static const struct bps_reducer_ops *plugin;
static void *instance;
static struct bps_report report;

/* Opens the plugin with an instruction set, as the core does: through the option table. */
static bps_status open_isa(int isa)
{
    const struct bps_plugin *p = bps_module_reducer_cpu()->plugins[0];
    uint8_t *options = calloc(1, p->options_size);
    uint32_t choice = (uint32_t)isa;
    bps_status status;

    ck_assert_str_eq(p->options[0].name, "isa");
    memcpy(options + p->options[0].offset, &choice, sizeof choice);
    plugin = p->ops;
    report.text[0] = '\0';
    status = plugin->open(&host, options, &instance, &report);
    free(options);
    return status;
}

START_TEST(test_open)
{
    char text[64] = "", name[32];
    struct bps_kernels k;

    snprintf(name, sizeof name, "isa = \"%s\"", isas[_i]);
    if (open_isa(_i) != BPS_OK) {
        ck_assert_msg(_i > 1, "auto and baseline run everywhere: %s", report.text);
        ck_assert_ptr_nonnull(strstr(report.text, name));
        ck_assert_ptr_nonnull(strstr(report.text, ": baseline"));
        return;
    }
    plugin->describe(instance, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, _i ? isas[_i] : "kernels for "));
    ck_assert_int_eq(plugin->kernels(instance, BPS_AVERAGE, BPS_FLOAT32, &k), BPS_ERR_UNSUPPORTED);
    ck_assert_int_eq(plugin->kernels(instance, BPS_AVERAGE, BPS_BOOL, &k), BPS_ERR_UNSUPPORTED);
    ck_assert_int_eq(plugin->kernels(instance, BPS_OPS, BPS_FLOAT32, &k), BPS_ERR_UNSUPPORTED);
    ck_assert_int_eq(plugin->kernels(instance, UINT32_MAX, BPS_FLOAT32, &k), BPS_ERR_UNSUPPORTED);
    ck_assert_int_eq(plugin->kernels(instance, BPS_SUM, BPS_DTYPES, &k), BPS_ERR_UNSUPPORTED);
    plugin->close(instance);
}
END_TEST

START_TEST(test_option)
{
    const struct bps_plugin *p = bps_module_reducer_cpu()->plugins[0];
    char words[128] = "";

    for (int i = 0; i < ISAS; i++) {
        snprintf(words + strlen(words), sizeof words - strlen(words), "%s%s", i ? "|" : "", isas[i]);
    }
    ck_assert_str_eq(p->options[0].range, words);
    ck_assert_str_eq(p->options[0].fallback, "auto");
    ck_assert_ptr_null(p->options[1].name);
    ck_assert_int_ne(open_isa(ISAS), BPS_OK);
    ck_assert_str_ne(report.text, "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reducer cpu");
    TCase *module = tcase_create("plugin");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(module, test_open, 0, ISAS);
    tcase_add_test(module, test_option);
    suite_add_tcase(suite, module);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
