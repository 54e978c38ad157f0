/* SPDX-License-Identifier: Apache-2.0 */
/* test_ask.c - what plugins say when they are asked, with one wrong field each: who, which, and what is allowed. */
#include <string.h>

#include "checks.h"
#include "plugin/ask.h"
#include "plugin/returned.h"

static struct bps_report report;

/* What the faulty plugins below answer. */
static struct bps_stage_attr stage_says;
static struct bps_transport_attr transport_says;
static struct bps_kernels kernels_say;
static const char *address_said; /* NULL: none */
static bps_status status_said;

static void query_stage(void *instance, struct bps_stage_attr *out)
{
    (void)instance;
    *out = stage_says;
}

static void query_transport(void *instance, struct bps_transport_attr *out)
{
    (void)instance;
    *out = transport_says;
}

static bps_status kernels(void *instance, uint32_t op, uint32_t dtype, struct bps_kernels *out)
{
    (void)instance;
    (void)op;
    (void)dtype;
    *out = kernels_say;
    return status_said;
}

static bps_status listen_somewhere(void *instance, const char *address, bps_accept_fn accept, void *arg, char *actual,
                                   size_t n, struct bps_report *why)
{
    (void)instance;
    (void)address;
    (void)accept;
    (void)arg;
    (void)why;
    if (address_said != NULL) {
        strncpy(actual, address_said, n); /* which does not end a text that is too long */
    }
    return status_said;
}

static void describe(void *instance, char *text, size_t n)
{
    (void)instance;
    memset(text, 'x', n);
}

/* An instance "x.y" of a plugin "bad". */
static struct bps_instance *bad(uint32_t kind)
{
    static union bps_ops ops;
    static struct bps_plugin plugin;
    static struct bps_loaded loaded = {.plugin = &plugin, .ops = &ops};
    static struct bps_host host = {.instance = "x.y"};
    static struct bps_instance instance = {.loaded = &loaded, .ops = &ops, .host = &host, .names = {"bad", "x.y"}};
    plugin = (struct bps_plugin){.kind = kind, .name = "bad"};
    memset(&ops, 0, sizeof ops);
    switch (kind) {
    case BPS_KIND_STAGE:
        ops.stage.query = query_stage;
        break;
    case BPS_KIND_TRANSPORT:
        ops.transport.query = query_transport;
        ops.transport.listen = listen_somewhere;
        ops.transport.describe = describe;
        break;
    default:
        ops.reducer.kernels = kernels;
    }
    status_said = BPS_OK;
    return &instance;
}

#define ck_blames(status, want)                                                                                        \
    do {                                                                                                               \
        ck_assert_int_eq(status, BPS_ERR_PLUGIN);                                                                      \
        ck_assert_str_eq(report.text, want);                                                                           \
    } while (0)

START_TEST(of_a_stage)
{
    static const struct bps_stage_attr right = {1, 1, BPS_MEMORY_HOST, BPS_EXECUTOR_CPU, 1, "plain", "plain"};
    struct bps_instance *stage = bad(BPS_KIND_STAGE);
    stage_says = right;
    ck_assert_int_eq(bps_ask_attr(stage, &report), BPS_OK);
    ck_assert_uint_eq(stage->attr.stage.executor, BPS_EXECUTOR_CPU);
    stage_says.ops = 0;
    ck_blames(bps_ask_attr(stage, &report),
              "stage bad (x.y), query: ops is 0x0; allowed are bits of 0x1f, one at least");
    stage_says = right;
    stage_says.dtypes = 1u << BPS_DTYPES;
    ck_blames(bps_ask_attr(stage, &report),
              "stage bad (x.y), query: dtypes is 0x1000; allowed are bits of 0xfff, one at least");
    stage_says = right;
    stage_says.memory = 5;
    ck_blames(bps_ask_attr(stage, &report),
              "stage bad (x.y), query: memory is 0x5; allowed are bits of 0x3, one at least");
    stage_says = right;
    stage_says.executor = 2;
    ck_blames(bps_ask_attr(stage, &report), "stage bad (x.y), query: executor is 2; allowed are 0 to 1");
    stage_says = right;
    stage_says.gives = NULL;
    ck_blames(bps_ask_attr(stage, &report),
              "stage bad (x.y), query: gives is NULL; expected a coding, such as \"plain\"");
}
END_TEST

START_TEST(of_a_transport)
{
    struct bps_instance *transport = bad(BPS_KIND_TRANSPORT);
    transport_says = (struct bps_transport_attr){.lanes = 64, .local = true, .device_bytes = 7};
    ck_assert_int_eq(bps_ask_attr(transport, &report), BPS_OK);
    ck_assert_uint_eq(transport->attr.transport.device_bytes, 7);
    transport_says.lanes = 0;
    ck_blames(bps_ask_attr(transport, &report), "transport bad (x.y), query: lanes is 0; allowed are 1 to 64");
    transport_says.lanes = 65;
    ck_blames(bps_ask_attr(transport, &report), "transport bad (x.y), query: lanes is 65; allowed are 1 to 64");
}
END_TEST

START_TEST(of_listen)
{
    const struct bps_instance *transport = bad(BPS_KIND_TRANSPORT);
    char actual[8];
    address_said = "a:1";
    ck_assert_int_eq(bps_ask_listen(transport, "", NULL, NULL, actual, sizeof actual, &report), BPS_OK);
    ck_assert_str_eq(actual, "a:1");
    address_said = NULL;
    ck_blames(bps_ask_listen(transport, "", NULL, NULL, actual, sizeof actual, &report),
              "transport bad (x.y), listen: actual is empty; expected the address that peers dial, at most 7 bytes");
    address_said = "abcdef:1";
    ck_blames(
        bps_ask_listen(transport, "", NULL, NULL, actual, sizeof actual, &report),
        "transport bad (x.y), listen: actual is not terminated; expected the address that peers dial, at most 7 bytes");
    ck_assert_str_eq(actual, "");
    status_said = BPS_ERR_BUSY;
    ck_assert_int_eq(bps_ask_listen(transport, "", NULL, NULL, actual, sizeof actual, &report), BPS_ERR_BUSY);
    ck_assert_ptr_nonnull(strstr(report.text, "transport bad (x.y), listen: "));
    ck_assert_ptr_nonnull(strstr(report.text, "; the plugin gives no reason"));
}
END_TEST

START_TEST(of_describe)
{
    char text[8];
    bps_ask_describe(bad(BPS_KIND_TRANSPORT), text, sizeof text);
    ck_assert_str_eq(text, "xxxxxxx");
}
END_TEST

static void first_or_fold(void *context, void *acc, const void *src, size_t count, double scale)
{
    (void)context;
    (void)acc;
    (void)src;
    (void)count;
    (void)scale;
}

static void finish(void *context, void *dst, const void *acc, size_t count, double scale, uint64_t divisor)
{
    (void)context;
    (void)dst;
    (void)acc;
    (void)count;
    (void)scale;
    (void)divisor;
}

static void reduce(void *context, void *dst, const void *const *src, const double *scales, unsigned n, size_t count,
                   double scale, uint64_t divisor)
{
    (void)context;
    (void)dst;
    (void)src;
    (void)scales;
    (void)n;
    (void)count;
    (void)scale;
    (void)divisor;
}

START_TEST(of_kernels)
{
    const struct bps_instance *reducer = bad(BPS_KIND_REDUCER);
    struct bps_kernels out;
    kernels_say = (struct bps_kernels){BPS_FLOAT32, NULL, first_or_fold, first_or_fold, finish, reduce, false};
    ck_assert_int_eq(bps_ask_kernels(reducer, BPS_SUM, BPS_FLOAT8_E5M2, &out, &report), BPS_OK);
    ck_blames(bps_ask_kernels(reducer, BPS_MAX, BPS_INT8, &out, &report),
              "reducer bad (x.y), kernels of max of int8: accumulator is 0 (float32); allowed is 5 (int8)");
    kernels_say.accumulator = 77;
    ck_blames(bps_ask_kernels(reducer, BPS_SUM, BPS_FLOAT16, &out, &report),
              "reducer bad (x.y), kernels of sum of float16: accumulator is 77 (?); allowed is 0 (float32)");
    kernels_say = (struct bps_kernels){BPS_INT64, NULL, NULL, NULL, NULL, reduce, false};
    ck_assert_int_eq(bps_ask_kernels(reducer, BPS_AVERAGE, BPS_INT64, &out, &report), BPS_OK);
    ck_blames(bps_ask_kernels(reducer, BPS_SUM, BPS_INT64, &out, &report),
              "reducer bad (x.y), kernels of sum of int64: first is NULL; expected a function, as for the other three");
    status_said = BPS_ERR_MEMBERSHIP;
    ck_blames(bps_ask_kernels(reducer, BPS_SUM, BPS_INT64, &out, &report),
              "reducer bad (x.y), kernels: returned -15; allowed are BPS_OK and BPS_ERR_*");
}
END_TEST

START_TEST(what_should_be_there)
{
    const struct bps_instance *transport = bad(BPS_KIND_TRANSPORT);
    report.text[0] = '\0';
    ck_assert_int_eq(bps_returned_pointer(transport, "dial", BPS_OK, "*out", transport, &report), BPS_OK);
    ck_blames(bps_returned_pointer(transport, "dial", BPS_OK, "*out", NULL, &report),
              "transport bad (x.y), dial: returned BPS_OK and left *out NULL");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ask");
    TCase *tcase = tcase_create("answers");
    tcase_add_test(tcase, of_a_stage);
    tcase_add_test(tcase, of_a_transport);
    tcase_add_test(tcase, of_listen);
    tcase_add_test(tcase, of_describe);
    tcase_add_test(tcase, of_kernels);
    tcase_add_test(tcase, what_should_be_there);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
