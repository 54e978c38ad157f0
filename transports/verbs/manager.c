/* SPDX-License-Identifier: Apache-2.0 */
/* manager.c - events of the connection manager, and whom they concern. */
#include "verbs.h"

#include <errno.h>
#include <string.h>

/* Says what the peer had to say when it connected: only valid until the event is given back. */
struct said {
    uint8_t data[64];
    size_t bytes;
};

static bool has_data(enum rdma_cm_event_type type)
{
    return type == RDMA_CM_EVENT_CONNECT_REQUEST || type == RDMA_CM_EVENT_CONNECT_RESPONSE;
}

static void keep(const struct rdma_cm_event *event, struct said *said)
{
    said->bytes = 0;
    if (has_data(event->event) && event->param.conn.private_data != NULL) {
        size_t n = event->param.conn.private_data_len;
        said->bytes = n < sizeof said->data ? n : sizeof said->data;
        memcpy(said->data, event->param.conn.private_data, said->bytes);
    }
}

/* The peer's disconnect may overtake what it has sent. */
static void disconnected(struct bps_channel *channel)
{
    verbs_poll(channel->verbs);
    if (channel->state == VERBS_OPEN) {
        verbs_channel_closed(channel);
    } else if (channel->state == VERBS_ACCEPTING) {
        verbs_drop(channel);
    } else if (channel->state == VERBS_SUSPENDED) {
        verbs_channel_disconnect(channel); /* the peer may try again */
    }
}

/*
 * A channel may be open before the manager knows that its connection stands, since messages overtake its
 * news. Who leaves meanwhile rejects the connection, for there is none yet to take away. That a peer is
 * unreachable says nothing of an open channel: the device decides when it has tried often enough.
 */
static bool is_end(const struct bps_channel *channel, const struct rdma_cm_event *event)
{
    return event->event == RDMA_CM_EVENT_DISCONNECTED ||
           (event->event == RDMA_CM_EVENT_REJECTED && channel->state == VERBS_OPEN);
}

static void dispatch_channel(struct bps_channel *channel, const struct rdma_cm_event *event, const struct said *said)
{
    verbs_hold(channel);
    if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
        verbs_channel_broken(channel, BPS_ERR_IO, "the RDMA device was removed");
    } else if (is_end(channel, event)) {
        disconnected(channel);
    } else if (channel->state == VERBS_DIALLING) {
        verbs_connect_event(channel, event, said->data, said->bytes);
    } else if (channel->state == VERBS_ACCEPTING && event->event == RDMA_CM_EVENT_ESTABLISHED) {
        verbs_welcome(channel);
    } else if (channel->state == VERBS_SUSPENDED && event->event == RDMA_CM_EVENT_ESTABLISHED) {
        verbs_resume(channel);
    } else if (channel->state == VERBS_ACCEPTING && event->status != 0) {
        verbs_drop(channel);
    } else if (channel->state == VERBS_SUSPENDED && event->status != 0) {
        verbs_channel_disconnect(channel);
    }
    verbs_leave(channel);
}

static void on_event(void *arg, uint32_t events)
{
    struct verbs *verbs = arg;
    struct rdma_cm_event *event;
    (void)events;
    while (rdma_get_cm_event(verbs->manager, &event) == 0) {
        struct rdma_cm_event copy = *event;
        struct said said;
        keep(event, &said);
        rdma_ack_cm_event(event);
        if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
            verbs_listen_request(verbs, copy.listen_id->context, copy.id, said.data, said.bytes);
        } else if (verbs_listens_by(verbs, copy.id)) { /* whose context is no channel */
            if (copy.event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
                verbs->host->log(verbs->host, BPS_LOG_ERROR,
                                 "the RDMA device was removed: no peer can connect to this process over it any more");
            }
        } else if (copy.listen_id == NULL && copy.id->context != NULL && copy.event != RDMA_CM_EVENT_TIMEWAIT_EXIT &&
                   copy.event != RDMA_CM_EVENT_ADDR_CHANGE) {
            dispatch_channel(copy.id->context, &copy, &said);
        }
    }
}

bps_status verbs_manager_open(struct verbs *verbs, struct bps_report *report)
{
    const struct bps_host *host = verbs->host;
    bps_util_fork_hold();
    verbs->manager = rdma_create_event_channel();
    if (verbs->manager != NULL && bps_util_nonblock(verbs->manager->fd)) {
        verbs->manager_watch = host->watch(host, verbs->manager->fd, on_event, verbs);
    }
    bps_util_fork_release();
    if (verbs->manager_watch == NULL) {
        BPS_REPORT(report, "connection manager: %s", strerror(errno));
        return BPS_ERR_IO;
    }
    return BPS_OK;
}

void verbs_manager_close(struct verbs *verbs)
{
    if (verbs->manager == NULL) {
        return;
    }
    bps_util_fork_hold();
    if (verbs->manager_watch != NULL) {
        verbs->host->unwatch(verbs->host, verbs->manager_watch);
    }
    rdma_destroy_event_channel(verbs->manager);
    bps_util_fork_release();
}
