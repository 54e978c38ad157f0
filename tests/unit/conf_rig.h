/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf_rig.h - what the tests of the configuration share: a folder and an environment of their own, and what
 * a loaded configuration is expected to hold.
 *
 * Each test runs in a process of its own, so that it may change variables and the working directory.
 */
#ifndef BPS_TEST_CONF_RIG_H
#define BPS_TEST_CONF_RIG_H

#include <stdio.h>

#include "checks.h"
#include "conf/conf.h"

/* Fixtures: an empty folder to work in, but for etc and etc/conf.d, and no variables. */
void rig_open(void);
void rig_close(void);

void rig_write(const char *path, const char *text);

/* Loads with etc as the system's directory, a file (or NULL) and up to two settings (or NULL). */
struct bps_conf *rig_load(const char *file, const char *set, const char *set2);
/* The same is refused with this error. */
void rig_refuse(const char *file, const char *set, const char *expected);

/* One key by bps_conf_each(). */
void rig_expect(const struct bps_conf *conf, const char *key, const char *text, const char *origin);
/* Of values without a table. */
void rig_expect_node(const struct bps_conf *conf, const char *path, const char *value, const char *origin);

#endif
