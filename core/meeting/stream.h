/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.h - a TCP connection that one side of a meeting opens: every wait ends at a time that is given once.
 *
 * Errors are BPS_ERR_TIMEOUT, and BPS_ERR_IO with the reason.
 */
#ifndef BPS_MEETING_STREAM_H
#define BPS_MEETING_STREAM_H

#include <stddef.h>

#include <byteps/plugin.h> /* struct bps_report */

struct bps_stream {
    int fd;         /* -1: closed */
    uint64_t until; /* bps_now() */
};

/* Tries each address of the host once. */
bps_status bps_stream_open(struct bps_stream *stream, const char *host, const char *port, uint64_t until,
                           struct bps_report *report);
void bps_stream_close(struct bps_stream *stream);
bps_status bps_stream_send(struct bps_stream *stream, const void *data, size_t n, struct bps_report *report);
/* Exactly n bytes; less before the other end hangs up is BPS_ERR_IO. */
bps_status bps_stream_receive(struct bps_stream *stream, void *data, size_t n, struct bps_report *report);

#endif
