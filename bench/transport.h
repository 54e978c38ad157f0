/* SPDX-License-Identifier: Apache-2.0 */
/* transport.h - the parts of `byteps bench transport`. */
#ifndef BPS_BENCH_TRANSPORT_H
#define BPS_BENCH_TRANSPORT_H

#include <sys/types.h>

#include "bench/bench.h"
#include "bench/channel.h"

#define BPS_BENCH_TRANSPORT_VERSION 1u /* of the messages */

/* ---- socket.c: blocking TCP sockets, which end with an error after some seconds of silence ---- */

/* At any free port. -1: errno says why. */
int bps_bench_socket_listen(uint16_t *port);
/* Waits for who says `word`, closes the listener. -1: nobody has come. */
int bps_bench_socket_accept(int listener, uint64_t word);
/* To a port of the host of this address "host:port". -1: the report says why. */
int bps_bench_socket_connect(const char *address, uint16_t port, uint64_t word, struct bps_report *report);

/* What the two ends do with `count` pieces of `bytes` bytes; the asking end begins when the other one is
 * there. */
bool bps_bench_socket_answer(int fd, bool echo, uint8_t *memory, size_t bytes, uint64_t count);
bool bps_bench_socket_begin(int fd);
bool bps_bench_socket_trip(int fd, uint8_t *memory, size_t bytes);
bool bps_bench_socket_stream(int fd, const uint8_t *memory, size_t bytes, uint64_t count);

/* ---- answer.c ---- */

/* Listens, prints how the other end is started, and answers one peer until it has enough. An exit status. */
int bps_bench_transport_answer(const struct bps_bench_request *request, const char *name);

/* ---- transport.c: the other end, in a process of this host that this one has started ---- */

struct bps_bench_listener {
    pid_t pid; /* 0: there is none */
    char address[128];
};

/* Prints what is wrong; returns an exit status. */
int bps_bench_listener_start(const struct bps_bench_request *request, const char *name, struct bps_bench_listener *out);
void bps_bench_listener_stop(struct bps_bench_listener *listener);

/* ---- measure.c: the asking end ---- */

struct bps_bench_latency {
    uint32_t bytes;
    struct bps_bench_spread trip; /* seconds there and back */
    double late;                  /* 99 of 100 trips take less */
    double plain, ratio;          /* of sockets, and how many times as long; 0: not known */
};

struct bps_bench_goodput {
    uint32_t bytes;
    uint64_t messages;            /* of a round */
    struct bps_bench_spread rate; /* bytes per second */
    double plain, ratio;          /* of sockets, or of memcpy(); 0: not known */
    double switches, calls;       /* context switches and system calls for a MiB at this end; calls 0: not known */
    double processor;             /* seconds for a GiB at this end */
};

struct bps_bench_asker {
    struct bps_bench_channel channel;
    int socket; /* to compare with; -1: none */
    size_t rounds;
    bool local;
    bool alone;            /* compared with nothing */
    uint64_t since, trips; /* of the trip under way; how many are to come */
    double *trip;          /* where its seconds go */
    struct bps_bench_message answer;
};

/* Greets the other end, and connects a socket to it unless the transport stays within the host. */
bps_status bps_bench_asker_begin(struct bps_bench_asker *asker, const char *address, struct bps_report *report);
void bps_bench_asker_end(struct bps_bench_asker *asker);
bps_status bps_bench_measure_latency(struct bps_bench_asker *asker, uint32_t bytes, struct bps_bench_latency *out,
                                     struct bps_report *report);
bps_status bps_bench_measure_goodput(struct bps_bench_asker *asker, uint32_t bytes, struct bps_bench_goodput *out,
                                     struct bps_report *report);

/* ---- transport_show.c ---- */

void bps_bench_print_transport(const struct bps_bench_asker *asker, int64_t rounds);
void bps_bench_print_latency_head(void);
void bps_bench_print_latency(const struct bps_bench_latency *row);
void bps_bench_print_goodput_head(void);
void bps_bench_print_goodput(const struct bps_bench_goodput *row);
json_t *bps_bench_transport_json(const struct bps_bench_asker *asker, json_t *latency, json_t *goodput);
json_t *bps_bench_latency_json(const struct bps_bench_latency *row);
json_t *bps_bench_goodput_json(const struct bps_bench_goodput *row);

#endif
