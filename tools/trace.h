/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - the parts of `byteps trace`: what its options say, and its subcommands. */
#ifndef BPS_CMD_TRACE_H
#define BPS_CMD_TRACE_H

#include "tools/trace_read.h"

struct bps_cmd_trace_command {
    const char *output; /* NULL: standard output */
    bool json, workers, some;
    uint64_t from, to; /* of the steps, if some only are wanted */
};

/* Both return an exit status. */
int bps_cmd_trace_merge(struct bps_cmd_trace *trace, const struct bps_cmd_trace_command *command);
int bps_cmd_trace_show(const struct bps_cmd_trace *trace, const struct bps_cmd_trace_command *command);

#endif
