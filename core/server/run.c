/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - a process whose only role is server: joins, serves generation after generation, ends with the job.
 */
#include <stdlib.h>

#include "base/log.h"
#include "base/report.h"
#include "node/guard.h"
#include "node/join.h"
#include "node/member.h"
#include "node/timeline.h"
#include "node/transport.h"
#include "server/server.h"
#include "trace/trace.h"

#define LOG "server"

struct process {
    const struct bps_conf *conf;
    struct bps_loop *loop;
    struct bps_pinning pinning;
    struct bps_server *server;
    uint32_t rank; /* among servers */
    bool comes_in; /* into a job that runs, and has no share of it yet */
    bool again;    /* it ends as it has lost a scheduler without a job: another one may come */
    struct bps_member *member;
    struct bps_guard guard;
    bps_status verdict;
    struct bps_report *report;
};

static bps_status server_on_assigned(void *owner, uint32_t rank, bool serves, const char *host,
                                     struct bps_writer *endpoints, struct bps_report *report)
{
    struct process *p = owner;
    char identity[32];
    bps_status status = BPS_OK;
    (void)serves;
    snprintf(identity, sizeof identity, "server/%u", rank);
    bps_log_set_identity(identity);
    p->rank = rank;
    if (p->server == NULL) {
        status = bps_pinning_init(&p->pinning, p->conf, report);
        if (status == BPS_OK) {
            bps_pinning_address(&p->pinning, host);
            status = bps_server_new(p->conf, &p->pinning, host, &p->server, report);
        }
    }
    if (status == BPS_OK) {
        bps_server_endpoints(p->server, endpoints);
    }
    return status;
}

/* A signal to end may come together with the loss for which it is sent: that counts. */
static void server_finish(struct process *p, bps_status verdict)
{
    if (p->verdict == BPS_OK) {
        p->verdict = verdict;
    }
    bps_loop_stop(p->loop);
}

/* Whoever has sent for it waits for that. */
static void tell_share(struct process *p, const struct bps_book *book)
{
    uint64_t weight = 0;
    for (uint32_t i = 0; i < book->shards; i++) {
        weight += book->shard[i].member == book->workers + p->rank ? book->shard[i].weight : 0;
    }
    if (p->comes_in && weight > 0) {
        p->comes_in = false;
        bps_warn(LOG, "this server has its share of job '%s': %.1f %% of the bytes, from view %u on",
                 p->conf->cluster.job, 100.0 * (double)weight / (double)bps_book_weights(book), book->view);
    }
}

static void server_on_joined(void *owner, struct bps_view *view)
{
    struct process *p = owner;
    const struct bps_book *book = &view->book;
    bps_view_forget_before(view); /* shards do not ask which view it was */
    bps_timeline_join(book, book->workers + p->rank);
    bps_status status = bps_server_serve(p->server, view);
    if (status != BPS_OK) {
        BPS_REPORT(p->report, "cannot serve: %s", bps_strerror(status));
        server_finish(p, status);
        return;
    }
    tell_share(p, book);
    bps_info(LOG, "serving %u workers, epoch %u, view %u, %u shards here", book->workers, book->epoch, book->view,
             bps_server_shards(p->server));
}

/* Workers tell whether it says anything of the links. */
static uint32_t server_on_delivered(void *owner, struct bps_writer *w, bool *even)
{
    const struct process *p = owner;
    *even = true;
    return p->server != NULL ? bps_server_delivered(p->server, w) : 0;
}

static void server_on_lateness(void *owner, struct bps_lateness *into)
{
    const struct process *p = owner;
    if (p->server != NULL) {
        bps_server_lateness(p->server, into);
    }
}

/* DECLARED, CHANGED, MOVE, MOVED, LATENESS, NEWCOMERS: a server declares nothing. */
static bps_status server_on_answer(void *owner, struct bps_reader *reply)
{
    (void)owner;
    (void)reply;
    return BPS_ERR_PROTOCOL;
}

/* A server declares nothing, and has asked nothing. */
static void server_on_known(void *owner, struct bps_link *link)
{
    (void)owner;
    (void)link;
}

static void server_on_returned(void *owner)
{
    (void)owner;
}

static void server_on_lost(void *owner, bps_status status, const char *text)
{
    struct process *p = owner;
    p->again = status == BPS_ERR_LOST && bps_member_is_idle(p->member);
    BPS_REPORT(p->report, "%s", text);
    server_finish(p, status);
}

static void server_on_ended(void *owner)
{
    server_finish(owner, BPS_OK);
}

static void server_on_unreachable(void *owner)
{
    (void)owner; /* its address does not change */
}

static const struct bps_member_events events = {
    .assigned = server_on_assigned,
    .joined = server_on_joined,
    .declared = server_on_answer,
    .changed = server_on_answer,
    .move = server_on_answer,
    .moved = server_on_answer,
    .known = server_on_known,
    .returned = server_on_returned,
    .delivered = server_on_delivered,
    .lateness = server_on_lateness,
    .late = server_on_answer,
    .newcomers = server_on_answer,
    .unreachable = server_on_unreachable,
    .lost = server_on_lost,
    .ended = server_on_ended,
};

/* One of the shards cannot go on. */
static void server_on_stuck(void *arg, const char *text)
{
    struct process *p = arg;
    if (p->member != NULL) {
        bps_member_leave(p->member, text); /* the scheduler ends the job, which ends us */
    }
}

static void on_stop(void *arg, uint32_t ready)
{
    (void)ready;
    server_finish(arg, BPS_OK);
}

/* *again: until the scheduler was lost between two generations, of which the next one needs a server all the same. */
static bps_status server_run_once(const struct bps_conf *conf, bool comes_in, int stop, bool *again,
                                  struct bps_report *report)
{
    struct process p = {.conf = conf, .loop = bps_loop_new(), .comes_in = comes_in, .report = report};
    struct bps_instance *net = NULL;
    struct bps_watch *watch = NULL;
    bool records = false;
    bps_status status =
        p.loop == NULL ? BPS_ERR_NOMEM : bps_guard_begin(&p.guard, conf, p.loop, server_on_stuck, &p, report);
    if (status == BPS_OK) {
        status = bps_timeline_open(conf, report);
        records = status == BPS_OK;
    }
    if (status == BPS_OK) {
        status = bps_transport_open(conf, p.loop, &net, report);
    }
    if (status == BPS_OK && stop >= 0) {
        watch = bps_loop_watch(p.loop, stop, on_stop, &p);
        status = watch == NULL ? BPS_ERR_NOMEM : BPS_OK;
    }
    if (status == BPS_OK) {
        status =
            bps_member_new(conf, p.loop, net, "", comes_in ? BPS_COMES_IN : BPS_IS_NEW, &events, &p, &p.member, report);
    }
    if (status == BPS_OK) {
        bps_loop_run(p.loop);
        status = p.verdict;
    }
    bps_member_free(p.member);
    if (watch != NULL) {
        bps_loop_unwatch(p.loop, watch);
    }
    bps_server_free(p.server);
    if (records) {
        bps_trace_close();
    }
    bps_pinning_fini(&p.pinning);
    bps_instance_close(net);
    bps_guard_end(&p.guard);
    bps_loop_free(p.loop);
    *again = p.again;
    return status;
}

bps_status bps_server_run(const struct bps_conf *conf, bool comes_in, int stop, struct bps_report *report)
{
    bool again;
    bps_status status = server_run_once(conf, comes_in, stop, &again, report);
    while (again) {
        bps_warn(LOG, "%s; this server waits for another scheduler there, and for its job", report->text);
        status = server_run_once(conf, false, stop, &again, report);
    }
    return status;
}
