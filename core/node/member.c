/* SPDX-License-Identifier: Apache-2.0 */
/*
 * member.c - joining and belonging. The scheduler may start later than its members, so that it is dialled until the
 * rendezvous time is over; not one that is known to be gone. One that is lost later is dialled as long again, if it is
 * a process of its own: another one there takes its place.
 */
#include "node/member.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "node/alive.h"
#include "node/delivered.h"
#include "node/join.h"
#include "node/late_message.h"
#include "node/loaded.h"
#include "node/return.h"
#include "node/timeline.h"
#include "node/transport.h"
#include "wire/dialler.h"

#define LOG          "member"
#define REMIND_EVERY (5 * BPS_S)
#define LATER        (2 * BPS_S) /* than the scheduler, which knows who is missing */

/*
 * The scheduler that has let this process go and ends with its job; "": none. It will not be there for another one,
 * unless somebody starts it again.
 */
static char ending[300];

struct bps_member {
    const struct bps_conf *conf;
    struct bps_loop *loop;
    struct bps_instance *net;
    const struct bps_member_events *events;
    void *owner;
    struct bps_link link;
    struct bps_dialler dialler;
    struct bps_identity identity;
    struct bps_join join;
    struct bps_view *view; /* NULL: not yet */
    struct bps_timer *ticker;
    struct bps_alive alive;
    struct bps_clock_questions clock;
    uint64_t since, reminded;
    uint64_t reported; /* when rates were; 0: not yet */
    bool joined, ended, silent, told;
    bool returns;                 /* the scheduler may: it is a process of its own */
    bool away;                    /* it was lost, and another one has not taken its place yet */
    bool idle;                    /* a server whose generation is over, and the next one has not begun */
    uint32_t rank;                /* once assigned */
    char lost[300];               /* how it was lost */
    char waiting[640];            /* what it waits for, for the time-out */
    bool leaves;                  /* LEAVE was to be sent, with these words, */
    enum bps_leave farewell_kind; /* and this */
    char farewell[400];
};

static const struct bps_conf_cluster *member_cluster(const struct bps_member *m)
{
    return &m->conf->cluster;
}

/* A server, into a job that runs. */
static bool comes_in(const struct bps_member *m)
{
    return m->join.before == BPS_COMES_IN;
}

static void member_lose(struct bps_member *m, bps_status status, const char *text)
{
    if (!m->ended) {
        m->ended = true;
        bps_link_drop(&m->link);
        m->events->lost(m->owner, status, text);
    }
}

/* ---- messages of the scheduler ---- */

static bps_status on_assign(struct bps_member *m, struct bps_reader *payload)
{
    struct bps_report report = {""};
    struct bps_writer endpoints;
    char host[260] = "";
    uint32_t rank = bps_get_u32(payload);
    bps_get_u32(payload); /* local rank and size come again in the book */
    bps_get_u32(payload);
    bool serve = bps_get_u8(payload) != 0;
    bool returns = bps_get_u8(payload) != 0;
    if (!bps_reader_done(payload)) {
        return BPS_ERR_PROTOCOL;
    }
    m->rank = rank;
    m->returns = returns;
    ending[0] = '\0'; /* one that still takes links may be ending; one that gives ranks has a job to come */
    ((const struct bps_transport_ops *)m->net->ops)->local_host(m->link.channel, host, sizeof host);
    bps_writer_init(&endpoints);
    bps_status status = m->events->assigned(m->owner, rank, serve, host, &endpoints, &report);
    if (status != BPS_OK) {
        /* The scheduler tells everybody, and so us. */
        bps_member_leave(m, report.text[0] != '\0' ? report.text : bps_strerror(status));
    } else if (serve) {
        bps_link_send_message(&m->link, BPS_FRAME_ENDPOINTS, &endpoints);
    }
    bps_writer_fini(&endpoints);
    return BPS_OK;
}

static bps_status on_book(struct bps_member *m, struct bps_reader *payload)
{
    struct bps_view *view;
    bps_status status = bps_view_read(payload, &m->identity, &view);
    bool next = status == BPS_OK && m->view != NULL && m->view->book.epoch == view->book.epoch;
    if (next && !bps_view_follow(view, m->view)) {
        bps_view_put(view);
        return BPS_ERR_PROTOCOL;
    }
    if (status == BPS_OK) {
        bps_view_put(m->view);
        m->view = view;
        m->joined = true;
        m->idle = false;
        m->events->joined(m->owner, view);
        bps_timeline_ask(&m->clock, &m->link);
    }
    return status;
}

static void be_refused(struct bps_member *m, const char *text)
{
    char why[1200];
    const struct bps_conf_node *node = bps_conf_find(m->conf, "cluster.scheduler");
    snprintf(why, sizeof why, "refused by the scheduler at %s (address from %s): %s", member_cluster(m)->scheduler,
             node != NULL ? node->origin : "?", text);
    member_lose(m, BPS_ERR_REFUSED, why);
}

static void member_end(struct bps_member *m)
{
    if (!m->ended) {
        m->ended = true;
        m->events->ended(m->owner);
    }
}

static bps_status member_on_left(struct bps_member *m, struct bps_reader *payload)
{
    bool stays = bps_get_u8(payload) != 0;
    if (!bps_reader_done(payload)) {
        return BPS_ERR_PROTOCOL;
    }
    if (m->join.role == BPS_ROLE_SERVER) {
        m->idle = true;
        return stays ? BPS_OK : BPS_ERR_PROTOCOL;
    }
    if (!stays) {
        snprintf(ending, sizeof ending, "%s", member_cluster(m)->scheduler);
    }
    member_end(m);
    return BPS_OK;
}

static void member_send_leave(struct bps_member *m)
{
    struct bps_writer w;
    bps_writer_init(&w);
    bps_put_u8(&w, (uint8_t)m->farewell_kind);
    bps_put_bytes(&w, m->farewell, strlen(m->farewell));
    bps_link_send_message(&m->link, BPS_FRAME_LEAVE, &w);
    bps_writer_fini(&w);
}

/* A scheduler that is to take the place of the lost one asks for the book, or has done so. */
static bps_status on_return(struct bps_member *m, struct bps_reader *payload)
{
    struct bps_writer w;
    uint8_t word = bps_get_u8(payload);
    if (!bps_reader_done(payload) || word >= BPS_RETURN_WORDS || !m->away) {
        return BPS_ERR_PROTOCOL;
    }
    if (word == BPS_RETURN_BOOK) {
        bps_writer_init(&w);
        bps_book_write(&m->view->book, &w);
        bps_link_send_message(&m->link, BPS_FRAME_BOOK, &w);
        bps_writer_fini(&w);
        return BPS_OK;
    }
    m->away = false;
    m->reported = 0;
    bps_warn(LOG, "the scheduler at %s is back", member_cluster(m)->scheduler);
    m->events->returned(m->owner);
    if (m->leaves && !m->ended) {
        member_send_leave(m);
    }
    return BPS_OK;
}

/* Who gives up has nothing left of its tensors; words about them may still be under way to it. */
static bool is_too_late(const struct bps_member *m, uint8_t type)
{
    return m->farewell[0] != '\0' && (type == BPS_FRAME_DECLARED || type == BPS_FRAME_CHANGED ||
                                      type == BPS_FRAME_MOVE || type == BPS_FRAME_MOVED);
}

static bps_status member_on_message(void *owner, struct bps_link *link, const struct bps_header *header,
                                    struct bps_reader *payload)
{
    struct bps_member *m = owner;
    char text[BPS_TEXT_LIMIT + 1];
    (void)link;
    if (is_too_late(m, header->type)) {
        return BPS_OK;
    }
    switch (header->type) {
    case BPS_FRAME_ASSIGN:
        return on_assign(m, payload);
    case BPS_FRAME_BOOK:
        return on_book(m, payload);
    case BPS_FRAME_DECLARED:
        return m->events->declared(m->owner, payload);
    case BPS_FRAME_CHANGED:
        return m->events->changed(m->owner, payload);
    case BPS_FRAME_MOVE:
        return m->events->move(m->owner, payload);
    case BPS_FRAME_MOVED:
        return m->events->moved(m->owner, payload);
    case BPS_FRAME_RETURN:
        return on_return(m, payload);
    case BPS_FRAME_CLOCK:
        return bps_timeline_told(&m->clock, &m->link, payload);
    case BPS_FRAME_LATENESS:
        return m->events->late(m->owner, payload);
    case BPS_FRAME_NEWCOMERS:
        return m->events->newcomers(m->owner, payload);
    case BPS_FRAME_WAITING:
        bps_get_text(payload, m->waiting, sizeof m->waiting);
        bps_info(LOG, "%s", m->waiting);
        return BPS_OK;
    case BPS_FRAME_REFUSE:
        bps_get_text(payload, text, sizeof text);
        be_refused(m, text);
        return BPS_OK;
    case BPS_FRAME_LOST:
        bps_get_text(payload, text, sizeof text);
        member_lose(m, bps_wire_status(header->root), text);
        return BPS_OK;
    case BPS_FRAME_LEFT:
        return member_on_left(m, payload);
    case BPS_FRAME_END:
        member_end(m);
        return BPS_OK;
    default:
        return BPS_ERR_PROTOCOL;
    }
}

/* ---- the link to the scheduler ---- */

static bps_status member_introduce(void *owner, struct bps_link *link, struct bps_claim *claim, uint8_t *key)
{
    const struct bps_member *m = owner;
    (void)link;
    *claim = (struct bps_claim){.purpose = BPS_LINK_JOIN};
    memcpy(key, m->conf->secret, BPS_KEY_BYTES);
    return BPS_OK;
}

/* To a scheduler that does not know the job yet. */
static void come_back(struct bps_member *m)
{
    struct bps_writer w;
    struct bps_return is;
    bps_writer_init(&w);
    w.failed = bps_return_of(&m->view->book, m->rank, &is) != BPS_OK;
    is.leaves = m->leaves;
    bps_return_write(&is, &m->join, &w);
    if (bps_link_send_message(&m->link, BPS_FRAME_RETURN, &w) == BPS_OK) {
        m->events->known(m->owner, &m->link);
    }
    bps_writer_fini(&w);
    snprintf(m->waiting, sizeof m->waiting, "a scheduler is there and waits for the other members of the job");
}

static void member_welcome(void *owner, struct bps_link *link)
{
    struct bps_member *m = owner;
    struct bps_writer join;
    if (m->away) {
        come_back(m);
        return;
    }
    m->join.speed = ((const struct bps_transport_ops *)m->net->ops)->speed(link->channel);
    bps_writer_init(&join);
    bps_join_write(&m->join, &join);
    bps_link_send_message(link, BPS_FRAME_JOIN, &join);
    bps_writer_fini(&join);
    snprintf(m->waiting, sizeof m->waiting, "waiting for %s job '%s'%s", comes_in(m) ? "" : "the other members of",
             m->join.job, comes_in(m) ? " to let this server in" : "");
    bps_debug(LOG, "asks the scheduler at %s to join", link->peer);
}

/* There may be a newer note of where the scheduler is, and of the job. */
static void look_again(struct bps_member *m)
{
    m->events->unreachable(m->owner);
    snprintf(m->join.job, sizeof m->join.job, "%s", member_cluster(m)->job);
    char *agreement = bps_conf_agreement(m->conf);
    if (agreement != NULL) {
        free(m->join.agreement);
        m->join.agreement = agreement;
    }
}

/* Whether the scheduler is elsewhere by now: what was at this address may be that of another job. */
static bool has_moved(struct bps_member *m)
{
    char before[sizeof ending];
    uint8_t secret[BPS_SECRET_BYTES];
    snprintf(before, sizeof before, "%s", member_cluster(m)->scheduler);
    memcpy(secret, m->conf->secret, sizeof secret);
    look_again(m);
    return strcmp(before, member_cluster(m)->scheduler) != 0 || memcmp(secret, m->conf->secret, sizeof secret) != 0;
}

/* It may be on its way back, as one that somebody starts again. If not, the user has to know what to do. */
static void await_return(struct bps_member *m, bps_status status, const char *text)
{
    snprintf(m->waiting, sizeof m->waiting,
             "the scheduler at %s has ended with its last job (%.100s); " BPS_REMEDY_STAY, ending, text);
    if (!bps_dialler_again(&m->dialler, status)) {
        member_lose(m, BPS_ERR_REFUSED, m->waiting);
        return;
    }
    if (!m->told) {
        m->told = true;
        bps_warn(LOG, "%s; waiting for it to come back", m->waiting);
    }
    look_again(m);
    m->dialler.address = member_cluster(m)->scheduler;
}

/* The scheduler was lost, or one that was to take its place. False: nobody will come. */
static bool await_another(struct bps_member *m, const char *text)
{
    uint64_t now = bps_now(), limit = member_cluster(m)->rendezvous_timeout;
    if (!m->joined || !m->returns || m->idle) {
        return false;
    }
    if (!m->away) {
        m->away = true;
        m->since = now;
        m->dialler.attempts = 0;
        m->dialler.deadline = now + 2 * (limit + LATER);
        snprintf(m->lost, sizeof m->lost, "%s", text);
        bps_warn(LOG, "the scheduler at %s was lost: %s; the job goes on, and waits %.0f s for another one there",
                 member_cluster(m)->scheduler, text, (double)limit / 1e9);
    }
    snprintf(m->waiting, sizeof m->waiting, "%s", text);
    m->link.welcomed = false;
    return bps_dialler_again(&m->dialler, BPS_ERR_LOST);
}

/* Who waits for an elastic job to reform asks the next scheduler. */
static bool join_again(struct bps_member *m)
{
    if (m->joined || member_cluster(m)->min_workers == 0 || !m->link.welcomed) {
        return false;
    }
    m->join.before = m->join.before < 0 ? BPS_JOINS_AGAIN : m->join.before;
    m->since = bps_now();
    m->dialler.attempts = 0;
    m->dialler.deadline = m->since + 2 * (member_cluster(m)->rendezvous_timeout + LATER);
    m->link.welcomed = false;
    return bps_dialler_again(&m->dialler, BPS_ERR_LOST);
}

static void member_on_closed(void *owner, struct bps_link *link, bps_status status, const char *text)
{
    struct bps_member *m = owner;
    char why[1200];
    (void)link;
    if (m->ended) {
        return;
    }
    if (status != BPS_ERR_REFUSED && (join_again(m) || await_another(m, text))) {
        return;
    }
    if (status == BPS_ERR_REFUSED && !m->away && !link->welcomed && has_moved(m) &&
        bps_dialler_again(&m->dialler, BPS_ERR_LOST)) {
        m->dialler.address = member_cluster(m)->scheduler;
    } else if (status == BPS_ERR_REFUSED) {
        be_refused(m, text);
    } else if (strcmp(member_cluster(m)->scheduler, ending) == 0) {
        await_return(m, status, text);
    } else if (bps_dialler_again(&m->dialler, status)) {
        snprintf(m->waiting, sizeof m->waiting, "waiting for the scheduler at %s: %s", member_cluster(m)->scheduler,
                 text);
        look_again(m);
        m->dialler.address = member_cluster(m)->scheduler;
    } else {
        snprintf(why, sizeof why, "the scheduler at %s was lost: %s", member_cluster(m)->scheduler, text);
        member_lose(m, BPS_ERR_LOST, why);
    }
}

static const struct bps_link_handler handler = {
    .introduce = member_introduce,
    .welcome = member_welcome,
    .message = member_on_message,
    .closed = member_on_closed,
};

/* ---- time ---- */

/* A scheduler speaks first, and at once. */
static void check_silence(struct bps_member *m, uint64_t now)
{
    const struct bps_link *link = &m->link;
    bool silent = link->connected != 0 && link->last_received == link->connected && now - link->connected > BPS_S;
    if (silent && !m->silent) {
        m->silent = true;
        snprintf(m->waiting, sizeof m->waiting,
                 "waiting for the scheduler at %s: the process that listens there accepts connections but does not "
                 "answer; is it another program?",
                 member_cluster(m)->scheduler);
        bps_warn(LOG, "%s", m->waiting);
    }
}

/* Who was late since the last time, if anybody was. */
static void report_late(struct bps_member *m)
{
    struct bps_writer w;
    struct bps_lateness late;
    bps_writer_init(&w);
    bps_lateness_init(&late, m->view->book.workers);
    m->events->lateness(m->owner, &late);
    if (late.waits > 0) {
        bps_lateness_write(&late, &w);
        bps_link_send_message(&m->link, BPS_FRAME_LATENESS, &w);
    }
    bps_lateness_fini(&late);
    bps_writer_fini(&w);
}

/* What channels have delivered since the last time, if anything. */
static void report_rates(struct bps_member *m, uint64_t now)
{
    struct bps_writer w, entries;
    uint64_t passed = now - m->reported;
    bps_writer_init(&w);
    bps_writer_init(&entries);
    bool even = true;
    uint32_t n = m->events->delivered(m->owner, &entries, &even);
    if (n > 0 && m->reported != 0 && !entries.failed) {
        bps_put_u64(&w, passed);
        bps_put_u32(&w, even ? n : 0);
        bps_put_bytes(&w, entries.data, even ? entries.size : 0);
        bps_link_send_message(&m->link, BPS_FRAME_RATES, &w);
    }
    bps_writer_fini(&entries);
    bps_writer_fini(&w);
    m->reported = now;
}

/* What is waited for has not come in time. */
static bool is_overdue(struct bps_member *m, uint64_t now, char *why, size_t n)
{
    uint64_t limit = member_cluster(m)->rendezvous_timeout;
    double seconds = (double)limit / 1e9;
    if ((m->joined && !m->away) || now <= m->since + limit + LATER) { /* it may have been lost just now */
        return false;
    }
    if (m->away) {
        snprintf(why, n,
                 "the scheduler at %s was lost: %s; no other one has replaced it within %.0f s "
                 "(cluster.rendezvous_timeout): %s",
                 member_cluster(m)->scheduler, m->lost, seconds, m->waiting);
    } else {
        snprintf(why, n, "%s within %.0f s%s: %s",
                 comes_in(m) ? "this server did not join the job" : "the job did not start", seconds,
                 comes_in(m) ? " (cluster.rendezvous_timeout)" : "", m->waiting);
    }
    return true;
}

static void member_on_tick(void *arg)
{
    struct bps_member *m = arg;
    uint64_t now = bps_now(), timeout = member_cluster(m)->peer_timeout;
    char why[1200];
    uint64_t late = bps_loop_late(m->loop); /* that is how long we were stopped ourselves */
    if (m->ended) {
        return;
    }
    m->since += late;
    if (late > timeout / 4) {
        m->link.last_received = now;
    }
    bps_link_keep_alive(&m->link, now, timeout / 4);
    check_silence(m, now);
    bool there = m->joined && !m->away;
    if (there && m->link.state == BPS_LINK_OPEN && now - m->reported >= BPS_RATES_EVERY) {
        report_rates(m, now);
        report_late(m);
    }
    if (there) {
        bps_timeline_ask(&m->clock, &m->link);
    }
    if (is_overdue(m, now, why, sizeof why)) {
        member_lose(m, m->away ? BPS_ERR_LOST : BPS_ERR_TIMEOUT, why);
    } else if (!m->joined && m->link.state != BPS_LINK_OPEN && now - m->reminded > REMIND_EVERY) {
        m->reminded = now;
        bps_warn(LOG, "%s (%.0f s)", m->waiting, now > m->since ? (double)(now - m->since) / 1e9 : 0.0);
    } else if (m->link.state == BPS_LINK_OPEN && now - m->link.last_received > timeout) {
        snprintf(why, sizeof why, "no heartbeat for %.0f s (cluster.peer_timeout)", (double)timeout / 1e9);
        bps_link_drop(&m->link);
        member_on_closed(m, &m->link, BPS_ERR_LOST, why);
    }
}

/* ---- life ---- */

bps_status bps_member_new(const struct bps_conf *conf, struct bps_loop *loop, struct bps_instance *transport,
                          const char *local, int32_t before, const struct bps_member_events *events, void *owner,
                          struct bps_member **out, struct bps_report *report)
{
    const struct bps_conf_cluster *c = &conf->cluster;
    struct bps_member *m = calloc(1, sizeof *m);
    if (m == NULL || bps_identity_make(&m->identity) != BPS_OK) {
        free(m);
        return BPS_ERR_NOMEM;
    }
    m->conf = conf;
    m->loop = loop;
    m->net = transport;
    m->events = events;
    m->owner = owner;
    m->join = (struct bps_join){.role = c->role,
                                .rank = (int32_t)c->rank,
                                .local_rank = (int32_t)c->local_rank,
                                .local_size = (int32_t)c->local_size,
                                .before = before,
                                .pid = (uint32_t)getpid(),
                                .bandwidth = (uint32_t)lround(conf->server.bandwidth * 1000)};
    snprintf(m->join.job, sizeof m->join.job, "%s", c->job);
    snprintf(m->join.local, sizeof m->join.local, "%s", local);
    memcpy(m->join.public_key, m->identity.public_key, sizeof m->join.public_key);
    bps_join_host(&m->join);
    m->join.agreement = bps_conf_agreement(conf);
    m->join.loaded = bps_loaded_text(conf);
    m->since = m->reminded = bps_now();
    snprintf(m->waiting, sizeof m->waiting, "waiting for the scheduler at %s", c->scheduler);
    uint64_t period = c->peer_timeout / 8 < BPS_S / 2 ? c->peer_timeout / 8 : BPS_S / 2;
    m->ticker = bps_loop_timer(loop, period, period, member_on_tick, m);
    bool room = m->join.agreement != NULL && m->join.loaded != NULL && m->ticker != NULL;
    bps_status status = room ? BPS_OK : BPS_ERR_NOMEM;
    if (status == BPS_OK) {
        status = bps_transport_check_host(conf, c->scheduler, report);
    }
    if (status == BPS_OK) {
        status = bps_alive_begin(&m->alive, loop, conf, report);
    }
    if (status == BPS_OK) {
        uint64_t patience = 2 * (c->rendezvous_timeout + LATER); /* on_tick() ends it */
        status =
            bps_dialler_start(&m->dialler, loop, patience, &m->link, &handler, m, transport, c->scheduler, 0, report);
    }
    if (status != BPS_OK) {
        bps_member_free(m);
        return status;
    }
    *out = m;
    return BPS_OK;
}

void bps_member_free(struct bps_member *m)
{
    if (m == NULL) {
        return;
    }
    bps_alive_end(&m->alive);
    bps_dialler_stop(&m->dialler);
    bps_link_drop(&m->link);
    bps_loop_cancel(m->loop, m->ticker);
    bps_view_put(m->view);
    bps_join_fini(&m->join);
    free(m);
}

bool bps_member_is_away(const struct bps_member *member)
{
    return member->away;
}

bool bps_member_is_idle(const struct bps_member *member)
{
    return member->idle;
}

bps_status bps_member_send(struct bps_member *member, uint8_t frame, const struct bps_writer *message)
{
    return member->away ? BPS_OK : bps_link_send_message(&member->link, frame, message);
}

void bps_member_reform(struct bps_member *member)
{
    member->farewell_kind = BPS_LEAVE_SOON;
    if (!member->away) {
        member_send_leave(member);
    }
    member->farewell_kind = BPS_LEAVE_TO_REFORM;
}

void bps_member_leave(struct bps_member *member, const char *why)
{
    if (why != NULL) {
        snprintf(member->farewell, sizeof member->farewell, "%s", why);
    }
    member->leaves = true;
    if (member->away) {
        return; /* it is told the next one */
    }
    if (why == NULL && member->joined) {
        report_late(member);
    }
    member_send_leave(member);
}
