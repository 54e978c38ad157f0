/* SPDX-License-Identifier: Apache-2.0 */
/* ipc.c - the transport over shared memory: its module, its options, and the life of an instance. */
#include "ipc.h"

static const struct bps_option options[] = {
    BPS_OPTION(struct ipc_options, copy, CHOICE, 0, "auto", "auto|process_vm|arena|ring",
               "How large payloads travel. auto: in place if they lie in shared regions, else up to 2 MiB through "
               "a shared arena while it has room, else by process_vm_readv if the kernel permits it, else through the "
               "arena. The others: that way only; ring: in pieces."),
    BPS_OPTION(struct ipc_options, inline_bytes, SIZE, 0, "16 KiB", "0..1 MiB",
               "Payloads up to this size are copied through the ring; at most a quarter of it."),
    BPS_OPTION(struct ipc_options, ring, SIZE, 0, "64 KiB", "16 KiB..16 MiB",
               "Bytes of the ring of each direction of a channel, a power of two."),
    BPS_OPTION(struct ipc_options, arena, SIZE, 0, "16 MiB", "0..1 GiB",
               "Bytes of the shared arena of a channel, made when it is needed first; 0: none."),
    BPS_OPTION(struct ipc_options, window, SIZE, 0, "64 MiB", "64 KiB..16 GiB",
               "Bytes that are shown to a peer before it has come to them: with less, urgent frames overtake sooner."),
    BPS_OPTION(struct ipc_options, timeout, TIME, 0, "10 s", "100 ms..1 h",
               "Time that a peer has to answer when a channel begins."),
    BPS_OPTION(struct ipc_options, ptracer, BOOL, 0, "no", NULL,
               "Where Yama's ptrace_scope is 1, let all processes of this user reach the memory of this one, so that "
               "process_vm_readv works."),
    {0},
};

static const char *const way_names[IPC_WAYS] = {"inline", "region", "process_vm", "arena", "ring"};

static void count(struct ipc *ipc)
{
    static const char *const frames[] = {"frames_inline", "frames_region", "frames_process_vm", "frames_arena",
                                         "frames_ring"};
    static const char *const bytes[] = {"bytes_inline", "bytes_region", "bytes_process_vm", "bytes_arena",
                                        "bytes_ring"};
    const struct bps_host *host = ipc->host;
    ipc->count.frames_sent = host->counter(host, "frames_sent", "frames of all ways");
    ipc->count.frames_received = host->counter(host, "frames_received", "headers of frames that have arrived");
    ipc->count.wakeups = host->counter(host, "wakeups", "times that a sleeping peer was woken");
    ipc->count.loans = host->counter(host, "loans", "payloads that peers have lent");
    for (unsigned way = 0; way < IPC_WAYS; way++) {
        ipc->count.frames[way] = host->counter(host, frames[way], "frames sent in this way");
        ipc->count.bytes[way] = host->counter(host, bytes[way], "bytes of their payloads");
    }
}

static bps_status check_options(const struct ipc_options *o, struct bps_report *report)
{
    if ((o->ring & (o->ring - 1)) != 0) {
        BPS_REPORT(report, "ring = %llu: expected a power of two", (unsigned long long)o->ring);
        return BPS_ERR_CONF;
    }
    if (o->inline_bytes > o->ring / 4) {
        BPS_REPORT(report, "inline_bytes = %llu: expected at most a quarter of ring = %llu",
                   (unsigned long long)o->inline_bytes, (unsigned long long)o->ring);
        return BPS_ERR_CONF;
    }
    return BPS_OK;
}

static bps_status ipc_open(const struct bps_host *host, const void *opts, void **instance_out,
                           struct bps_report *report)
{
    bps_status status = check_options(opts, report);
    if (status != BPS_OK) {
        return status;
    }
    struct ipc *ipc = host->alloc(host, sizeof *ipc, IPC_LINE);
    if (ipc == NULL) {
        BPS_REPORT(report, "out of memory");
        return BPS_ERR_NOMEM;
    }
    *ipc = (struct ipc){.host = host, .options = *(const struct ipc_options *)opts, .event = -1};
    LIST_INIT(&ipc->listeners);
    LIST_INIT(&ipc->channels);
    bps_util_turns_init(&ipc->turns, host, ipc_channel_work, NULL, NULL);
    TAILQ_INIT(&ipc->region_list);
    count(ipc);
    bps_util_fork_init();
    *instance_out = ipc;
    return BPS_OK;
}

static void ipc_close(void *instance)
{
    struct ipc *ipc = instance;
    const struct bps_host *host = ipc->host;
    bps_util_listeners_close(&ipc->listeners);
    while (!LIST_EMPTY(&ipc->channels)) {
        ipc_drop(LIST_FIRST(&ipc->channels));
    }
    ipc_stop(ipc);
    ipc_regions_free(ipc);
    host->release(host, ipc->scratch);
    host->release(host, ipc);
}

/* No address: peers on this host are found by the name of the socket. */
static void ipc_local_host(struct bps_channel *channel, char *host, size_t n)
{
    (void)channel;
    snprintf(host, n, "%s", "");
}

static void ipc_query(void *instance, struct bps_transport_attr *out)
{
    (void)instance;
    out->lanes = 1;
    out->local = true;
}

static void ipc_describe(void *instance, char *text, size_t n)
{
    static const char *const copies[] = {"auto", "process_vm", "arena", "ring"};
    const struct ipc *ipc = instance;
    char remote[120];
    ipc_remote_describe(remote, sizeof remote);
    snprintf(text, n, "ring %llu KiB, inline up to %llu KiB, copy %s, %s",
             (unsigned long long)(ipc->options.ring >> 10), (unsigned long long)(ipc->options.inline_bytes >> 10),
             copies[ipc->options.copy], remote);
    for (unsigned way = 0; way < IPC_WAYS; way++) {
        if (*ipc->count.frames[way] > 0) {
            bps_util_append(text, n, ", %s %llu frames", way_names[way], (unsigned long long)*ipc->count.frames[way]);
        }
    }
}

static const struct bps_transport_ops ops = {
    .size = sizeof ops,
    .open = ipc_open,
    .close = ipc_close,
    .query = ipc_query,
    .listen = ipc_listen,
    .dial = ipc_dial,
    .kick = ipc_kick,
    .finish = ipc_finish,
    .drop = ipc_drop,
    .local_host = ipc_local_host,
    .describe = ipc_describe,
    .loan_read = ipc_loan_read,
    .loan_write = ipc_loan_write,
    .attach = ipc_attach,
    .detach = ipc_detach,
};

BPS_PLUGIN_MODULE(BPS_KIND_TRANSPORT, "ipc", PLUGIN_VERSION, "Apache-2.0",
                  .summary = "frames over shared memory, between processes of one host", .options = options,
                  .options_size = sizeof(struct ipc_options), .ops = &ops);
