/* SPDX-License-Identifier: Apache-2.0 */
/* side.h - for the tests of transports: instances of one. */
#ifndef SIDE_H
#define SIDE_H

#include <byteps/transport.h>

#include "base/loop.h"
#include "plugin/instance.h"

/* The transport that these tests are about; each has its own. */
extern const struct side_kind {
    const char *plugin, *name, *path; /* "tcp", "net", "transports.net" */
} side_kind;

/* An instance of the transport. */
struct side {
    struct bps_loop *loop;
    struct bps_instance *instance;
    const struct bps_transport_ops *ops;
};

/* Options are up to eight "name=value"; lists are words separated by blanks. */
void side_open(struct side *side, struct bps_loop *loop, const char *const *options);
/* The same where options may be refused. */
bps_status side_try(struct side *side, struct bps_loop *loop, const char *const *options, struct bps_report *report);
void side_close(struct side *side);
uint64_t side_counter(const struct side *side, const char *name);

#endif
