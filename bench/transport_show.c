/* SPDX-License-Identifier: Apache-2.0 */
/* transport_show.c - the tables and the JSON of `byteps bench transport`. */
#include <inttypes.h>
#include <stdio.h>

#include "bench/transport.h"
#include "tools/info.h"
#include "tools/plan.h"

static const char *plain_name(const struct bps_bench_asker *asker)
{
    return asker->local ? "memcpy" : asker->socket >= 0 ? "sockets" : "nothing";
}

static const char *ratio_text(double ratio, char text[static 16])
{
    snprintf(text, 16, ratio > 0 ? "%.2f" : "-", ratio);
    return text;
}

static const char *number_text(double number, char text[static 16])
{
    snprintf(text, 16, "%.3g", number);
    return text;
}

void bps_bench_print_transport(const struct bps_bench_asker *asker, int64_t rounds)
{
    char text[512];
    bps_transport_text(asker->channel.transport, text, sizeof text);
    printf("transport %s\n"
           "messages between two processes, here and at %s; %" PRId64 " rounds, in turn with plain %s\n",
           text, asker->channel.peer, rounds, plain_name(asker));
    fflush(stdout);
}

void bps_bench_print_latency_head(void)
{
    printf("\n%-12s%12s%12s%12s%12s%12s%10s\n", "message", "round trip", "one way", "fastest", "99 of 100", "plain",
           "x plain");
}

void bps_bench_print_latency(const struct bps_bench_latency *row)
{
    char ratio[16];
    printf("%-12s%12s%12s%12s%12s%12s%10s\n", bps_bench_size_text(row->bytes), bps_duration_text(row->trip.median),
           bps_duration_text(row->trip.median / 2), bps_duration_text(row->trip.least), bps_duration_text(row->late),
           row->plain > 0 ? bps_duration_text(row->plain) : "-", ratio_text(row->ratio, ratio));
    fflush(stdout);
}

void bps_bench_print_goodput_head(void)
{
    printf("\n%-12s%12s%12s%12s%12s%10s%14s%12s%10s\n", "message", "per second", "slowest", "fastest", "plain",
           "of plain", "switches/MiB", "calls/MiB", "CPU s/GiB");
}

void bps_bench_print_goodput(const struct bps_bench_goodput *row)
{
    char ratio[16], switches[16], calls[16], processor[16];
    printf("%-12s%12s%12s%12s%12s%10s%14s%12s%10s\n", bps_bench_size_text(row->bytes), bps_bytes_text(row->rate.median),
           bps_bytes_text(row->rate.least), bps_bytes_text(row->rate.most),
           row->plain > 0 ? bps_bytes_text(row->plain) : "-", ratio_text(row->ratio, ratio),
           number_text(row->switches, switches), row->calls > 0 ? number_text(row->calls, calls) : "-",
           number_text(row->processor, processor));
    fflush(stdout);
}

/* ---- for programs ---- */

/* 0 stands for "not known". */
static json_t *known(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

json_t *bps_bench_latency_json(const struct bps_bench_latency *row)
{
    return json_pack("{s:I, s:{s:f, s:f, s:f, s:f}, s:f, s:o, s:o}", "bytes", (json_int_t)row->bytes,
                     "round_trip_seconds", "median", row->trip.median, "fastest", row->trip.least, "slowest",
                     row->trip.most, "percentile_99", row->late, "one_way_seconds", row->trip.median / 2,
                     "plain_round_trip_seconds", known(row->plain), "ratio_to_plain", known(row->ratio));
}

json_t *bps_bench_goodput_json(const struct bps_bench_goodput *row)
{
    return json_pack("{s:I, s:I, s:{s:f, s:f, s:f}, s:o, s:o, s:f, s:o, s:f}", "bytes", (json_int_t)row->bytes,
                     "messages", (json_int_t)row->messages, "bytes_per_second", "median", row->rate.median, "slowest",
                     row->rate.least, "fastest", row->rate.most, "plain_bytes_per_second", known(row->plain),
                     "ratio_to_plain", known(row->ratio), "context_switches_per_mib", row->switches,
                     "system_calls_per_mib", known(row->calls), "processor_seconds_per_gib", row->processor);
}

json_t *bps_bench_transport_json(const struct bps_bench_asker *asker, json_t *latency, json_t *goodput)
{
    const struct bps_instance *transport = asker->channel.transport;
    char text[512];
    bps_transport_text(transport, text, sizeof text);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o}", "transport", transport->name, "plugin",
                     transport->loaded->plugin->name, "about", text, "peer", asker->channel.peer, "plain",
                     plain_name(asker), "latency", latency, "goodput", goodput);
}
