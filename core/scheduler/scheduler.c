/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scheduler.c - one generation after the other: gather, assign, publish the book, watch, end.
 *
 *   GATHERING  members join; every 5 s it says who is missing
 *   SERVING    ranks are known; servers open their shards and tell where
 *   RUNNING    everybody has the book; tensors are declared, losses are announced
 *   ENDING     members have been told, those who come too late as well; waits until they have hung up
 */
#include "scheduler/scheduler.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "node/alive.h"
#include "node/guard.h"
#include "node/loaded.h"
#include "node/member.h"
#include "node/ports.h"
#include "node/timeline.h"
#include "node/transport.h"
#include "plugin/instance.h"
#include "scheduler/agreement.h"
#include "scheduler/declared.h"
#include "scheduler/declared_known.h"
#include "scheduler/joining.h"
#include "scheduler/late.h"
#include "scheduler/rates.h"
#include "scheduler/returning.h"
#include "scheduler/roster.h"

#define LOG          "scheduler"
#define REMIND_EVERY (30 * BPS_S) /* workers import frameworks meanwhile */
#define END_LIMIT    (3 * BPS_S)  /* for members to hang up */
#define NOBODY       UINT32_MAX
#define ANOTHER      "the scheduler there has a job without this member"

enum phase { GATHERING, SERVING, RUNNING, ENDING };

struct bps_scheduler {
    const struct bps_conf *conf;
    struct bps_loop *loop;
    struct bps_instance *net;
    struct bps_lobby lobby;
    struct bps_roster roster;
    struct bps_returning returning; /* members of a job whose scheduler was lost; once it is taken over: others */
    struct bps_joining joining;     /* servers that come into the job that runs */
    struct bps_book book;           /* of this generation */
    struct bps_declared declared;
    struct bps_rates rates; /* of no members: its configuration says them */
    struct bps_lates lates;
    struct bps_timer *ticker;
    struct bps_alive alive;
    struct bps_guard guard;
    char *agreement, *loaded;
    char host[64];
    enum phase phase;
    uint32_t epoch;
    uint64_t since;                  /* when gathering, or ending, began */
    uint64_t reminded;               /* when the missing were last named */
    uint64_t reforming;              /* since when some wait for the others to reform; 0: nobody does */
    uint32_t departed;               /* workers that have left this generation in order */
    uint32_t leaver;                 /* the worker that left this generation first; NOBODY: all are there */
    uint32_t retiring;               /* the member whose shards are about to be gone; NOBODY: none */
    bps_status verdict;              /* of the job, */
    char why[BPS_TEXT_LIMIT + 1];    /* and for whom comes later */
    char absent[BPS_TEXT_LIMIT + 1]; /* why no generation can gather any more; "": it can */
    void (*finished)(void *arg, bps_status status);
    void (*news)(void *arg, const char *line);
    void *arg;
};

static const struct bps_conf_cluster *scheduler_cluster(const struct bps_scheduler *s)
{
    return &s->conf->cluster;
}

/* Of the generation that a lost scheduler had, if this one knows of that. */
static bool all_had_left(const struct bps_scheduler *s)
{
    return s->returning.leavers == s->roster.workers;
}

/* Whether the next generation is a further one. */
static bool had_generation(const struct bps_scheduler *s)
{
    return s->epoch > 0 || all_had_left(s);
}

static bool is_elastic(const struct bps_scheduler *s)
{
    return s->roster.elastic.most > 0;
}

/* A worker of this generation that has not left. */
static bool is_training(const struct bps_seat *seat)
{
    return seat->join.role == BPS_ROLE_WORKER && !seat->early && !seat->left;
}

/* Whether there may be another generation. */
static bool has_generations(const struct bps_scheduler *s)
{
    return scheduler_cluster(s)->stay || is_elastic(s);
}

/* ---- the end ---- */

/* Whether some may come back only to hear that they may go, which the lost one could not tell them any more. */
static bool awaits_leavers(const struct bps_scheduler *s)
{
    return s->returning.leavers > 0 && bps_now() - s->since <= END_LIMIT;
}

static void finish_if_alone(void *arg)
{
    struct bps_scheduler *s = arg;
    if (!awaits_leavers(s) && s->phase == ENDING && s->finished != NULL && TAILQ_EMPTY(&s->roster.seats) &&
        TAILQ_EMPTY(&s->returning.all) && TAILQ_EMPTY(&s->joining.all) && !bps_lobby_has_members(&s->lobby)) {
        void (*finished)(void *, bps_status) = s->finished;
        s->finished = NULL;
        finished(s->arg, s->verdict);
    }
}

static void send_lost(struct bps_link *link, bps_status status, const char *text)
{
    const struct bps_header header = {.type = BPS_FRAME_LOST, .root = (uint32_t)-status};
    bps_link_send(link, &header, text, strnlen(text, BPS_TEXT_LIMIT));
}

static void scheduler_end_job(struct bps_scheduler *s, bps_status status, const char *text)
{
    struct bps_seat *seat;
    struct bps_returner *returner;
    if (s->phase == ENDING) {
        return;
    }
    s->phase = ENDING;
    s->verdict = status;
    s->since = bps_now();
    snprintf(s->why, sizeof s->why, "%s", status == BPS_OK ? "the scheduler has ended" : text);
    TAILQ_FOREACH(seat, &s->roster.seats, entry) {
        struct bps_link *link = &seat->guest->link;
        if (status == BPS_OK) {
            bps_link_send_message(link, BPS_FRAME_END, NULL);
        } else {
            send_lost(link, status, text);
        }
        bps_link_finish(link);
    }
    TAILQ_FOREACH(returner, &s->returning.all, entry) {
        send_lost(&returner->guest->link, BPS_ERR_LOST, s->why);
        bps_link_finish(&returner->guest->link);
    }
    bps_joining_end(&s->joining, "the job has ended before this server joined it");
    bps_loop_defer(s->loop, finish_if_alone, s);
}

static void tell_news(const struct bps_scheduler *s, const char *what, const char *whom)
{
    char line[200];
    snprintf(line, sizeof line, "%s %s", what, whom);
    s->news(s->arg, line);
}

static void scheduler_fail_job(struct bps_scheduler *s, bps_status status, const char *text)
{
    if (s->phase != ENDING) {
        bps_error(LOG, "job '%s' has failed: %s", scheduler_cluster(s)->job, text);
        tell_news(s, "failed", text);
        scheduler_end_job(s, status, text);
    }
}

/* The job cannot go on without this member. */
static void scheduler_lose(struct bps_scheduler *s, const char *member, const char *text)
{
    if (s->phase != ENDING) {
        tell_news(s, "lost", member);
        scheduler_fail_job(s, BPS_ERR_LOST, text);
    }
}

void bps_scheduler_end(struct bps_scheduler *s, const char *why)
{
    if (why != NULL) {
        scheduler_fail_job(s, BPS_ERR_LOST, why);
    } else {
        scheduler_end_job(s, BPS_OK, NULL);
    }
}

/* Those who are told have no part in the job any more. Servers wait on, for the end of the job. */
void bps_scheduler_absent(struct bps_scheduler *s, const char *why)
{
    struct bps_seat *seat;
    if (s->absent[0] != '\0') {
        return;
    }
    snprintf(s->absent, sizeof s->absent, "the job cannot start: %s", why);
    bps_info(LOG, "%s", s->absent);
    TAILQ_FOREACH(seat, &s->roster.seats, entry) {
        if (seat->join.role == BPS_ROLE_WORKER && (s->phase == GATHERING || seat->early)) {
            seat->left = true;
            send_lost(&seat->guest->link, BPS_ERR_LOST, s->absent);
        }
    }
}

/* ---- gathering and publishing ---- */

static void gather(struct bps_scheduler *s)
{
    s->phase = GATHERING;
    s->since = s->reminded = bps_now();
}

/* One of those that are about to begin is lost. */
static void gather_again(struct bps_scheduler *s, const char *text)
{
    struct bps_seat *seat;
    TAILQ_FOREACH(seat, &s->roster.seats, entry) {
        if (is_training(seat)) {
            seat->left = true;
            s->roster.elastic.returning += seat->join.before >= 0;
            send_lost(&seat->guest->link, BPS_ERR_MEMBERSHIP, text);
        }
    }
}

/* Whether only newcomers are there, which know nothing of what the others have learned. */
static bool is_orphaned(const struct bps_scheduler *s)
{
    return s->roster.elastic.reforms && s->epoch > 0 && bps_roster_survivors(&s->roster) == 0;
}

static void send_assign(const struct bps_scheduler *s, struct bps_link *link, uint32_t rank, uint32_t local_rank,
                        uint32_t local_size, bool serves)
{
    struct bps_writer w;
    bps_writer_init(&w);
    bps_put_u32(&w, rank);
    bps_put_u32(&w, local_rank);
    bps_put_u32(&w, local_size);
    bps_put_u8(&w, serves);
    bps_put_u8(&w, s->conf->cluster.role == BPS_ROLE_SCHEDULER); /* else it is lost together with its process */
    bps_link_send_message(link, BPS_FRAME_ASSIGN, &w);
    bps_writer_fini(&w);
}

static void assign_if_complete(struct bps_scheduler *s)
{
    struct bps_seat *seat;
    bool first = s->epoch == 0 && bps_now() - s->since < scheduler_cluster(s)->rendezvous_timeout / 2;
    if (s->phase != GATHERING || !bps_roster_complete(&s->roster) || (first && bps_roster_has_waited(&s->roster)) ||
        is_orphaned(s)) {
        return;
    }
    bps_roster_close_gaps(&s->roster);
    if (bps_roster_assign(&s->roster) != BPS_OK) {
        scheduler_fail_job(s, BPS_ERR_NOMEM, "the scheduler is out of memory");
        return;
    }
    s->phase = SERVING;
    bps_returning_refuse(&s->returning, ANOTHER);
    TAILQ_FOREACH(seat, &s->roster.seats, entry) {
        send_assign(s, &seat->guest->link, seat->rank, seat->local_rank, seat->local_size, seat->serves);
    }
}

static void log_shares(const struct bps_book *book)
{
    char who[128];
    for (uint32_t i = 0, next; i < book->shards; i = next) {
        uint32_t member = book->shard[i].member;
        uint64_t weight = 0;
        for (next = i; next < book->shards && book->shard[next].member == member; next++) {
            weight += book->shard[next].weight;
        }
        bps_member_text(&book->member[member], who, sizeof who);
        bps_info(LOG, "%s sums %.1f %% of the bytes in %u shards", who,
                 100.0 * (double)weight / (double)bps_book_weights(book), next - i);
    }
}

/* The last generation's tables go. */
static bps_status new_tables(struct bps_scheduler *s)
{
    bps_declared_fini(&s->declared);
    bps_rates_fini(&s->rates);
    bps_lates_begin(&s->lates, s->book.workers);
    bps_status status = bps_declared_init(&s->declared, &s->book, s->conf->worker.partition);
    return status == BPS_OK && !s->roster.told ? bps_rates_init(&s->rates, &s->book) : status;
}

static void send_book(struct bps_scheduler *s)
{
    struct bps_writer w;
    struct bps_seat *seat;
    bps_writer_init(&w);
    bps_book_write(&s->book, &w);
    TAILQ_FOREACH(seat, &s->roster.seats, entry) {
        if (!seat->early) {
            bps_link_send_message(&seat->guest->link, BPS_FRAME_BOOK, &w);
        }
    }
    bps_writer_fini(&w);
}

/* Those who train may reform with them. */
static void tell_newcomers(struct bps_scheduler *s)
{
    struct bps_writer w;
    struct bps_seat *seat;
    bps_writer_init(&w);
    bps_put_u32(&w, bps_roster_waiting(&s->roster));
    TAILQ_FOREACH(seat, &s->roster.seats, entry) {
        if (is_training(seat) && is_elastic(s) && s->phase == RUNNING) {
            bps_link_send_message(&seat->guest->link, BPS_FRAME_NEWCOMERS, &w);
        }
    }
    bps_writer_fini(&w);
}

/* Whose processes the members are, as far as whoever has started them sees these. */
static void tell_who_has_gathered(const struct bps_scheduler *s)
{
    char pid[16];
    s->news(s->arg, "gathered");
    for (uint32_t i = 0; i < s->book.members; i++) {
        snprintf(pid, sizeof pid, "%u", s->book.member[i].pid);
        tell_news(s, "member", pid);
    }
}

static bps_status publish(struct bps_scheduler *s)
{
    char text[128];
    bps_book_fini(&s->book);
    bps_status status = bps_roster_book(&s->roster, &s->book);
    if (status == BPS_ERR_INVALID) {
        snprintf(text, sizeof text,
                 "the servers have too many shards together, at most %u are possible; "
                 "lower server.shards",
                 BPS_SHARDS_LIMIT);
        scheduler_fail_job(s, status, text);
        return BPS_OK;
    }
    if (status == BPS_OK) {
        s->book.epoch = ++s->epoch;
        s->book.view = 1;
        status = new_tables(s);
    }
    if (status != BPS_OK) {
        return status;
    }
    send_book(s);
    s->phase = RUNNING;
    s->leaver = s->retiring = NOBODY;
    s->departed = 0;
    s->reforming = 0;
    s->joining.shares = s->joining.moving = false;
    bps_info(LOG, "job '%s' is complete: %u workers, %u servers, %u shards, epoch %u", scheduler_cluster(s)->job,
             s->roster.workers, s->roster.servers, s->book.shards, s->book.epoch);
    log_shares(&s->book);
    tell_who_has_gathered(s);
    if (bps_roster_waiting(&s->roster) > 0) {
        tell_newcomers(s); /* who have come since the ranks were told */
    }
    return BPS_OK;
}

/* ---- what members say ---- */

/* Whoever knows the secret may say who it is. */
static bps_status scheduler_on_hello(void *owner, struct bps_link *link, const struct bps_claim *claim,
                                     struct bps_report *report)
{
    struct bps_guest *guest = owner;
    const struct bps_scheduler *s = guest->host;
    if (claim->purpose != BPS_LINK_JOIN) {
        return BPS_ERR_PROTOCOL;
    }
    bps_status status = bps_link_check(link, s->conf->secret, report);
    if (status == BPS_OK) {
        bps_lobby_keep(guest);
        bps_link_welcome(link);
    }
    return status;
}

/* Whether it runs the same code as the scheduler and all members. Those who have equal lists agree with the same. */
static bps_status check_loaded(const struct bps_scheduler *s, const struct bps_join *join, struct bps_report *report)
{
    bps_status status = bps_agreement_loaded(s->loaded, s->host, join->loaded, join->host, report);
    const struct bps_seat *seat;
    TAILQ_FOREACH(seat, &s->roster.seats, entry) {
        const struct bps_join *other = &seat->join;
        if (status != BPS_OK || (!seat->left && strcmp(other->loaded, join->loaded) == 0)) {
            break;
        }
        if (!seat->left) {
            status = bps_agreement_loaded(other->loaded, other->host, join->loaded, join->host, report);
        }
    }
    return status;
}

static bps_status check_job_name(const struct bps_scheduler *s, const struct bps_join *join, struct bps_report *report)
{
    if (strcmp(join->job, scheduler_cluster(s)->job) != 0) {
        BPS_REPORT(report, "this scheduler is for job '%s', host %s (pid %u) belongs to job '%s'; check cluster.job",
                   scheduler_cluster(s)->job, join->host, join->pid, join->job);
        return BPS_ERR_REFUSED;
    }
    return BPS_OK;
}

/* Versions first, as other ones may have other keys. */
static bps_status check_alike(const struct bps_scheduler *s, const struct bps_join *join, struct bps_report *report)
{
    bps_status status = check_loaded(s, join, report);
    return status == BPS_OK ? bps_agreement_compare(s->agreement, s->host, join->agreement, join->host, report)
                            : status;
}

/* Whether there is a seat for it; then it has taken that. */
static bps_status take_seat(struct bps_scheduler *s, struct bps_guest *guest, struct bps_join *join, bool early,
                            struct bps_report *report)
{
    if (check_job_name(s, join, report) != BPS_OK) {
        return BPS_ERR_REFUSED;
    }
    if (s->phase == ENDING || (early && !has_generations(s))) {
        BPS_REPORT(report, "job '%s' is %s%s", join->job, s->phase == ENDING ? "over" : "already complete",
                   scheduler_cluster(s)->stay ? "" : ", and its scheduler ends with it; " BPS_REMEDY_STAY);
        return BPS_ERR_REFUSED;
    }
    if (s->absent[0] != '\0' && join->role == BPS_ROLE_WORKER) {
        return bps_fail(report, BPS_ERR_LOST, "%s", s->absent);
    }
    bps_status status = check_alike(s, join, report);
    return status == BPS_OK ? bps_roster_add(&s->roster, guest, join, early, report) : status;
}

/* There is no place for it. */
static void turn_away(struct bps_scheduler *s, struct bps_guest *guest, struct bps_join *join, bps_status status,
                      const struct bps_report *report)
{
    struct bps_link *link = &guest->link;
    const char *why = report->text[0] != '\0' ? report->text : bps_strerror(status);
    /* At the end of a job, a short one or one that cannot gather, latecomers are nothing special. */
    BPS_LOG(s->phase == ENDING || status == BPS_ERR_LOST ? BPS_LOG_INFO : BPS_LOG_WARN, LOG,
            "refused %s (host %s, pid %u): %s", link->peer, join->host, join->pid, why);
    bps_join_fini(join);
    if (status == BPS_ERR_LOST) {
        send_lost(link, status, why);
    } else {
        bps_link_send_text(link, BPS_FRAME_REFUSE, why);
    }
    bps_link_finish(link);
}

/* A server that comes into the job that runs, or is about to. */
static bps_status take_joiner(struct bps_scheduler *s, struct bps_guest *guest, struct bps_join *join,
                              struct bps_report *report)
{
    if (check_job_name(s, join, report) != BPS_OK) {
        return BPS_ERR_REFUSED;
    }
    if (s->phase == ENDING) {
        return bps_fail(report, BPS_ERR_REFUSED, "job '%s' is over", join->job);
    }
    if (!scheduler_cluster(s)->failover) {
        return bps_fail(report, BPS_ERR_REFUSED,
                        "job '%s' has cluster.failover = false, so that no server can join while it runs", join->job);
    }
    bps_status status = check_alike(s, join, report);
    return status == BPS_OK ? bps_joining_add(&s->joining, guest, join) : status;
}

static void let_in_next(struct bps_scheduler *s);

static bps_status on_join(struct bps_scheduler *s, struct bps_guest *guest, struct bps_reader *payload)
{
    struct bps_report report = {""};
    struct bps_join join;
    bool early = s->phase != GATHERING; /* for the next generation, if there will be one */
    if (bps_join_read(payload, &join) != BPS_OK) {
        return BPS_ERR_PROTOCOL;
    }
    if (join.before == BPS_COMES_IN && join.role != BPS_ROLE_SERVER) {
        bps_join_fini(&join);
        return BPS_ERR_PROTOCOL;
    }
    if (join.before == BPS_COMES_IN && !is_elastic(s)) { /* an elastic job has its reforms for that */
        bps_status came = take_joiner(s, guest, &join, &report);
        if (came != BPS_OK) {
            turn_away(s, guest, &join, came, &report);
        }
        let_in_next(s);
        return BPS_OK;
    }
    join.before = join.before == BPS_COMES_IN ? BPS_IS_NEW : join.before;
    bps_status status = take_seat(s, guest, &join, early, &report);
    if (status != BPS_OK) {
        turn_away(s, guest, &join, status, &report);
        return BPS_OK;
    }
    bps_lobby_admit(guest);
    char who[128];
    bps_seat_text(guest->user, who, sizeof who);
    bps_debug(LOG, "has joined: %s", who);
    if (early) {
        tell_newcomers(s);
    } else {
        bps_roster_make_room(&s->roster, guest->user);
    }
    if (!early && had_generation(s) && bps_roster_count(&s->roster, BPS_ROLE_WORKER) == 1) {
        gather(s); /* the clock of a further generation starts with its first worker */
    }
    assign_if_complete(s);
    return BPS_OK;
}

static bps_status on_endpoints(struct bps_scheduler *s, struct bps_seat *seat, struct bps_reader *payload)
{
    bool again = s->phase == GATHERING || seat->left || seat->endpoint != NULL;
    if (again && is_elastic(s)) {
        return BPS_OK; /* asked before one of the members was lost; a server says the same each time */
    }
    if (s->phase != SERVING || !seat->serves || seat->endpoint != NULL) {
        return BPS_ERR_PROTOCOL;
    }
    bps_status status = bps_endpoints_read(payload, &seat->endpoint, &seat->shards);
    if (status != BPS_OK) {
        return status;
    }
    return bps_roster_serving(&s->roster) ? publish(s) : BPS_OK;
}

static bps_status on_declare(struct bps_scheduler *s, const struct bps_seat *seat, struct bps_link *link,
                             struct bps_reader *payload)
{
    struct bps_writer w;
    bps_writer_init(&w);
    bps_status status = bps_declared_answer(&s->declared, seat->rank, payload, &w);
    if (status == BPS_OK) {
        status = bps_link_send_message(link, BPS_FRAME_DECLARED, &w);
    }
    bps_writer_fini(&w);
    return status;
}

/* ---- tensors that move, or do not ---- */

static void send_worker(void *arg, uint32_t rank, uint8_t frame, const struct bps_writer *message);

/* If something is about to move, nothing does. */
static void give_up_move(struct bps_scheduler *s)
{
    bps_declared_stay(&s->declared, send_worker, s);
    s->retiring = NOBODY;
    s->joining.moving = false;
}

/* ---- tensors that change their form ---- */

/* A worker of this generation that has not left; NULL: there is none of this rank. */
static struct bps_seat *scheduler_worker_of(struct bps_scheduler *s, uint32_t rank)
{
    struct bps_seat *seat;
    TAILQ_FOREACH(seat, &s->roster.seats, entry) {
        if (is_training(seat) && seat->rank == rank) {
            return seat;
        }
    }
    return NULL;
}

static void send_worker(void *arg, uint32_t rank, uint8_t frame, const struct bps_writer *message)
{
    struct bps_seat *seat = scheduler_worker_of(arg, rank);
    if (seat != NULL) {
        bps_link_send_message(&seat->guest->link, frame, message);
    }
}

/*
 * Workers of a job of which one has left cannot agree on anything. Those who report later hear the same, though
 * more may have left by then.
 */
static void refuse_changes(struct bps_scheduler *s)
{
    if (s->leaver != NOBODY) {
        char text[80];
        bool lost = s->book.member[s->leaver].lost;
        snprintf(text, sizeof text, lost ? "worker %u was lost" : "worker %u has left the job", s->leaver);
        if (is_elastic(s)) {
            snprintf(s->declared.closed, sizeof s->declared.closed, "%s", text);
        }
        bps_declared_refuse(&s->declared, is_elastic(s) ? BPS_ERR_MEMBERSHIP : BPS_ERR_LOST, text, send_worker, s);
        give_up_move(s);
    }
}

static bps_status on_change(struct bps_scheduler *s, const struct bps_seat *seat, struct bps_reader *payload)
{
    if (seat->left) {
        return BPS_ERR_PROTOCOL;
    }
    give_up_move(s); /* its place is about to be another one anyway */
    bps_status status = bps_declared_change(&s->declared, seat->rank, bps_now(), payload, send_worker, s);
    if (status == BPS_OK) {
        refuse_changes(s);
    }
    return status;
}

/* ---- tensors that move, as links differ from what was thought ---- */

void bps_scheduler_move(struct bps_scheduler *s)
{
    if (s->phase == RUNNING && s->leaver == NOBODY && s->rates.members > 0) {
        bps_declared_move(&s->declared, send_worker, s);
    }
}

bool bps_scheduler_retire(struct bps_scheduler *s, uint32_t member)
{
    bool serves = false, others = false, lost = false;
    for (uint32_t i = 0; i < s->book.shards; i++) {
        bool there = !s->book.shard[i].gone;
        serves |= there && s->book.shard[i].member == member;
        others |= there && s->book.shard[i].member != member && s->book.shard[i].weight > 0;
        lost |= s->book.shard[i].lost; /* whose heir may be asked for by its number in the row */
    }
    if (lost || s->phase != RUNNING || s->leaver != NOBODY || !serves || !others ||
        !bps_declared_move(&s->declared, send_worker, s)) {
        return false;
    }
    s->retiring = member;
    return true;
}

static bps_status renew_rates(struct bps_scheduler *s)
{
    bps_rates_fini(&s->rates);
    return s->roster.told ? BPS_OK : bps_rates_init(&s->rates, &s->book);
}

/* The next view, in which what has no name is spread by the weights of now. */
static bps_status publish_spread(struct bps_scheduler *s)
{
    bps_book_spread(&s->book);
    s->book.view++;
    memcpy(s->book.from, s->declared.move.numbers, sizeof s->book.from);
    send_book(s);
    return renew_rates(s);
}

/* The shards of the member get nothing more. If nothing has to stay there, the next view is without them. */
static bps_status scheduler_retire(struct bps_scheduler *s, uint32_t member)
{
    struct bps_book *book = &s->book;
    struct bps_seat *seat;
    for (uint32_t i = 0; i < book->shards; i++) {
        book->shard[i].weight = book->shard[i].member == member ? 0 : book->shard[i].weight;
    }
    if (!bps_book_weigh(book) || !bps_declared_can_leave(&s->declared, book)) {
        return BPS_OK;
    }
    for (uint32_t i = 0; i < book->shards; i++) {
        book->shard[i].gone |= book->shard[i].member == member;
    }
    TAILQ_FOREACH(seat, &s->roster.seats, entry) {
        bool serves = seat->join.role == BPS_ROLE_SERVER && book->workers + seat->rank == member;
        seat->retired = seat->retired || serves;
    }
    bps_info(LOG, "view %u is without the shards of member %u", book->view + 1, member);
    return publish_spread(s);
}

/* What is summed is shared anew, with a server that has come. */
static bps_status scheduler_share(struct bps_scheduler *s)
{
    s->joining.shares = false;
    bps_status status = bps_roster_reweigh(&s->roster, &s->book);
    return status == BPS_OK ? publish_spread(s) : status;
}

static bps_status on_rates(struct bps_scheduler *s, const struct bps_seat *seat, struct bps_reader *payload)
{
    uint32_t member = seat->join.role == BPS_ROLE_WORKER ? seat->rank : s->roster.workers + seat->rank;
    bool better = false;
    if (s->rates.members == 0 || s->phase != RUNNING || seat->early) {
        return BPS_OK;
    }
    bps_status status = bps_rates_add(&s->rates, member, payload, &better);
    if (status == BPS_OK && better) {
        bps_scheduler_move(s);
    }
    return status;
}

static bps_status on_begun(struct bps_scheduler *s, const struct bps_seat *seat, struct bps_reader *payload)
{
    bool all;
    bps_status status = bps_declared_begun(&s->declared, seat->rank, payload, &all);
    if (status != BPS_OK || !all) {
        return status;
    }
    bool retires = s->retiring != NOBODY, shares = s->joining.moving;
    status = shares    ? scheduler_share(s)
             : retires ? scheduler_retire(s, s->retiring)
                       : bps_rates_take(&s->rates, &s->book);
    s->retiring = NOBODY;
    s->joining.moving = false;
    if (status == BPS_OK) {
        status = bps_declared_moved(&s->declared, &s->book, send_worker, s);
    }
    if (status != BPS_OK) {
        scheduler_fail_job(s, status, "the scheduler could not move tensors to other servers");
        return BPS_OK;
    }
    bps_info(LOG, retires || shares ? "tensors move:"
                                    : "measured link rates differ from the expected ones, so that tensors move:");
    log_shares(&s->book);
    return BPS_OK;
}

/* ---- servers that come into the job ---- */

/* If there is one without a share, tensors move to it, unless that is not possible now. */
static void share_anew(struct bps_scheduler *s)
{
    if (s->joining.shares && !s->joining.moving && s->phase == RUNNING && s->leaver == NOBODY) {
        s->joining.moving = bps_declared_move(&s->declared, send_worker, s);
    }
}

static void lose_joiner(struct bps_scheduler *s, struct bps_joiner *joiner, const char *why)
{
    bps_warn(LOG, "a server (host %s, pid %u) cannot join: %s", joiner->join.host, joiner->join.pid, why);
    bps_link_send_text(&joiner->guest->link, BPS_FRAME_REFUSE, why);
    bps_link_finish(&joiner->guest->link);
    joiner->guest->user = NULL;
    bps_joining_remove(&s->joining, joiner);
}

/* The next view has its shards. */
static void let_in(struct bps_scheduler *s, struct bps_joiner *joiner)
{
    char who[128], pid[16];
    bps_status status = bps_joining_seat(&s->joining, joiner, &s->roster, &s->book);
    if (status == BPS_ERR_INVALID) {
        lose_joiner(s, joiner, "the job has as many servers and shards as there can be");
        return;
    }
    if (status == BPS_OK) {
        status = bps_placement_grow(&s->declared.placement, &s->book);
    }
    if (status == BPS_OK) {
        s->book.view++;
        status = renew_rates(s);
    }
    if (status != BPS_OK) {
        scheduler_fail_job(s, status, "the scheduler is out of memory");
        return;
    }
    const struct bps_book_member *member = &s->book.member[s->book.members - 1];
    bps_member_text(member, who, sizeof who);
    bps_warn(LOG, "%s has joined the job in view %u", who, s->book.view);
    snprintf(pid, sizeof pid, "%u", member->pid);
    tell_news(s, "member", pid);
    send_book(s);
    s->joining.shares = true;
    share_anew(s);
}

/* One after the other, when the last one has its share. */
static void let_in_next(struct bps_scheduler *s)
{
    struct bps_joiner *joiner = TAILQ_FIRST(&s->joining.all);
    if (joiner == NULL || s->phase != RUNNING || s->leaver != NOBODY || s->joining.shares) {
        return;
    }
    if (!joiner->asked) {
        joiner->asked = true;
        send_assign(s, &joiner->guest->link, s->roster.servers, 0, 1, true);
    } else if (joiner->endpoint != NULL && s->declared.move.waits == 0) {
        let_in(s, joiner);
    }
}

static bps_status on_joiner(struct bps_scheduler *s, struct bps_joiner *joiner, const struct bps_header *header,
                            struct bps_reader *payload)
{
    char why[400];
    if (s->phase == ENDING) {
        return BPS_OK;
    }
    if (header->type == BPS_FRAME_LEAVE) {
        bps_get_u8(payload);
        bps_get_text(payload, why, sizeof why);
        lose_joiner(s, joiner, why);
        return BPS_OK;
    }
    bps_status status = header->type == BPS_FRAME_ENDPOINTS ? bps_joining_hear(joiner, payload) : BPS_ERR_PROTOCOL;
    if (status == BPS_OK) {
        let_in_next(s);
    }
    return status;
}

/* ---- who is late ---- */

static bps_status scheduler_on_lateness(struct bps_scheduler *s, const struct bps_seat *seat,
                                        struct bps_reader *payload)
{
    return s->phase == RUNNING && !seat->early ? bps_lates_add(&s->lates, payload) : BPS_OK;
}

static void tell_lateness(struct bps_scheduler *s, uint64_t now)
{
    struct bps_writer w;
    struct bps_seat *seat;
    bps_writer_init(&w);
    if (bps_lates_news(&s->lates, now, &w)) {
        TAILQ_FOREACH(seat, &s->roster.seats, entry) {
            if (is_training(seat)) {
                bps_link_send_message(&seat->guest->link, BPS_FRAME_LATENESS, &w);
            }
        }
    }
    bps_writer_fini(&w);
}

/* ---- the end of a generation ---- */

static void send_left(const struct bps_scheduler *s, struct bps_link *link, bool returns)
{
    struct bps_writer left;
    bps_writer_init(&left);
    bps_put_u8(&left, scheduler_cluster(s)->stay || returns);
    bps_link_send_message(link, BPS_FRAME_LEFT, &left);
    bps_writer_fini(&left);
}

/* Servers wait here for the next generation; if this scheduler is lost meanwhile, no job is left to come back to. */
static void make_servers_idle(struct bps_scheduler *s)
{
    struct bps_seat *seat;
    TAILQ_FOREACH(seat, &s->roster.seats, entry) {
        if (seat->join.role == BPS_ROLE_SERVER) {
            send_left(s, &seat->guest->link, false);
        }
    }
}

/* All workers have left: the job is over, or a next generation may come. */
static void on_all_left(struct bps_scheduler *s)
{
    bool begins = is_elastic(s) && s->epoch == 0; /* one was lost just as all had gathered */
    bool returns = is_elastic(s) && !begins && bps_roster_reform(&s->roster, s->departed);
    if (!returns && !begins && is_elastic(s) && s->departed == 0) {
        scheduler_fail_job(s, BPS_ERR_LOST, "no worker is left");
        return;
    }
    if (!returns && !begins && !scheduler_cluster(s)->stay) {
        scheduler_end_job(s, BPS_OK, NULL);
        return;
    }
    if (!returns) {
        bps_roster_renew(&s->roster);
    }
    if (!returns && !begins) {
        make_servers_idle(s);
    }
    if (!is_elastic(s)) {
        bps_roster_want_servers(&s->roster, (uint32_t)scheduler_cluster(s)->servers);
    }
    gather(s);
    assign_if_complete(s);
}

/* Lets a worker go. */
static void dismiss(const struct bps_scheduler *s, const struct bps_seat *seat)
{
    char rank[16];
    snprintf(rank, sizeof rank, "%u", seat->rank);
    if (!seat->returns) {
        tell_news(s, "left", rank);
    }
    send_left(s, &seat->guest->link, seat->returns);
}

/* Workers that host shards go last: the others may still need them. */
static void end_if_last(struct bps_scheduler *s)
{
    struct bps_seat *seat;
    if (s->phase != RUNNING || bps_roster_staying(&s->roster) > 0) {
        return;
    }
    bps_lates_log(&s->lates, &s->book);
    TAILQ_FOREACH(seat, &s->roster.seats, entry) {
        if (seat->left && !seat->early) {
            dismiss(s, seat);
        }
    }
    if (bps_roster_count(&s->roster, BPS_ROLE_WORKER) == 0) {
        on_all_left(s);
    }
}

/* ---- members that are lost, while the others go on ---- */

/* The next view is without it. False: nothing would be left that sums. */
static bool next_view(struct bps_scheduler *s, uint32_t member)
{
    if (!bps_book_lose(&s->book, member)) {
        return false;
    }
    give_up_move(s);
    s->book.view++;
    s->book.member[member].lost = member < s->book.workers;
    bps_declared_inherit(&s->declared, &s->book);
    send_book(s);
    if (renew_rates(s) != BPS_OK) {
        scheduler_fail_job(s, BPS_ERR_NOMEM, "the scheduler is out of memory");
    }
    return true;
}

/* One of those that gather. */
static bool gather_without(struct bps_scheduler *s, uint32_t role, const char *text)
{
    if (!is_elastic(s)) {
        return false;
    }
    if (s->phase == SERVING) {
        gather_again(s, text);
    } else {
        bps_roster_expect_less(&s->roster, role);
    }
    bps_warn(LOG, "%s; the others start without it", text);
    return true;
}

static bool lose_server(struct bps_scheduler *s, uint32_t rank, const char *text)
{
    if (!scheduler_cluster(s)->failover || !next_view(s, s->roster.workers + rank)) {
        return false;
    }
    bps_warn(LOG, "%s; the others take over its tensors from view %u on", text, s->book.view);
    log_shares(&s->book);
    return true;
}

/* The others fail what needs it, and reform. */
static bool lose_worker(struct bps_scheduler *s, uint32_t rank, const char *text)
{
    bool may = is_elastic(s) && (scheduler_cluster(s)->failover || !bps_book_hosts(&s->book, rank));
    if (!may || !next_view(s, rank)) {
        return false;
    }
    s->leaver = s->leaver == NOBODY ? rank : s->leaver;
    refuse_changes(s);
    bps_warn(LOG, "%s; the others go on without it", text);
    return true;
}

/* The job goes on without it. False: it cannot. */
static bool fail_over(struct bps_scheduler *s, uint32_t role, uint32_t rank, const char *who, const char *text)
{
    bool goes_on = s->phase != RUNNING       ? gather_without(s, role, text)
                   : role == BPS_ROLE_SERVER ? lose_server(s, rank, text)
                                             : lose_worker(s, rank, text);
    if (!goes_on) {
        return false;
    }
    tell_news(s, "without", who);
    return true;
}

static void lose_member(struct bps_scheduler *s, uint32_t role, uint32_t rank, const char *who, const char *why)
{
    if (!fail_over(s, role, rank, who, why)) {
        scheduler_lose(s, who, why);
    }
}

/* Whether nobody needs it any more: of a server whose shards are gone workers may still be taking leave. */
static bool is_out(const struct bps_scheduler *s, const struct bps_seat *seat)
{
    uint32_t i = 0;
    while (i < s->book.shards && (s->book.shard[i].member != s->roster.workers + seat->rank || s->book.shard[i].lost)) {
        i++;
    }
    return seat->retired && (i == s->book.shards || s->phase != RUNNING || !scheduler_cluster(s)->failover);
}

/* It is there, but not for all: it has to go. */
static void expel(struct bps_scheduler *s, struct bps_seat *seat, const char *who, const char *text)
{
    if (fail_over(s, seat->join.role, seat->rank, who, text)) {
        seat->retired = true;
        send_lost(&seat->guest->link, BPS_ERR_LOST, text);
        bps_link_finish(&seat->guest->link);
        if (is_elastic(s)) { /* it may be long before it hears of this */
            bps_roster_forget(&s->roster, seat);
            end_if_last(s);
        }
    } else {
        scheduler_lose(s, who, text);
    }
}

/* A worker does not reach it. */
static bps_status on_suspect(struct bps_scheduler *s, const struct bps_seat *by, struct bps_reader *payload)
{
    char who[128], whom[128], why[400], text[700];
    struct bps_seat *seat;
    uint32_t member = bps_get_u32(payload);
    bps_get_text(payload, why, sizeof why);
    if (member < (is_elastic(s) ? 0 : s->roster.workers) || member >= s->book.members) {
        return BPS_ERR_PROTOCOL;
    }
    TAILQ_FOREACH(seat, &s->roster.seats, entry) {
        uint32_t first = seat->join.role == BPS_ROLE_SERVER ? s->roster.workers : 0;
        if (first + seat->rank == member && !seat->retired && !seat->early) {
            break;
        }
    }
    if (seat == NULL) {
        return BPS_OK; /* we know */
    }
    bps_seat_text(by, who, sizeof who);
    bps_seat_text(seat, whom, sizeof whom);
    snprintf(text, sizeof text, "%s was lost for %s: %s", whom, who, why);
    expel(s, seat, whom, text);
    return BPS_OK;
}

/* ---- taking over a job whose scheduler was lost ---- */

/* Those who wanted to gather are too late: their job is that which runs, or it has to wait for its end. */
static void put_off_others(struct bps_scheduler *s)
{
    struct bps_seat *seat;
    TAILQ_FOREACH(seat, &s->roster.seats, entry) {
        seat->early = true;
        seat->rank = is_elastic(s) && seat->join.before < 0 ? BPS_NO_RANK : seat->rank; /* that is a survivor's */
        if ((s->returning.leavers > 0 && scheduler_cluster(s)->stay) || is_elastic(s)) {
            continue; /* they gather for the next generation */
        }
        seat->left = true;
        bps_link_send_text(&seat->guest->link, BPS_FRAME_REFUSE, "the job runs already, and its members are back");
        bps_link_finish(&seat->guest->link);
    }
}

/* Of two views that the lost one has told, some may know the older; then the book is that of all. */
static void send_views(struct bps_scheduler *s, const struct bps_book *known)
{
    struct bps_writer w;
    struct bps_returner *returner;
    const uint8_t word = BPS_RETURN_TAKEN;
    const struct bps_header header = {.type = BPS_FRAME_RETURN};
    bps_writer_init(&w);
    bps_book_write(known, &w);
    TAILQ_FOREACH(returner, &s->returning.all, entry) {
        if (returner->guest->user != NULL && returner->is.view < known->view) {
            bps_link_send_message(&returner->guest->link, BPS_FRAME_BOOK, &w);
        }
    }
    bps_writer_fini(&w);
    send_book(s);
    TAILQ_FOREACH(returner, &s->returning.all, entry) {
        if (returner->guest->user != NULL) {
            bps_link_send(&returner->guest->link, &header, &word, sizeof word);
        }
        if (returner->guest->user != NULL && returner->join.role == BPS_ROLE_WORKER) {
            bps_declared_end_move(&s->declared, returner->is.rank, send_worker, s);
        }
    }
}

/* If all who are back are about to leave, the others have left. */
static void lose_absent(struct bps_scheduler *s)
{
    char who[128], why[300];
    bool stays = false;
    const struct bps_returner *returner;
    TAILQ_FOREACH(returner, &s->returning.all, entry) {
        stays |= returner->guest->user != NULL && returner->join.role == BPS_ROLE_WORKER && !returner->is.leaves;
    }
    for (uint32_t i = 0; i < s->book.members && stays; i++) {
        if (i < s->book.workers && bps_returning_has_left(&s->returning, i)) {
            s->leaver = s->leaver == NOBODY ? i : s->leaver;
        } else if (bps_book_needs(&s->book, i) && bps_roster_seat(&s->roster, i) == NULL) {
            bps_member_text(&s->book.member[i], who, sizeof who);
            snprintf(why, sizeof why, "%s was lost: it did not reconnect after the scheduler was lost", who);
            lose_member(s, s->book.member[i].role, s->book.member[i].rank, who, why);
        }
    }
    refuse_changes(s);
}

/* The book is a copy of the job's, with which it goes on, as the next view. */
static bps_status take_over(struct bps_scheduler *s, const struct bps_book *book)
{
    put_off_others(s);
    s->roster.workers = book->workers;
    s->roster.servers = book->members - book->workers;
    bps_status status = bps_returning_seat(&s->returning, &s->roster, book);
    if (status == BPS_OK) {
        bps_book_fini(&s->book);
        status = bps_book_copy(book, &s->book);
    }
    if (status == BPS_OK) {
        s->epoch = book->epoch;
        s->book.view++;
        status = new_tables(s);
    }
    if (status == BPS_OK) {
        status = bps_returning_recall(&s->returning, &s->declared);
    }
    if (status != BPS_OK) {
        return status;
    }
    bps_declared_inherit(&s->declared, &s->book); /* of a loss that not all workers had heard of */
    s->phase = RUNNING;
    s->leaver = s->retiring = NOBODY;
    s->departed = s->returning.leavers;
    s->joining.moving = false;
    s->joining.shares = !is_elastic(s) && s->roster.servers > scheduler_cluster(s)->servers; /* the last one may not */
    bps_info(LOG, "has taken over job '%s': %u workers, %u servers, epoch %u, view %u", scheduler_cluster(s)->job,
             s->roster.workers, s->roster.servers, s->book.epoch, s->book.view);
    s->news(s->arg, "taken over");
    send_views(s, book);
    tell_newcomers(s);
    lose_absent(s);
    return BPS_OK;
}

/* The others are of another job, or another epoch of it, or of a view that is too old. */
static void refuse_strangers(struct bps_scheduler *s)
{
    char text[200];
    bps_returning_let_go(&s->returning);
    snprintf(
        text, sizeof text,
        "a scheduler has taken over epoch %u of job '%s', and most of its members; this process is not one of them",
        s->book.epoch, scheduler_cluster(s)->job);
    bps_returning_refuse(&s->returning, text);
}

/* No worker is back: those who have left to reform have joined already, or there are none. */
static void reform_those_who_left(struct bps_scheduler *s)
{
    s->roster.elastic.returning = bps_roster_survivors(&s->roster);
    if (s->roster.elastic.returning > 0) {
        on_all_left(s);
    } else {
        scheduler_fail_job(s, BPS_ERR_LOST, "no worker has reconnected after the scheduler was lost");
    }
}

static void take_over_if_possible(struct bps_scheduler *s)
{
    uint64_t patience = scheduler_cluster(s)->rendezvous_timeout / 2;
    const struct bps_book *book = NULL;
    if (s->phase == GATHERING && s->epoch == 0) {
        book = bps_returning_book(&s->returning, &s->roster, bps_now(), patience);
    }
    struct bps_book copy;
    bps_status status = book != NULL ? bps_book_copy(book, &copy) : BPS_OK;
    if (book != NULL && status == BPS_OK) {
        status = take_over(s, &copy);
        bps_book_fini(&copy);
        refuse_strangers(s);
        if (status == BPS_OK && all_had_left(s)) {
            on_all_left(s);
        } else if (status == BPS_OK && bps_roster_count(&s->roster, BPS_ROLE_WORKER) == 0) {
            reform_those_who_left(s);
        }
    }
    if (status != BPS_OK) {
        scheduler_fail_job(s, status, "another scheduler could not take over the job");
    }
}

static bps_status scheduler_on_return(struct bps_scheduler *s, struct bps_guest *guest, struct bps_reader *payload)
{
    struct bps_report report = {""};
    struct bps_return is;
    struct bps_join join;
    if (bps_return_read(payload, &is, &join) != BPS_OK) {
        return BPS_ERR_PROTOCOL;
    }
    bps_status status = check_job_name(s, &join, &report);
    bool worker = join.role == BPS_ROLE_WORKER && is.rank < s->roster.workers;
    if (status == BPS_OK && worker && is.leaves && bps_returning_has_left(&s->returning, is.rank)) {
        send_left(s, &guest->link, false); /* the lost one could not tell it any more */
        bps_link_finish(&guest->link);     /* what it says of its tensors does not matter */
        bps_join_fini(&join);
        return BPS_OK;
    }
    if (status == BPS_OK && s->phase == ENDING) {
        status = bps_fail(&report, BPS_ERR_LOST, "%s", s->why);
    } else if (status == BPS_OK && (s->phase != GATHERING || s->epoch != 0)) {
        status = bps_fail(&report, BPS_ERR_REFUSED, "%s", ANOTHER);
    }
    if (status == BPS_OK) {
        status = check_alike(s, &join, &report);
    }
    if (status == BPS_OK) {
        status = bps_returning_add(&s->returning, guest, &is, &join, bps_now());
    }
    if (status != BPS_OK) {
        turn_away(s, guest, &join, status, &report);
    }
    take_over_if_possible(s);
    return BPS_OK;
}

/* Before it has a seat again. */
static bps_status on_returner(struct bps_scheduler *s, struct bps_returner *returner, const struct bps_header *header,
                              struct bps_reader *payload)
{
    if (s->phase != GATHERING) {
        return BPS_OK; /* it has been told to go */
    }
    bps_status status = bps_returning_hear(returner, header, payload);
    if (status == BPS_OK) {
        take_over_if_possible(s);
    }
    return status;
}

/* It has failed by itself. */
static void leaver_gives_up(struct bps_scheduler *s, struct bps_seat *leaver, const char *why)
{
    char who[128], text[540];
    bps_seat_text(leaver, who, sizeof who);
    snprintf(text, sizeof text, "%s gave up: %s", who, why);
    if (leaver->join.role == BPS_ROLE_WORKER && is_elastic(s)) {
        expel(s, leaver, who, text);
    } else {
        scheduler_lose(s, who, text);
    }
}

static bps_status on_leave(struct bps_scheduler *s, struct bps_seat *leaver, struct bps_reader *payload)
{
    char why[400];
    uint8_t kind = bps_get_u8(payload);
    bps_get_text(payload, why, sizeof why);
    if (why[0] != '\0') {
        leaver_gives_up(s, leaver, why);
        return BPS_OK;
    }
    if (s->phase != RUNNING || leaver->join.role != BPS_ROLE_WORKER || leaver->left ||
        (kind != BPS_LEAVE_FOR_GOOD && !is_elastic(s))) {
        return BPS_ERR_PROTOCOL;
    }
    s->leaver = s->leaver == NOBODY ? leaver->rank : s->leaver;
    refuse_changes(s);
    if (kind == BPS_LEAVE_SOON) {
        leaver->reforms = true;
        s->reforming = s->reforming == 0 ? bps_now() : s->reforming;
        tell_newcomers(s);
        return BPS_OK;
    }
    leaver->left = true;
    leaver->returns = kind == BPS_LEAVE_TO_REFORM;
    s->roster.elastic.returning += leaver->returns;
    s->departed++;
    if (!leaver->serves && !leaver->returns && bps_roster_staying(&s->roster) > 0) {
        dismiss(s, leaver);
    }
    end_if_last(s);
    return BPS_OK;
}

static bps_status scheduler_on_message(void *owner, struct bps_link *link, const struct bps_header *header,
                                       struct bps_reader *payload)
{
    struct bps_guest *guest = owner;
    struct bps_scheduler *s = guest->host;
    struct bps_seat *seat = guest->user;
    struct bps_returner *returner = seat == NULL ? bps_returning_find(&s->returning, guest) : NULL;
    if (returner != NULL) {
        return on_returner(s, returner, header, payload);
    }
    struct bps_joiner *joiner = seat == NULL ? bps_joining_find(&s->joining, guest) : NULL;
    if (joiner != NULL) {
        return on_joiner(s, joiner, header, payload);
    }
    if (seat == NULL && header->type == BPS_FRAME_RETURN) {
        return scheduler_on_return(s, guest, payload);
    }
    if (seat == NULL) {
        return header->type == BPS_FRAME_JOIN ? on_join(s, guest, payload) : BPS_ERR_PROTOCOL;
    }
    if (s->phase == ENDING) {
        return BPS_OK;
    }
    if (header->type == BPS_FRAME_ENDPOINTS) {
        return on_endpoints(s, seat, payload);
    }
    if (header->type == BPS_FRAME_LEAVE) {
        return on_leave(s, seat, payload);
    }
    if (header->type == BPS_FRAME_RATES) {
        return on_rates(s, seat, payload);
    }
    if (header->type == BPS_FRAME_CLOCK) {
        return bps_timeline_tell(link, payload);
    }
    if (header->type == BPS_FRAME_LATENESS) {
        return scheduler_on_lateness(s, seat, payload);
    }
    /* The rest is about tensors, of which only the workers of a complete job speak. */
    if (s->phase != RUNNING || seat->early || seat->join.role != BPS_ROLE_WORKER) {
        return BPS_ERR_PROTOCOL;
    }
    switch (header->type) {
    case BPS_FRAME_SUSPECT:
        return on_suspect(s, seat, payload);
    case BPS_FRAME_DECLARE:
        return on_declare(s, seat, link, payload);
    case BPS_FRAME_CHANGE:
        return on_change(s, seat, payload);
    case BPS_FRAME_BEGUN:
        return on_begun(s, seat, payload);
    case BPS_FRAME_FORGET:
        return bps_declared_forget(&s->declared, seat->rank, payload);
    default:
        return BPS_ERR_PROTOCOL;
    }
}

static void scheduler_on_closed(void *owner, struct bps_link *link, bps_status status, const char *text)
{
    struct bps_guest *guest = owner;
    struct bps_scheduler *s = guest->host;
    struct bps_seat *seat = guest->user;
    (void)status;
    if (seat == NULL) {
        struct bps_returner *returner = bps_returning_find(&s->returning, guest);
        if (returner != NULL) {
            bps_returning_remove(&s->returning, returner);
        }
        struct bps_joiner *joiner = bps_joining_find(&s->joining, guest);
        if (joiner != NULL) {
            bps_joining_remove(&s->joining, joiner);
        }
        bps_debug(LOG, "%s: %s", link->peer, text);
        bps_guest_free(guest);
        if (s->phase == ENDING && s->finished != NULL) {
            bps_loop_defer(s->loop, finish_if_alone, s);
        }
        return;
    }
    char who[128], why[400];
    bps_seat_text(seat, who, sizeof who);
    snprintf(why, sizeof why, "%s was lost: %s", who, text);
    /* Others may still need the shards of a worker that has left. */
    bool needed = s->phase == RUNNING && seat->serves && bps_roster_staying(&s->roster) > 0, early = seat->early;
    bool orderly = (seat->left && !needed) || early || is_out(s, seat) || s->phase == ENDING;
    uint32_t role = seat->join.role, rank = seat->rank;
    s->roster.elastic.returning -= seat->returns && needed;
    /* Nobody waits for a server before the first worker has come, of the next generation too. */
    bool idle = s->phase == GATHERING && bps_roster_count(&s->roster, BPS_ROLE_WORKER) == 0;
    bps_roster_remove(&s->roster, seat);
    if (s->phase == ENDING) {
        bps_loop_defer(s->loop, finish_if_alone, s);
    } else if (idle) {
        bps_roster_expect_less(&s->roster, role); /* when the workers of an elastic job are about to reform */
        bps_info(LOG, "%s; still waiting for the job to start", why);
    } else if (!orderly) {
        lose_member(s, role, rank, who, why);
        assign_if_complete(s);
        end_if_last(s);
    } else if (early) {
        tell_newcomers(s);
    } else if (bps_roster_count(&s->roster, BPS_ROLE_WORKER) == 0) {
        on_all_left(s);
    }
}

static const struct bps_link_handler handler = {
    .hello = scheduler_on_hello, .message = scheduler_on_message, .closed = scheduler_on_closed};

/* ---- time ---- */

static void scheduler_name_missing(const struct bps_scheduler *s, char *text, size_t n)
{
    if (TAILQ_EMPTY(&s->returning.all)) {
        bps_roster_missing(&s->roster, text, n);
    } else {
        bps_returning_text(&s->returning, text, n);
    }
}

static void remind(struct bps_scheduler *s, uint64_t now)
{
    char missing[512], text[640];
    uint64_t limit = scheduler_cluster(s)->rendezvous_timeout;
    bool idle = had_generation(s) && !s->roster.elastic.reforms && bps_roster_count(&s->roster, BPS_ROLE_WORKER) == 0;
    if (s->absent[0] != '\0' || idle) {
        return; /* nobody can gather, or nobody has asked for a next generation */
    }
    if (now - s->since >= limit || now - s->reminded >= REMIND_EVERY) {
        scheduler_name_missing(s, missing, sizeof missing);
        if (now - s->since >= limit) {
            snprintf(text, sizeof text, "the job did not start within %.0f s: missing %s", (double)limit / 1e9,
                     missing);
            scheduler_fail_job(s, BPS_ERR_TIMEOUT, text);
            return;
        }
        s->reminded = now;
        snprintf(text, sizeof text, "waiting for %s (%.0f of %.0f s)", missing, (double)(now - s->since) / 1e9,
                 (double)limit / 1e9);
        bps_warn(LOG, "%s", text);
        struct bps_seat *seat;
        TAILQ_FOREACH(seat, &s->roster.seats, entry) {
            bps_link_send_text(&seat->guest->link, BPS_FRAME_WAITING, text);
        }
        bps_returning_tell(&s->returning, BPS_FRAME_WAITING, text);
    }
}

/* Those who have left to reform are not waited for again: who has not come by now is lost. */
static void settle_gathering(struct bps_scheduler *s, uint64_t now)
{
    const struct bps_conf_cluster *c = scheduler_cluster(s);
    uint64_t patience = s->roster.elastic.reforms ? c->peer_timeout : c->rendezvous_timeout;
    if (now - s->since >= patience && s->epoch == 0 && all_had_left(s) && !has_generations(s)) {
        scheduler_end_job(s, BPS_OK, NULL); /* no server has come back */
        return;
    }
    if (now - s->since >= patience && is_orphaned(s)) {
        scheduler_fail_job(s, BPS_ERR_LOST, "only workers that have just joined are left");
    } else if (now - s->since >= patience && bps_roster_settle(&s->roster)) {
        bps_warn(LOG, "goes on with %u workers: no others have joined", s->roster.workers);
    }
    assign_if_complete(s);
}

/* Whoever does not reform, though others wait for it, or never ends. */
static void expel_late(struct bps_scheduler *s, uint64_t now)
{
    char who[128], why[400];
    struct bps_seat *seat;
    uint64_t limit = scheduler_cluster(s)->rendezvous_timeout;
    if (s->reforming == 0 || now - s->reforming < limit) {
        return;
    }
    bool any = false;
    TAILQ_FOREACH(seat, &s->roster.seats, entry) {
        any |= is_training(seat) && !seat->reforms;
    }
    TAILQ_FOREACH(seat, &s->roster.seats, entry) {
        if (is_training(seat) && (!any || !seat->reforms)) {
            break;
        }
    }
    s->reforming = any ? s->reforming : now;
    if (seat != NULL) {
        bps_seat_text(seat, who, sizeof who);
        snprintf(why, sizeof why, "%s was lost: it has not %s within %.0f s after others (cluster.rendezvous_timeout)",
                 who, any ? "called bps_reform()" : "ended its operations", (double)limit / 1e9);
        expel(s, seat, who, why);
    }
}

/* Who waits for the next generation is not missed in this one. */
static void send_away(struct bps_scheduler *s, struct bps_seat *seat, const char *text)
{
    bps_warn(LOG, "%s", text);
    send_lost(&seat->guest->link, BPS_ERR_LOST, text);
    bps_link_finish(&seat->guest->link);
    bps_roster_forget(&s->roster, seat);
    tell_newcomers(s);
}

/* The first member that has been silent for too long. */
static struct bps_seat *silent_seat(struct bps_scheduler *s, uint64_t now)
{
    struct bps_seat *seat;
    TAILQ_FOREACH(seat, &s->roster.seats, entry) {
        uint64_t heard = seat->guest->link.last_received;
        if (now > heard && now - heard > scheduler_cluster(s)->peer_timeout && !is_out(s, seat)) {
            return seat;
        }
    }
    return NULL;
}

static void check_alive(struct bps_scheduler *s, uint64_t now)
{
    struct bps_seat *seat;
    bool slept = bps_loop_late(s->loop) > scheduler_cluster(s)->peer_timeout / 4; /* we were stopped ourselves */
    TAILQ_FOREACH(seat, &s->roster.seats, entry) {
        if (slept) {
            seat->guest->link.last_received = now;
        }
        bps_link_keep_alive(&seat->guest->link, now, scheduler_cluster(s)->peer_timeout / 4);
    }
    bps_returning_keep_alive(&s->returning, now, scheduler_cluster(s)->peer_timeout / 4);
    bps_joining_keep_alive(&s->joining, now, scheduler_cluster(s)->peer_timeout / 4);
    if (slept) {
        bps_joining_excuse(&s->joining, now);
    }
    struct bps_joiner *joiner = bps_joining_silent(&s->joining, now, scheduler_cluster(s)->peer_timeout);
    if (joiner != NULL) {
        lose_joiner(s, joiner, "it sent no heartbeat (cluster.peer_timeout)");
    }
    seat = silent_seat(s, now);
    if (seat != NULL) {
        char who[128], why[BPS_TEXT_LIMIT + 1];
        bps_seat_text(seat, who, sizeof who);
        snprintf(why, sizeof why, "%s was lost: no heartbeat for %.0f s (cluster.peer_timeout)", who,
                 (double)scheduler_cluster(s)->peer_timeout / 1e9);
        if (seat->early) {
            send_away(s, seat, why);
        } else {
            expel(s, seat, who, why);
        }
    }
}

static void scheduler_on_tick(void *arg)
{
    struct bps_scheduler *s = arg;
    uint64_t now = bps_now(), late = bps_loop_late(s->loop); /* that is how long we were stopped ourselves */
    bps_lobby_sweep(&s->lobby, now);
    if (s->phase == GATHERING) {
        s->since += now - s->since > late ? late : 0;
        take_over_if_possible(s);
    }
    if (s->phase == GATHERING) {
        settle_gathering(s, now);
    }
    if (s->phase == GATHERING) {
        remind(s, now);
    } else if (s->phase == RUNNING) {
        tell_lateness(s, now);
        share_anew(s);
        let_in_next(s);
        expel_late(s, now);
        bps_declared_excuse(&s->declared, late);
        bps_declared_check_stalls(&s->declared, now, scheduler_cluster(s)->stall_warning,
                                  scheduler_cluster(s)->stall_timeout, send_worker, s);
    }
    if (s->phase != ENDING) {
        check_alive(s, now);
    } else if (now > s->since && now - s->since > END_LIMIT) { /* it may have begun in this very call */
        bps_roster_fini(&s->roster);
        bps_returning_fini(&s->returning);
        bps_joining_fini(&s->joining);
        bps_lobby_fini(&s->lobby);
        finish_if_alone(s);
    }
}

/* ---- life ---- */

bps_status bps_scheduler_new(const struct bps_conf *conf, struct bps_loop *loop,
                             void (*finished)(void *arg, bps_status status), void (*news)(void *arg, const char *line),
                             void *arg, char *address, size_t n, struct bps_scheduler **out, struct bps_report *report)
{
    const struct bps_conf_cluster *c = &conf->cluster;
    struct bps_scheduler *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return BPS_ERR_NOMEM;
    }
    s->conf = conf;
    s->loop = loop;
    s->finished = finished;
    s->news = news;
    s->arg = arg;
    bps_joining_init(&s->joining);
    int64_t workers = c->max_workers > c->workers ? c->max_workers : c->workers;
    bps_status status = bps_returning_init(&s->returning, (uint32_t)workers);
    bps_roster_init(&s->roster, (uint32_t)c->workers, (uint32_t)c->servers, c->colocated);
    s->roster.alone = s->conf->server.backups > 0;
    if (c->min_workers > 0) {
        bps_roster_be_elastic(&s->roster, (uint32_t)c->min_workers, (uint32_t)c->max_workers);
    }
    bps_lobby_init(&s->lobby, &handler, NULL, s, (uint32_t)(workers + c->servers));
    struct bps_join self = {0};
    bps_join_host(&self);
    memcpy(s->host, self.host, sizeof s->host);
    s->agreement = bps_conf_agreement(conf);
    status = status == BPS_OK && s->agreement == NULL ? BPS_ERR_NOMEM : status;
    if (status == BPS_OK) {
        status = bps_transport_check_host(conf, c->scheduler, report);
    }
    if (status == BPS_OK) {
        status = bps_guard_begin(&s->guard, conf, loop, NULL, NULL, report);
    }
    if (status == BPS_OK) {
        status = bps_alive_begin(&s->alive, loop, conf, report);
    }
    if (status == BPS_OK) {
        status = bps_files_expect((uint64_t)(workers + c->servers), report);
    }
    if (status == BPS_OK) {
        status = bps_transport_open(conf, loop, &s->net, report);
    }
    if (status == BPS_OK) {
        s->loaded = bps_loaded_text(conf);
        status = s->loaded == NULL ? BPS_ERR_NOMEM : BPS_OK;
    }
    if (status == BPS_OK) {
        status = bps_ports_listen(conf, s->net, c->scheduler, &s->lobby, address, n, report);
    }
    if (status == BPS_OK) {
        uint64_t period = c->peer_timeout / 8 < BPS_S / 2 ? c->peer_timeout / 8 : BPS_S / 2;
        s->ticker = bps_loop_timer(loop, period, period, scheduler_on_tick, s);
        status = s->ticker == NULL ? BPS_ERR_NOMEM : BPS_OK;
    }
    if (status != BPS_OK) {
        bps_scheduler_free(s);
        return status;
    }
    if (!conf->has_secret) {
        bps_warn(LOG, "this job has no secret: any process of this host can join");
    }
    gather(s);
    *out = s;
    return BPS_OK;
}

bool bps_scheduler_left(struct bps_scheduler *s, uint32_t rank)
{
    if (rank >= s->returning.workers) {
        return false;
    }
    bps_returning_leave(&s->returning, rank);
    return true;
}

bps_status bps_scheduler_ended(struct bps_scheduler *s, uint32_t pid)
{
    return bps_returning_ended(&s->returning, pid);
}

void bps_scheduler_free(struct bps_scheduler *s)
{
    if (s == NULL) {
        return;
    }
    if (s->ticker != NULL) {
        bps_loop_cancel(s->loop, s->ticker);
    }
    bps_alive_end(&s->alive);
    s->finished = NULL;
    bps_lobby_fini(&s->lobby);
    bps_roster_fini(&s->roster);
    bps_returning_fini(&s->returning);
    bps_joining_fini(&s->joining);
    bps_declared_fini(&s->declared);
    bps_rates_fini(&s->rates);
    bps_lates_begin(&s->lates, 0);
    bps_book_fini(&s->book);
    bps_instance_close(s->net);
    bps_guard_end(&s->guard);
    free(s->agreement);
    free(s->loaded);
    free(s);
}
