/* SPDX-License-Identifier: Apache-2.0 */
/* schema.h - the core's own keys: the sections, their tables and the structs that they fill. */
#ifndef BPS_CONF_SCHEMA_H
#define BPS_CONF_SCHEMA_H

#include "conf/tree.h"

/* A group of keys with a table. */
struct bps_section {
    const char *name;
    const char *help;
    const struct bps_option *table;
    size_t offset; /* of its struct in struct bps_conf */
};
extern const struct bps_section bps_sections[]; /* ends with a name that is NULL */

/* A group of named plugin instances. */
struct bps_instance_map {
    const char *name;
    const char *help;
    uint32_t kind; /* of the plugins: BPS_KIND_* */
    struct bps_default_instance {
        const char *name, *plugin;
    } defaults[3]; /* ends with a name that is NULL */
};
extern const struct bps_instance_map bps_instance_maps[]; /* ends with a name that is NULL */

/* worker.graph has no row, because it is a list of groups. */
#define BPS_GRAPH_DEFAULT                                                                                              \
    "( { stage = \"local_reduce\"; use = ( \"local\" ); }, { stage = \"push_pull\"; use = ( \"net\" ); }, "            \
    "{ stage = \"local_broadcast\"; } )"

/* The section's struct. */
static inline void *bps_section_struct(const struct bps_conf *conf, const struct bps_section *section)
{
    return (char *)conf + section->offset;
}

#endif
