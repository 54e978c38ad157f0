/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.c - the asking end of `byteps bench transport`: trips and streams through the transport, each
 * round of them beside a round through what it is compared with.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/transport.h"

#define ROUND_SECONDS  0.1
#define TRIPS_LIMIT    100     /* of a round */
#define MESSAGES_LIMIT 1000000 /* likewise */

static double seconds_since(uint64_t begin)
{
    return (double)(bps_now() - begin) * 1e-9;
}

static uint64_t clamp(double n, uint64_t most)
{
    return n<1 ? 1 : n>(double) most ? most : (uint64_t)n;
}

/* ---- through the transport ---- */

static void start_trip(struct bps_bench_asker *asker, uint32_t bytes)
{
    asker->since = bps_now();
    bps_bench_channel_send(&asker->channel, &(struct bps_bench_message){.kind = BPS_BENCH_ECHO, .bytes = bytes}, 1);
}

static bps_status on_arrived(struct bps_bench_channel *channel, const struct bps_bench_message *message)
{
    struct bps_bench_asker *asker = channel->user;
    if (asker->trips > 0) {
        if (message->kind != BPS_BENCH_ECHOED || message->bytes != channel->sending.bytes) {
            return BPS_ERR_PROTOCOL;
        }
        *asker->trip++ = seconds_since(asker->since);
        if (--asker->trips > 0) {
            start_trip(asker, message->bytes);
            return BPS_OK;
        }
    }
    asker->answer = *message;
    bps_bench_channel_ready(channel);
    return BPS_OK;
}

/* Sends a message as often as said and waits for the answer to the last one, which is of this kind. */
static bps_status ask(struct bps_bench_asker *asker, const struct bps_bench_message *message, uint64_t count,
                      enum bps_bench_kind expected, struct bps_report *report)
{
    bps_bench_channel_send(&asker->channel, message, count);
    bps_status status = bps_bench_channel_wait(&asker->channel, report);
    if (status == BPS_OK && asker->answer.kind != expected) {
        BPS_REPORT(report, "%s: an answer was not expected", asker->channel.peer);
        status = BPS_ERR_PROTOCOL;
    }
    return status;
}

static bps_status trips(struct bps_bench_asker *asker, uint32_t bytes, uint64_t n, double *out,
                        struct bps_report *report)
{
    asker->trip = out;
    asker->trips = n;
    start_trip(asker, bytes);
    return bps_bench_channel_wait(&asker->channel, report);
}

/* The time from the first byte to the answer that all are there. */
static bps_status stream(struct bps_bench_asker *asker, uint32_t bytes, uint64_t n, double *out,
                         struct bps_report *report)
{
    const struct bps_bench_message message = {.kind = BPS_BENCH_STREAM, .bytes = bytes};
    uint64_t begin = bps_now();
    bps_status status = ask(asker, &message, n, BPS_BENCH_DONE, report);
    *out = seconds_since(begin);
    return status;
}

/* ---- what it is compared with ---- */

static bps_status plain_failed(const struct bps_bench_asker *asker, struct bps_report *report)
{
    BPS_REPORT(report, "%s: the plain socket has ended or is silent: is the peer alive?", asker->channel.peer);
    return BPS_ERR_LOST;
}

/* Tells the other end to serve its socket, and waits until it does. */
static bps_status begin_socket(struct bps_bench_asker *asker, enum bps_bench_kind kind, uint32_t bytes, uint64_t n,
                               struct bps_report *report)
{
    const struct bps_bench_message request = {.kind = kind, .first = n, .second = bytes};
    bps_bench_channel_send(&asker->channel, &request, 1);
    bps_status status = bps_bench_channel_flush(&asker->channel, report);
    if (status == BPS_OK && !bps_bench_socket_begin(asker->socket)) {
        status = plain_failed(asker, report);
    }
    return status;
}

static bps_status plain_trips(struct bps_bench_asker *asker, uint32_t bytes, uint64_t n, double *out,
                              struct bps_report *report)
{
    bps_status status = begin_socket(asker, BPS_BENCH_SOCKET_ECHO, bytes, n, report);
    for (uint64_t i = 0; i < n && status == BPS_OK; i++) {
        uint64_t begin = bps_now();
        if (!bps_bench_socket_trip(asker->socket, asker->channel.in, bytes)) {
            status = plain_failed(asker, report);
        }
        out[i] = seconds_since(begin);
    }
    return status;
}

static bps_status plain_stream(struct bps_bench_asker *asker, uint32_t bytes, uint64_t n, double *out,
                               struct bps_report *report)
{
    bps_status status = begin_socket(asker, BPS_BENCH_SOCKET_STREAM, bytes, n, report);
    uint64_t begin = bps_now();
    if (status == BPS_OK && !bps_bench_socket_stream(asker->socket, asker->channel.out, bytes, n)) {
        status = plain_failed(asker, report);
    }
    *out = seconds_since(begin);
    return status;
}

static double copies(struct bps_bench_asker *asker, uint32_t bytes, uint64_t n)
{
    uint64_t begin = bps_now();
    for (uint64_t i = 0; i < n; i++) {
        memcpy(asker->channel.in, asker->channel.out, bytes);
        __asm__ volatile("" : : "r"(asker->channel.in) : "memory"); /* nobody reads it; it is copied all the same */
    }
    return seconds_since(begin);
}

/* ---- life ---- */

static bps_status open_socket(struct bps_bench_asker *asker, const char *address, struct bps_report *report)
{
    const struct bps_bench_message request = {.kind = BPS_BENCH_SOCKET};
    struct bps_report reason = {""};
    bps_status status = ask(asker, &request, 1, BPS_BENCH_SOCKET, report);
    if (status != BPS_OK) {
        return status;
    }
    asker->socket = bps_bench_socket_connect(address, (uint16_t)asker->answer.first, asker->answer.second, &reason);
    if (asker->socket < 0) {
        fprintf(stderr, "byteps " BPS_BENCH_NAME ": nothing to compare with: %s\n", reason.text);
    }
    return BPS_OK;
}

bps_status bps_bench_asker_begin(struct bps_bench_asker *asker, const char *address, struct bps_report *report)
{
    const struct bps_bench_message hello = {.kind = BPS_BENCH_HELLO, .first = BPS_BENCH_TRANSPORT_VERSION};
    asker->channel.arrived = on_arrived;
    asker->channel.user = asker;
    asker->socket = -1;
    asker->local = !asker->alone && bps_bench_channel_is_local(&asker->channel);
    bps_status status = bps_bench_channel_dial(&asker->channel, address, report);
    if (status == BPS_OK) {
        status = ask(asker, &hello, 1, BPS_BENCH_HELLO, report);
    }
    return status == BPS_OK && !asker->local && !asker->alone ? open_socket(asker, address, report) : status;
}

void bps_bench_asker_end(struct bps_bench_asker *asker)
{
    if (asker->channel.channel != NULL && asker->channel.connected) {
        bps_bench_channel_send(&asker->channel, &(struct bps_bench_message){.kind = BPS_BENCH_BYE}, 1);
        asker->channel.ops->finish(asker->channel.channel);
        bps_bench_channel_wait(&asker->channel, NULL); /* it closes, which is what is waited for */
    }
    if (asker->socket >= 0) {
        close(asker->socket);
    }
}

/* ---- measurements ---- */

static double median(const double *values, size_t n)
{
    double *copy = bps_cmd_alloc(n, sizeof *copy);
    memcpy(copy, values, n * sizeof *copy);
    double result = bps_bench_spread(copy, n).median;
    free(copy);
    return result;
}

static bps_status latency_rounds(struct bps_bench_asker *asker, struct bps_bench_latency *out, uint64_t n,
                                 double *times, double *plain, struct bps_report *report)
{
    size_t rounds = asker->rounds;
    double *ratios = bps_cmd_alloc(rounds, sizeof *ratios);
    bps_status status = BPS_OK;
    for (size_t i = 0; i < rounds && status == BPS_OK; i++) {
        double *time = times + i * n, *other = plain + i * n;
        if (asker->socket >= 0) {
            status = plain_trips(asker, out->bytes, n, other, report);
        }
        if (status == BPS_OK) {
            status = trips(asker, out->bytes, n, time, report);
        }
        if (status == BPS_OK && asker->socket >= 0) {
            ratios[i] = median(time, n) / median(other, n);
        }
    }
    if (status == BPS_OK) {
        out->trip = bps_bench_spread(times, rounds * n);
        out->late = times[rounds * n * 99 / 100];
        out->plain = asker->socket >= 0 ? median(plain, rounds * n) : 0;
        out->ratio = bps_bench_spread(ratios, rounds).median;
    }
    free(ratios);
    return status;
}

bps_status bps_bench_measure_latency(struct bps_bench_asker *asker, uint32_t bytes, struct bps_bench_latency *out,
                                     struct bps_report *report)
{
    double first[3];
    *out = (struct bps_bench_latency){.bytes = bytes};
    bps_status status = trips(asker, bytes, 3, first, report);
    if (status != BPS_OK) {
        return status;
    }
    uint64_t n = clamp(ROUND_SECONDS / first[2], TRIPS_LIMIT);
    double *times = bps_cmd_alloc(asker->rounds * n, sizeof *times);
    double *plain = bps_cmd_alloc(asker->rounds * n, sizeof *plain);
    status = latency_rounds(asker, out, n, times, plain, report);
    free(times);
    free(plain);
    return status;
}

/* What a round has cost this end. */
struct cost {
    struct rusage usage;
    uint64_t calls;
};

static void read_cost(const struct bps_bench_asker *asker, struct cost *out)
{
    getrusage(RUSAGE_SELF, &out->usage);
    out->calls = bps_bench_channel_count(&asker->channel, "_calls");
}

static double processor(const struct rusage *usage)
{
    return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
           (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1e-6;
}

static void add_cost(const struct bps_bench_asker *asker, const struct cost *before, struct bps_bench_goodput *out)
{
    struct cost after;
    read_cost(asker, &after);
    double mib = (double)out->bytes * (double)out->messages * (double)asker->rounds / (1 << 20);
    out->switches +=
        (double)(after.usage.ru_nvcsw + after.usage.ru_nivcsw - before->usage.ru_nvcsw - before->usage.ru_nivcsw) / mib;
    out->calls += (double)(after.calls - before->calls) / mib;
    out->processor += (processor(&after.usage) - processor(&before->usage)) / mib * 1024;
}

/* How many messages make a round. */
static bps_status calibrate(struct bps_bench_asker *asker, struct bps_bench_goodput *out, struct bps_report *report)
{
    double once = 0;
    bps_status status = stream(asker, out->bytes, 1, &once, report); /* the first time touches the memory */
    uint64_t n = 1;
    while (status == BPS_OK) {
        status = stream(asker, out->bytes, n, &once, report);
        if (once > ROUND_SECONDS / 4 || n >= MESSAGES_LIMIT / 4) {
            break;
        }
        n *= 4;
    }
    out->messages = clamp(ROUND_SECONDS / once * (double)n, MESSAGES_LIMIT);
    return status;
}

static bps_status goodput_round(struct bps_bench_asker *asker, struct bps_bench_goodput *out, double *rate,
                                double *plain, struct bps_report *report)
{
    double bytes = (double)out->bytes * (double)out->messages, time = 0;
    bps_status status = BPS_OK;
    *plain = 0;
    if (asker->local) {
        *plain = bytes / copies(asker, out->bytes, out->messages);
    } else if (asker->socket >= 0) {
        status = plain_stream(asker, out->bytes, out->messages, &time, report);
        *plain = bytes / time;
    }
    if (status == BPS_OK) {
        struct cost before;
        read_cost(asker, &before);
        status = stream(asker, out->bytes, out->messages, &time, report);
        add_cost(asker, &before, out);
        *rate = bytes / time;
    }
    return status;
}

bps_status bps_bench_measure_goodput(struct bps_bench_asker *asker, uint32_t bytes, struct bps_bench_goodput *out,
                                     struct bps_report *report)
{
    size_t rounds = asker->rounds;
    double *rates = bps_cmd_alloc(3 * rounds, sizeof *rates), *plain = rates + rounds, *ratios = plain + rounds;
    *out = (struct bps_bench_goodput){.bytes = bytes};
    bps_status status = calibrate(asker, out, report);
    for (size_t i = 0; i < rounds && status == BPS_OK; i++) {
        status = goodput_round(asker, out, &rates[i], &plain[i], report);
        ratios[i] = plain[i] > 0 ? rates[i] / plain[i] : 0;
    }
    if (status == BPS_OK) {
        out->rate = bps_bench_spread(rates, rounds);
        out->plain = bps_bench_spread(plain, rounds).median;
        out->ratio = bps_bench_spread(ratios, rounds).median;
    }
    free(rates);
    return status;
}
