/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_rig.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/load.h"
#include "conf/tree.h"

static char folder[64];

void rig_open(void)
{
    snprintf(folder, sizeof folder, "/tmp/byteps-conf-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(mkdir("etc", 0755), 0);
    ck_assert_int_eq(mkdir("etc/conf.d", 0755), 0);
    ck_assert_int_eq(clearenv(), 0);
}

void rig_close(void)
{
    char command[128];
    snprintf(command, sizeof command, "/bin/rm -rf '%s'", folder);
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(system(command), 0);
}

void rig_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

struct bps_conf *rig_load(const char *file, const char *set, const char *set2)
{
    const char *const all[] = {set, set2};
    struct bps_conf_request request = {
        .confdir = "etc",
        .file = file,
        .set = all,
        .nset = set2 != NULL  ? 2
                : set != NULL ? 1
                              : 0,
    };
    struct bps_conf *conf = NULL;
    struct bps_report report = {""};
    bps_status status = bps_conf_load_from(&request, &conf, &report);
    ck_assert_msg(status == BPS_OK, "%d: %s", status, report.text);
    ck_assert_str_eq(report.text, "");
    return conf;
}

void rig_refuse(const char *file, const char *set, const char *expected)
{
    struct bps_conf_request request = {.confdir = "etc", .file = file, .set = &set, .nset = set != NULL};
    struct bps_conf *conf = NULL;
    struct bps_report report = {""};
    ck_assert_int_eq(bps_conf_load_from(&request, &conf, &report), BPS_ERR_CONF);
    ck_assert_str_eq(report.text, expected);
    ck_assert_ptr_null(conf);
    ck_assert_int_eq(bps_conf_load_from(&request, &conf, NULL), BPS_ERR_CONF);
}

/* ---- one key by bps_conf_each() ---- */

struct wanted {
    const char *key;
    char text[256], origin[256];
};

static void catch (void *arg, const char *key, const char *text, const char *origin, const struct bps_option *option)
{
    struct wanted *wanted = arg;
    ck_assert_ptr_nonnull(option);
    if (strcmp(key, wanted->key) == 0) {
        snprintf(wanted->text, sizeof wanted->text, "%s", text);
        snprintf(wanted->origin, sizeof wanted->origin, "%s", origin);
    }
}

void rig_expect(const struct bps_conf *conf, const char *key, const char *text, const char *origin)
{
    struct wanted wanted = {.key = key, .text = "(no such key)"};
    bps_conf_each(conf, catch, &wanted);
    ck_assert_msg(strcmp(wanted.text, text) == 0, "%s is %s, not %s", key, wanted.text, text);
    ck_assert_msg(strcmp(wanted.origin, origin) == 0, "%s is from %s, not %s", key, wanted.origin, origin);
}

void rig_expect_node(const struct bps_conf *conf, const char *path, const char *value, const char *origin)
{
    const struct bps_conf_node *node = bps_conf_find(conf, path);
    ck_assert_msg(node != NULL, "there is no %s", path);
    struct bps_text text = {0};
    bps_text_value(&text, node);
    ck_assert_str_eq(text.data, value);
    ck_assert_str_eq(node->origin, origin);
    bps_text_free(&text);
}
