/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask.h - callbacks of plugins that answer with more than a status: asked here, so that what they say is checked once.
 *
 * What is wrong is told as by bps_blame(), with field, value and what is allowed. [any thread, but as the kind says]
 */
#ifndef BPS_PLUGIN_ASK_H
#define BPS_PLUGIN_ASK_H

#include "plugin/instance.h"

/* What an instance that has just been opened is and can: fills its `attr`, of kinds that have a `query`. */
bps_status bps_ask_attr(struct bps_instance *instance, struct bps_report *report);

/* The kernels of one reducer. */
bps_status bps_ask_kernels(const struct bps_instance *reducer, uint32_t op, uint32_t dtype, struct bps_kernels *out,
                           struct bps_report *report);

/* Has a transport listen: actual[n] is a text that is not empty, and an error has one in the report. */
bps_status bps_ask_listen(const struct bps_instance *transport, const char *address, bps_accept_fn accept, void *arg,
                          char *actual, size_t n, struct bps_report *report);

/* The line of an instance about itself, or "". What is wrong with it stands in the log. */
void bps_ask_describe(const struct bps_instance *instance, char *text, size_t n);

#endif
