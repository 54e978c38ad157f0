/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin_serves.h - which frameworks the bindings serve, and which versions of them the python3 of the PATH has.
 * None is imported.
 */
#ifndef BPS_CMD_PLUGIN_SERVES_H
#define BPS_CMD_PLUGIN_SERVES_H

#include <jansson.h>

#include "plugin/registry.h"

#define BPS_SERVES_MAX 32u

struct bps_serves {
    size_t count;
    struct bps_served {
        const char *module; /* borrowed from the rows */
        char version[64];   /* "-": not installed; "?": not known */
    } items[BPS_SERVES_MAX];
    char python[256];  /* the interpreter's path; "" if there was no answer */
    char problem[128]; /* then, why */
};

/* Asks for the modules of all rows, which must outlive the answer. Without any it asks for nothing. */
void bps_serves_ask(struct bps_serves *out, const struct bps_plugin_row *rows, size_t count);

/* A line for each framework of a row. */
void bps_serves_print(const struct bps_serves *serves, const struct bps_plugin_row *row);

/* A list of objects with module, oldest, python, found and problem; null is what there is not. */
json_t *bps_serves_json(const struct bps_serves *serves, const struct bps_plugin_row *row);

#endif
