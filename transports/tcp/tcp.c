/* SPDX-License-Identifier: Apache-2.0 */
/* tcp.c - the transport over TCP: its module, its options, and the life of an instance. */
#include "tcp.h"

static const struct bps_option options[] = {
    BPS_OPTION(
        struct tcp_options, interface, LIST, 0, "", NULL,
        "Network interfaces, each by its name, its address or a subnet such as 10.0.0.0/24. Several, each in a subnet "
        "of its own, carry the bytes together: shards listen on all of them, and each has a connection to each peer. "
        "Empty: as the routes say."),
    BPS_OPTION(struct tcp_options, host, STRING, 0, "", NULL,
               "Own name or address to listen on and to tell to others; empty: that of the first interface, else "
               "loopback."),
    BPS_OPTION(struct tcp_options, streams, INT, 0, "1", "1..16",
               "Connections to each peer, at least one for each interface."),
    BPS_OPTION(struct tcp_options, congestion, STRING, 0, "auto", NULL,
               "Congestion control, by the kernel's name for it; auto: cubic where the kernel allows it, and the "
               "system's default on long paths that lose; empty: the system's default."),
    BPS_OPTION(struct tcp_options, notsent_lowat, SIZE, 0, "128 KiB", "0..1 GiB",
               "Bytes that may wait unsent in the kernel before the next frame is chosen: with less, urgent frames "
               "overtake sooner; 0: the system's default."),
    BPS_OPTION(struct tcp_options, send_buffer, SIZE, 0, "0", "0..1 GiB",
               "Bytes of a socket's send buffer; 0: the kernel sizes it."),
    BPS_OPTION(struct tcp_options, receive_buffer, SIZE, 0, "0", "0..1 GiB",
               "Bytes of a socket's receive buffer; 0: the kernel sizes it."),
    BPS_OPTION(struct tcp_options, keepalive, TIME, 0, "10 s", "0..1 h",
               "Time without traffic after which the peer's kernel is probed; 0: never."),
    BPS_OPTION(struct tcp_options, user_timeout, TIME, 0, "20 s", "0..1 h",
               "Time without acknowledgement, or without answer to a connection, after which the peer counts as dead; "
               "0: the kernel decides, after many minutes."),
    BPS_OPTION(struct tcp_options, family, CHOICE, 0, "auto", "auto|ipv4|ipv6",
               "Version of the Internet Protocol that names are resolved to; auto: every one they have."),
    BPS_OPTION(struct tcp_options, multipath, BOOL, 0, "false", NULL,
               "A connection uses all paths that the kernel knows (Multipath TCP, ip-mptcp(8)), and lives as long as "
               "one of them does."),
    {0},
};

static void count(struct tcp *tcp)
{
    const struct bps_host *host = tcp->host;
    tcp->count = (struct tcp_counters){
        .bytes_sent = host->counter(host, "bytes_sent", "bytes that the kernel has accepted"),
        .bytes_received = host->counter(host, "bytes_received", "bytes read from sockets"),
        .frames_sent = host->counter(host, "frames_sent", "frames that the kernel has wholly accepted"),
        .frames_received = host->counter(host, "frames_received", "headers of frames that have arrived"),
        .send_calls = host->counter(host, "send_calls", "system calls that write"),
        .receive_calls = host->counter(host, "receive_calls", "system calls that read"),
    };
}

static bps_status tcp_open(const struct bps_host *host, const void *opts, void **instance_out,
                           struct bps_report *report)
{
    struct tcp *tcp = host->alloc(host, sizeof *tcp, 64);
    if (tcp == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *tcp = (struct tcp){.host = host, .options = *(const struct tcp_options *)opts, .on_event = tcp_channel_event};
    LIST_INIT(&tcp->listeners);
    LIST_INIT(&tcp->channels);
    bps_util_turns_init(&tcp->turns, host, tcp_channel_work, NULL, NULL);
    bps_status status = bps_util_host_check(tcp->options.host, report);
    if (status == BPS_OK) {
        status = tcp_addresses_check(tcp, report);
    }
    if (status == BPS_OK && tcp->options.multipath) {
        status = tcp_multipath_check(report);
    }
    if (status != BPS_OK) {
        goto fail;
    }
    tcp->scratch = host->alloc(host, TCP_SCRATCH_HEAD + TCP_SCRATCH, 4096);
    if (tcp->scratch == NULL) {
        BPS_REPORT(report, "out of memory");
        status = BPS_ERR_NOMEM;
        goto fail;
    }
    count(tcp);
    bps_util_fork_init();
    tcp_choose_congestion(tcp);
    *instance_out = tcp;
    return BPS_OK;

fail:
    host->release(host, tcp);
    return status;
}

static void tcp_close(void *instance)
{
    struct tcp *tcp = instance;
    tcp_silence_unwatch(tcp);
    bps_util_listeners_close(&tcp->listeners);
    while (!LIST_EMPTY(&tcp->channels)) {
        tcp_drop(LIST_FIRST(&tcp->channels));
    }
    tcp->host->release(tcp->host, tcp->scratch);
    tcp->host->release(tcp->host, tcp);
}

static void tcp_query(void *instance, struct bps_transport_attr *out)
{
    out->lanes = tcp_lanes(instance);
}

static void size_text(uint64_t bytes, char *text, size_t n)
{
    if (bytes >= 1u << 20 && bytes % (1u << 20) == 0) {
        snprintf(text, n, "%llu MiB", (unsigned long long)(bytes >> 20));
    } else if (bytes >= 1u << 10 && bytes % (1u << 10) == 0) {
        snprintf(text, n, "%llu KiB", (unsigned long long)(bytes >> 10));
    } else {
        snprintf(text, n, "%llu B", (unsigned long long)bytes);
    }
}

static void tcp_describe(void *instance, char *text, size_t n)
{
    const struct tcp *tcp = instance;
    const struct bps_list *interfaces = &tcp->options.interface;
    char low_water[32] = "of the system", names[256] = "";
    if (tcp->options.notsent_lowat > 0) {
        size_text(tcp->options.notsent_lowat, low_water, sizeof low_water);
    }
    for (uint32_t i = 0; i < interfaces->count; i++) {
        bps_util_append(names, sizeof names, " %s", interfaces->items[i]);
    }
    snprintf(text, n, "congestion %s%s%s, %u stream%s%s, not-sent low water %s, interface%s%s", tcp->congestion,
             tcp->other_congestion[0] != '\0' ? " or " : "", tcp->other_congestion, tcp_lanes(tcp),
             tcp_lanes(tcp) == 1 ? "" : "s", tcp->options.multipath ? " of all paths" : "", low_water,
             interfaces->count > 1 ? "s" : "", interfaces->count > 0 ? names : " any");
}

static const struct bps_transport_ops ops = {
    .size = sizeof ops,
    .open = tcp_open,
    .close = tcp_close,
    .query = tcp_query,
    .listen = tcp_listen,
    .dial = tcp_dial,
    .kick = tcp_kick,
    .finish = tcp_finish,
    .drop = tcp_drop,
    .local_host = tcp_local_host,
    .describe = tcp_describe,
    .round_trip = tcp_round_trip,
    .delivered = tcp_delivered,
    .speed = tcp_speed,
};

BPS_PLUGIN_MODULE(BPS_KIND_TRANSPORT, "tcp", PLUGIN_VERSION, "Apache-2.0", .summary = "frames over TCP, IPv4 and IPv6",
                  .options = options, .options_size = sizeof(struct tcp_options), .ops = &ops);
