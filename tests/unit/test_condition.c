/* SPDX-License-Identifier: Apache-2.0 */
/* test_condition.c - `when` of a stage: what is accepted and means what, and what is said of mistakes. */
#include <stdio.h>
#include <string.h>

#include "checks.h"
#include "graph/condition.h"

static const struct bps_tensor_info tensor = {
    .name = "Gradient.fc1.weight", .dtype = BPS_FLOAT32, .op = BPS_AVERAGE, .count = 16384, .partitions = 1};

static struct bps_condition parsed(const char *text)
{
    struct bps_condition condition;
    struct bps_report report = {""};
    ck_assert_msg(bps_condition_parse(text, &condition, &report) == BPS_OK, "%s: %s", text, report.text);
    return condition;
}

static bool holds(const char *text, const struct bps_tensor_info *of)
{
    struct bps_condition condition = parsed(text);
    return bps_condition_holds(&condition, of);
}

static void check_refused(const char *text, const char *error)
{
    struct bps_condition condition;
    struct bps_report report = {""};
    ck_assert_msg(bps_condition_parse(text, &condition, &report) == BPS_ERR_CONF, "%s", text);
    ck_assert_str_eq(report.text, error);
    ck_assert_int_eq(bps_condition_parse(text, &condition, NULL), BPS_ERR_CONF);
}

/* ---- what holds ---- */

static const struct {
    const char *text;
    bool holds;
} conditions[] = {
    {"bytes >= 64 KiB", true},
    {"bytes > 64 KiB", false},
    {"bytes < 64KiB", false},
    {"bytes <= 65536", true},
    {"bytes == 64 KiB", true},
    {"bytes != 64 KiB", false},
    {"bytes >= '64 KiB'", true},
    {"bytes >= 64  KiB\tand count > 1", true},
    {"count == 16384", true},
    {"count > 16384", false},
    {"count >= 16384 and count <= 16384", true},
    {"dtype == float32", true},
    {"dtype != float32", false},
    {"dtype == float*", true},
    {"dtype ~ float*", true},
    {"dtype !~ *32", false},
    {"dtype == int8", false},
    {"op == average", true},
    {"op == sum", false},
    {"op ~ [am]*", true},
    {"op !~ 's?[a-m]'", true},

    /* names, with and without wildcards and quotes */
    {"name == 'Gradient.*'", true},
    {"name == Gradient.*", true},
    {"name != *.bias", true},
    {"name == *.bias", false},
    {"name ~ '*.weight'", true},
    {"name ~ *.weight", true},
    {"name ~ Gradient.fc[0-9].weight", true},
    {"name ~ Gradient.fc[!0-9].weight", false},
    {"name ~ Gradient.fc?.weight", true},
    {"name ~ Gradient", false},
    {"name ~ Gradient.fc1.weight", true},
    {"name !~ '*.weight'", false},
    {"name!~'*.bias'", true},
    {"name~*.weight", true},
    {"name == Gradient.fc1.weight", true},
    {"name == Gradient.fc1", false},
    {"name != Gradient.fc1", true},
    {"name ~ 'Gradient.\\fc1.weight'", true},
    {"name == 'Gradient.\\fc1.weight'", false},
    {"name == 'Gradient.\\fc1.*'", true},
    {"name == 'a and b'", false},
    {"name == 'a or not (b'", false},
    {"name != 'and'", true},
    {"name != ' '", true},
    {"name != a b", true},
    {"name != android and name != order", true},
    {"name != x y or op == sum", true},
    {"name != ~", true},

    /* and binds more tightly than or, and not more tightly than both */
    {"  bytes>=1 and dtype==float32  and   name == 'Gradient.*' ", true},
    {"bytes >= 1 and dtype == int64", false},
    {"bytes >= 1 or dtype == int64", true},
    {"dtype == int64 or bytes >= 1", true},
    {"dtype == int64 or op == sum", false},
    {"count > 1 or count > 1 and op == sum", true},
    {"(count > 1 or count > 1) and op == sum", false},
    {"op == sum and count > 1 or count > 1", true},
    {"op == sum and (count > 1 or count > 1)", false},
    {"not op == sum", true},
    {"not op == average or count > 1", true},
    {"not (op == average or count > 1)", false},
    {"not op == sum and op == sum", false},
    {"not (op == sum and op == sum)", true},
    {"not op == average and op == sum or count > 1", true},
    {"not not op == average", true},
    {"not not not op == average", false},
    {"not(not(op == average))", true},
    {"not (not op == average)", true},
    {"((op == average))", true},
    {"(op==average)and(count>1)", true},
    {"(op==sum)or(not(count>1))", false},
    {"(op ~ a*) and (name ~ Gradient.*)", true},
    {"( bytes >= 64 KiB ) and ( op == average )", true},
    {"(op == sum or (op == average and (count < 9 or (count > 9 and not dtype == int8))))", true},

    {"bytes >= 64 KiB and name ~ '*.weight'", true},
    {"(name ~ '*.weight' or name ~ 'embed*') and not dtype == float64", true},
    {"\n(name ~ '*.bias'\n or name ~ 'embed*')\n and not dtype == float64\n", false},
};

START_TEST(test_conditions)
{
    ck_assert_msg(holds(conditions[_i].text, &tensor) == conditions[_i].holds, "%s", conditions[_i].text);
}
END_TEST

/* Every way to join three comparisons, for every truth of these. */
START_TEST(test_precedence)
{
    for (unsigned truth = 0; truth < 8; truth++) {
        bool a = (truth & 1) != 0, b = (truth & 2) != 0, c = (truth & 4) != 0;
        char name[4] = {a ? 'a' : '-', b ? 'b' : '-', c ? 'c' : '-', '\0'};
        struct bps_tensor_info of = tensor;
        of.name = name;
#define A "name ~ *a*"
#define B "name ~ *b*"
#define C "name ~ *c*"
        ck_assert(holds(A " and " B " and " C, &of) == (a && b && c));
        ck_assert(holds(A " and " B " or " C, &of) == ((a && b) || c));
        ck_assert(holds(A " or " B " and " C, &of) == (a || (b && c)));
        ck_assert(holds(A " or " B " or " C, &of) == (a || b || c));
        ck_assert(holds("(" A " or " B ") and " C, &of) == ((a || b) && c));
        ck_assert(holds(A " and (" B " or " C ")", &of) == (a && (b || c)));
        ck_assert(holds("not " A " and " B " or not " C, &of) == ((!a && b) || !c));
        ck_assert(holds("not (" A " and " B ") or " C, &of) == (!(a && b) || c));
        ck_assert(holds(A " and not (" B " or not " C ")", &of) == (a && !(b || !c)));
        ck_assert(holds("not (" A " and (" B " or " C "))", &of) == !(a && (b || c)));
    }
}
END_TEST

START_TEST(test_no_condition_holds)
{
    struct bps_condition condition = {0};
    ck_assert(bps_condition_holds(&condition, &tensor));
    ck_assert(!bps_condition_asks_op(&condition));
}
END_TEST

START_TEST(test_asks_op)
{
    struct bps_condition with[] = {parsed("op == sum"), parsed("bytes > 3 and (name ~ '*' or not op != min)")};
    struct bps_condition without[] = {parsed("name == op"), parsed("bytes > 3 and not dtype ~ float*")};
    for (int i = 0; i < 2; i++) {
        ck_assert(bps_condition_asks_op(&with[i]));
        ck_assert(!bps_condition_asks_op(&without[i]));
    }
}
END_TEST

/* ---- mistakes ---- */

#define OPERAND "expected not, ( or a field: bytes, count, dtype, op or name"

static const struct {
    const char *text, *error;
} mistakes[] = {
    {"", "found nothing at the beginning; " OPERAND},
    {" \t ", "found nothing at the beginning; " OPERAND},
    {"size > 3", "found 'size > 3' at the beginning; " OPERAND},
    {"bytess > 3", "found 'bytess > 3' at the beginning; " OPERAND},
    {"op_ == sum", "found 'op_ == sum' at the beginning; " OPERAND},
    {"nothing == sum", "found 'nothing == sum' at the beginning; " OPERAND},
    {"and bytes > 3", "found 'and bytes > 3' at the beginning; " OPERAND},
    {"> 3", "found '> 3' at the beginning; " OPERAND},
    {") ", "found ') ' at the beginning; " OPERAND},
    {"'bytes' > 3", "found ''bytes' > 3' at the beginning; " OPERAND},
    {"bytes > 3 and size > 3", "found 'size > 3' after 'and'; " OPERAND},
    {"bytes > 3 and and op == sum", "found 'and op == sum' after 'and'; " OPERAND},
    {"bytes > 3 or and op == sum", "found 'and op == sum' after 'or'; " OPERAND},
    {"bytes > 3 and", "found nothing after 'and'; " OPERAND},
    {"bytes > 3 or ", "found nothing after 'or'; " OPERAND},
    {"name == 'x' and not", "found nothing after 'not'; " OPERAND},
    {"not", "found nothing after 'not'; " OPERAND},
    {"(", "found nothing after '('; " OPERAND},
    {"bytes > 3 and ()", "found ')' after '('; " OPERAND},
    {"(bytes > 3 or) and count > 1", "found ') and count > 1' after 'or'; " OPERAND},

    {"bytes", "found nothing after 'bytes'; expected ==, !=, >=, <=, > or <"},
    {"bytes = 3", "found '= 3' after 'bytes'; expected ==, !=, >=, <=, > or <"},
    {"bytes >> 3", "found '>> 3' after 'bytes'; expected ==, !=, >=, <=, > or <"},
    {"count ~ 3", "found '~ 3' after 'count'; expected ==, !=, >=, <=, > or <"},
    {"bytes and name", "found 'and name' after 'bytes'; expected ==, !=, >=, <=, > or <"},
    {"dtype > float32", "found '> float32' after 'dtype'; expected ==, !=, ~ or !~"},
    {"op >= sum or op", "found '>= sum or op' after 'op'; expected ==, !=, ~ or !~"},
    {"name =~ 'x'", "found '=~ 'x'' after 'name'; expected ==, !=, ~ or !~"},
    {"name not ~ 'x'", "found 'not ~ 'x'' after 'name'; expected ==, !=, ~ or !~"},

    {"bytes >=", "found nothing after '>='; expected a value"},
    {"bytes >= and count > 1", "found 'and count > 1' after '>='; expected a value"},
    {"(bytes >= )", "found ')' after '>='; expected a value"},
    {"name == or", "found 'or' after '=='; expected a value"},
    {"name == 'x and op == sum", "found ''x and op == sum' after '=='; expected a value with ' at both ends"},
    {"name == '", "found ''' after '=='; expected a value with ' at both ends"},
    {"name == '' or op == sum", "found a value of 0 characters in ''' or op == sum'; expected 1..127"},
    {"bytes >= lots", "'lots' in 'bytes >= lots' is not a size; expected a number with a unit, such as 64 KiB"},
    {"op == sum and bytes > 3 (op == sum)",
     "'3 (op == sum' in 'bytes > 3 (op == sum)' is not a size; expected a number with a unit, such as 64 KiB"},
    {"count >= 4 KiB", "'4 KiB' in 'count >= 4 KiB' is not a number of elements; expected digits alone"},
    {"count >= 99999999999999999999",
     "'99999999999999999999' in 'count >= 99999999999999999999' is not a number of elements; expected digits alone"},
    {"dtype == float33",
     "'float33' in 'dtype == float33' is not a data type; expected float32, float16, int64 and so on"},
    {"dtype ~ '*33'", "'*33' in 'dtype ~ '*33'' is not a data type; expected float32, float16, int64 and so on"},
    {"op == mean or bytes > 3",
     "'mean' in 'op == mean or bytes > 3' is not an operation; expected sum, average, min, max or product"},

    {"name == 'x' bytes > 3", "found 'bytes > 3' after ''x''; expected and, or or the end"},
    {"name == 'x'y'", "found 'y'' after ''x''; expected and, or or the end"},
    {"(op == sum) not op == min", "found 'not op == min' after ')'; expected and, or or the end"},
    {"bytes > 3)", "found ')' after '3'; expected and, or or the end, as no ( is open"},
    {"name == f(x) or op == sum", "found ') or op == sum' after 'f(x'; expected and, or or the end, as no ( is open"},
    {"(op == sum)) and op == sum", "found ') and op == sum' after ')'; expected and, or or the end, as no ( is open"},
    {"(bytes > 3", "found nothing after '3'; expected and, or or )"},
    {"(op == sum or (bytes > 3)", "found nothing after ')'; expected and, or or )"},
    {"(name == 'x' op == sum)", "found 'op == sum)' after ''x''; expected and, or or )"},
};

START_TEST(test_mistakes)
{
    check_refused(mistakes[_i].text, mistakes[_i].error);
}
END_TEST

/* ---- limits ---- */

/* "op == average and op == average and ..." */
static void repeat(char text[1024], unsigned comparisons)
{
    int length = sprintf(text, "op == average");
    for (unsigned i = 1; i < comparisons; i++) {
        length += sprintf(text + length, " %s op == average", i % 2 == 0 ? "or" : "and");
    }
}

START_TEST(test_limit_of_comparisons)
{
    char text[1024];
    repeat(text, BPS_COMPARISONS_LIMIT);
    ck_assert(holds(text, &tensor));
    repeat(text, BPS_COMPARISONS_LIMIT + 1);
    check_refused(text, "found 'op == average' after 16 comparisons; expected no more");
}
END_TEST

/* All comparisons are answered before the first two answers are joined. */
START_TEST(test_comparisons_joined_from_behind)
{
    char text[1024] = "";
    for (unsigned i = 2; i < BPS_COMPARISONS_LIMIT; i += 2) {
        strcat(text, "op == sum or op == average and (");
    }
    strcat(text, "op == sum or op == average");
    for (unsigned i = 2; i < BPS_COMPARISONS_LIMIT; i += 2) {
        strcat(text, ")");
    }
    struct bps_tensor_info minimum = tensor;
    minimum.op = BPS_MIN;
    ck_assert(holds(text, &tensor));
    ck_assert(!holds(text, &minimum));
    ck_assert_uint_eq(parsed(text).comparisons, BPS_COMPARISONS_LIMIT);
}
END_TEST

/* "((op == average))" */
static void nest(char text[1024], unsigned parentheses)
{
    int length = 0;
    for (unsigned i = 0; i < parentheses; i++) {
        length += sprintf(text + length, "(");
    }
    length += sprintf(text + length, "op == average");
    for (unsigned i = 0; i < parentheses; i++) {
        length += sprintf(text + length, ")");
    }
}

START_TEST(test_limit_of_nesting)
{
    char text[1024];
    nest(text, BPS_NESTING_LIMIT);
    ck_assert(holds(text, &tensor));
    strcat(text, " and (");
    nest(text + strlen(text), BPS_NESTING_LIMIT - 1);
    strcat(text, ")");
    ck_assert(holds(text, &tensor));
    nest(text, BPS_NESTING_LIMIT + 1);
    check_refused(text, "found '(op == average)))))))))' within 8 open parentheses; expected no more");
}
END_TEST

START_TEST(test_limit_of_a_value)
{
    char text[1024], error[1024], value[128];
    memset(value, 'x', sizeof value);
    snprintf(text, sizeof text, "name != '%.127s'", value);
    ck_assert(holds(text, &tensor));
    snprintf(text, sizeof text, "name != %.127s", value);
    ck_assert(holds(text, &tensor));
    snprintf(text, sizeof text, "name != '%.128s'", value);
    snprintf(error, sizeof error, "found a value of 128 characters in ''%.128s''; expected 1..127", value);
    check_refused(text, error);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("condition");
    TCase *tests = tcase_create("condition");
    tcase_add_loop_test(tests, test_conditions, 0, sizeof conditions / sizeof *conditions);
    tcase_add_test(tests, test_precedence);
    tcase_add_test(tests, test_no_condition_holds);
    tcase_add_test(tests, test_asks_op);
    tcase_add_loop_test(tests, test_mistakes, 0, sizeof mistakes / sizeof *mistakes);
    tcase_add_test(tests, test_limit_of_comparisons);
    tcase_add_test(tests, test_comparisons_joined_from_behind);
    tcase_add_test(tests, test_limit_of_nesting);
    tcase_add_test(tests, test_limit_of_a_value);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
