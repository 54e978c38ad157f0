/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.c - the transport over RDMA: its module, its options, and the life of an instance. */
#include "verbs.h"

static const struct bps_option options[] = {
    BPS_OPTION(struct verbs_options, device, LIST, 0, "", NULL,
               "RDMA devices, by their names in `ibv_devices`, each with its port behind a colon where that is not "
               "`port`: connections leave by each of them in turn, and go on over the others when one is lost; empty: "
               "the first one with an active port, and for connections as the routes say."),
    BPS_OPTION(struct verbs_options, port, INT, 0, "1", "1..255", "Port of the devices."),
    BPS_OPTION(struct verbs_options, gid_index, INT, 0, "-1", "-1..1023",
               "Row of the port's GID table, which is an address of this host with RoCE; -1: the first with an IPv4 "
               "address and RoCE v2, else IPv6."),
    BPS_OPTION(struct verbs_options, host, LIST, 0, "", NULL,
               "Own address to listen on, to connect from and to tell to others, one for each device; for InfiniBand "
               "that of the IPoIB interface; empty: that of the GID."),
    BPS_OPTION(struct verbs_options, family, CHOICE, 0, "auto", "auto|ipv4|ipv6",
               "Version of the Internet Protocol that names are resolved to; auto: every one they have."),
    BPS_OPTION(struct verbs_options, traffic_class, INT, 0, "0", "0..255",
               "Traffic class of the packets (the DSCP is its upper six bits); switches and the mapping of the device "
               "to service levels choose queues by it."),
    BPS_OPTION(struct verbs_options, service_level, INT, 0, "-1", "-1..15",
               "Service level of the packets, which chooses a virtual lane with InfiniBand and the priority of a VLAN "
               "with RoCE; -1: that of the route, or of the traffic class."),
    BPS_OPTION(struct verbs_options, ack_timeout, INT, 0, "18", "8..31",
               "Time without acknowledgement after which packets are sent again: 4.096 us times two to this power; 18 "
               "is about 1 s."),
    BPS_OPTION(struct verbs_options, retry_count, INT, 0, "7", "0..7",
               "How often they are sent again before the peer counts as dead."),
    BPS_OPTION(struct verbs_options, timeout, TIME, 0, "20 s", "100 ms..1 h",
               "Time that a peer has to answer to a connection."),
    BPS_OPTION(struct verbs_options, eager, SIZE, 0, "4 KiB", "0..64 KiB",
               "Payloads up to this size travel with their header; larger ones are read by the peer when it has room."),
    BPS_OPTION(struct verbs_options, block, SIZE, 0, "256 KiB", "4 KiB..4 MiB", "Bytes of one read."),
    BPS_OPTION(struct verbs_options, window, SIZE, 0, "1 MiB", "64 KiB..1 GiB",
               "Bytes that a peer may be told of before it has read them: with less, urgent frames overtake sooner."),
    BPS_OPTION(struct verbs_options, arena, SIZE, 0, "8 MiB", "64 KiB..16 GiB",
               "Bytes of registered memory for payloads that arrive, and as many for those to send that lie in memory "
               "that is not registered."),
    BPS_OPTION(struct verbs_options, credits, INT, 0, "16", "4..1024",
               "Messages that may be under way from a peer: as many receive buffers are kept for it."),
    BPS_OPTION(struct verbs_options, device_memory, BOOL, 0, "true", NULL,
               "Tensors on a GPU are read and written there, through a dma-buf, where GPU and RDMA device can do that; "
               "false: they are copied to the host, which may be faster where the two are far apart."),
    {0},
};

static void count(struct verbs *verbs)
{
    const struct bps_host *host = verbs->host;
    verbs->count = (struct verbs_counters){
        .frames_sent = host->counter(host, "frames_sent", "frames whose peer has been told of all"),
        .frames_received = host->counter(host, "frames_received", "headers of frames that have arrived"),
        .bytes_sent = host->counter(host, "bytes_sent", "bytes of payloads sent"),
        .bytes_received = host->counter(host, "bytes_received", "bytes of payloads that have arrived"),
        .bytes_copied = host->counter(host, "bytes_copied", "bytes copied to registered memory before sending"),
        .bytes_in_place = host->counter(host, "bytes_in_place", "bytes sent from where they lay"),
        .bytes_placed = host->counter(host, "bytes_placed", "bytes read to where the core wants them"),
        .work_requests = host->counter(host, "work_requests", "sends and reads posted"),
        .doorbells = host->counter(host, "doorbells", "calls that posted them"),
    };
}

static bps_status check_options(const struct verbs_options *o, struct bps_report *report)
{
    if (o->arena < 2 * o->block || o->arena / o->block > UINT32_MAX) {
        BPS_REPORT(report, "arena = %llu: expected at least two blocks of block = %llu", (unsigned long long)o->arena,
                   (unsigned long long)o->block);
        return BPS_ERR_CONF;
    }
    uint32_t devices = o->device.count > 0 ? o->device.count : 1;
    if (devices > VERBS_RAILS || o->host.count > devices) {
        BPS_REPORT(report, "device names %u and host %u: expected at most %u, and no more hosts than devices", devices,
                   o->host.count, VERBS_RAILS);
        return BPS_ERR_CONF;
    }
    bps_status status = BPS_OK;
    for (uint32_t i = 0; i < o->host.count && status == BPS_OK; i++) {
        status = bps_util_host_check(o->host.items[i], report);
    }
    return status;
}

static void verbs_close(void *instance)
{
    struct verbs *verbs = instance;
    verbs_probe_stop(verbs);
    verbs_listeners_close(verbs);
    while (!LIST_EMPTY(&verbs->channels)) {
        verbs_drop(LIST_FIRST(&verbs->channels));
    }
    if (verbs->poller != NULL) {
        verbs->host->unpoll(verbs->host, verbs->poller);
    }
    verbs_pairs_free(verbs);
    verbs_devices_close(verbs);
    verbs_manager_close(verbs);
    verbs_regions_free(verbs);
    verbs->host->release(verbs->host, verbs);
}

static bps_status verbs_open(const struct bps_host *host, const void *opts, void **instance_out,
                             struct bps_report *report)
{
    bps_status status = check_options(opts, report);
    if (status != BPS_OK) {
        return status;
    }
    struct verbs *verbs = host->alloc(host, sizeof *verbs, 64);
    if (verbs == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *verbs = (struct verbs){.host = host, .options = *(const struct verbs_options *)opts};
    verbs->poll = verbs_poll;
    verbs->leave_ports = verbs_leave_ports;
    verbs_turns_init(verbs);
    TAILQ_INIT(&verbs->starved);
    count(verbs);
    verbs_fork_init();
    status = verbs_devices_open(verbs, report);
    if (status == BPS_OK) {
        status = verbs_manager_open(verbs, report);
    }
    if (status == BPS_OK && (verbs->poller = host->poller(host, verbs_poll, verbs_arm, verbs)) == NULL) {
        BPS_REPORT(report, "out of memory");
        status = BPS_ERR_NOMEM;
    }
    if (status != BPS_OK) {
        verbs_close(verbs);
        return status;
    }
    *instance_out = verbs;
    return BPS_OK;
}

static void verbs_query(void *instance, struct bps_transport_attr *out)
{
    const struct verbs *verbs = instance;
    out->lanes = verbs->nrails;
    out->device_bytes = verbs->options.device_memory ? (uint32_t)verbs->options.eager + 1 : 0;
}

/* "rxe0 port 1 at 10.0.0.7, rxe1 port 1 at 10.1.0.7" */
static void describe_rails(const struct verbs *verbs, char *text, size_t n)
{
    *text = '\0';
    for (uint32_t i = 0; i < verbs->nrails; i++) {
        const struct verbs_rail *rail = &verbs->rails[i];
        struct sockaddr_storage own;
        char host[BPS_UTIL_ADDRESS_TEXT] = "no address";
        if (verbs_own_address(verbs, rail, AF_UNSPEC, &own)) {
            bps_util_host_text((struct sockaddr *)&own, host, sizeof host);
        }
        bps_util_append(text, n, "%s%s port %u at %s", i > 0 ? ", " : "",
                        ibv_get_device_name(rail->device->context->device), rail->port, host);
    }
}

static void verbs_describe(void *instance, char *text, size_t n)
{
    const struct verbs *verbs = instance;
    const struct verbs_options *o = &verbs->options;
    char rails[512];
    describe_rails(verbs, rails, sizeof rails);
    snprintf(text, n,
             "device %s, eager up to %llu KiB, blocks of %llu KiB, window %llu KiB; tensors of bps_alloc and "
             "registered ones leave from their place, others through an arena of %llu KiB",
             rails, (unsigned long long)(o->eager >> 10), (unsigned long long)(o->block >> 10),
             (unsigned long long)(o->window >> 10), (unsigned long long)(o->arena >> 10));
}

static const struct bps_transport_ops ops = {
    .size = sizeof ops,
    .open = verbs_open,
    .close = verbs_close,
    .query = verbs_query,
    .listen = verbs_listen,
    .dial = verbs_dial,
    .kick = verbs_kick,
    .finish = verbs_finish,
    .drop = verbs_drop,
    .local_host = verbs_local_host,
    .describe = verbs_describe,
    .attach = verbs_attach,
    .detach = verbs_detach,
    .delivered = verbs_delivered,
    .speed = verbs_speed,
};

BPS_PLUGIN_MODULE(BPS_KIND_TRANSPORT, "verbs", PLUGIN_VERSION, "Apache-2.0",
                  .summary = "frames over RDMA: RoCE and InfiniBand", .options = options,
                  .options_size = sizeof(struct verbs_options), .ops = &ops);
