/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.h - a TCP connection that a launcher opens: every wait ends at a time that is given once.
 *
 * Errors are BPS_ERR_TIMEOUT, and BPS_ERR_IO with the reason.
 */
#ifndef BPS_LAUNCHERS_STREAM_H
#define BPS_LAUNCHERS_STREAM_H

#include "util/util.h"

struct launcher_stream {
    int fd;         /* -1: closed */
    uint64_t until; /* launcher_now() */
};

/* Tries each address of the host once. */
bps_status launcher_stream_open(struct launcher_stream *stream, const char *host, const char *port, uint64_t until,
                                struct bps_report *report);
void launcher_stream_close(struct launcher_stream *stream);
bps_status launcher_stream_send(struct launcher_stream *stream, const void *data, size_t n, struct bps_report *report);
/* Exactly n bytes; less before the other end hangs up is BPS_ERR_IO. */
bps_status launcher_stream_receive(struct launcher_stream *stream, void *data, size_t n, struct bps_report *report);

#endif
