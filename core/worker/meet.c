/* SPDX-License-Identifier: Apache-2.0 */
/* meet.c - see meet.h. */
#include "worker/meet.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/report.h"
#include "base/route.h"
#include "meeting/meeting.h"
#include "node/transport.h"

#define LOG          "worker"
#define REMIND_EVERY (5 * BPS_S)

/* The job that this process is about to join; there is one at a time. */
static struct {
    const struct bps_meeting_place *place; /* NULL: these processes do not meet */
    struct bps_conf *conf;
    bool hosts; /* the scheduler */
    struct bps_given given;
    unsigned n; /* jobs that these processes have met for */
} met;

/* ---- worker 0 ---- */

static bps_status make_secret(struct bps_conf *conf, struct bps_report *report)
{
    if (getrandom(conf->secret, sizeof conf->secret, 0) != (ssize_t)sizeof conf->secret) {
        BPS_REPORT(report, "cannot make a secret: %s", strerror(errno));
        return BPS_ERR_IO;
    }
    conf->has_secret = true;
    return BPS_OK;
}

/* A word that no other job has. */
static bps_status make_job(struct bps_conf *conf, struct bps_report *report)
{
    uint64_t number;
    char job[17];
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) {
        BPS_REPORT(report, "cannot name the job: %s", strerror(errno));
        return BPS_ERR_IO;
    }
    snprintf(job, sizeof job, "%016" PRIx64, number);
    return bps_conf_put_cluster(conf, "job", job, met.place->name, report);
}

/* The own address in the direction of the others, or of the default route; else the transport chooses. */
static void listen_outwards(const char *port, char *out, size_t n)
{
    const char *direction = met.place->direction != NULL ? met.place->direction() : NULL;
    char own[128];
    bool ourselves;
    bool found =
        direction != NULL && bps_route_source(direction, own, sizeof own, &ourselves) && !bps_route_is_loopback(own);
    if (!found && !bps_route_source(BPS_ROUTE_OUTSIDE, own, sizeof own, &ourselves)) {
        snprintf(own, sizeof own, "0.0.0.0");
    }
    snprintf(out, n, "%s%s", own, port);
}

/* Whether all members are on this host. */
static bool is_of_one_host(const struct bps_conf_cluster *cluster)
{
    return cluster->local_size == cluster->workers && cluster->servers == 0;
}

/* `home` is where it is if all members are: on this host. Its port is that for other hosts, too. */
static bps_status meet_begin(struct bps_conf *conf, const char *home, bool near, struct bps_hosting **out,
                             struct bps_report *report)
{
    char address[160], outwards[140] = "";
    const char *port = strrchr(home, ':');
    const char *const here[] = {home, NULL}, *const anywhere[] = {port, outwards, NULL};
    if (!near) {
        listen_outwards(port, outwards, sizeof outwards);
    }
    bps_status status = bps_hosting_begin(conf, near ? here : anywhere, out, address, sizeof address, report);
    if (status == BPS_OK) {
        bps_debug(LOG, "this process hosts the scheduler at %s; the others find it by %s", address, met.place->name);
        status = bps_conf_put_cluster(conf, "scheduler", address, met.place->name, report);
    }
    return status;
}

static bps_status meet_host(struct bps_conf *conf, uint64_t until, struct bps_hosting **out, struct bps_report *report)
{
    bps_status status = met.given.secret ? BPS_OK : make_secret(conf, report);
    if (status == BPS_OK && !met.given.job) {
        status = make_job(conf, report);
    }
    if (status == BPS_OK) {
        status = meet_begin(conf, "127.0.0.1:0", is_of_one_host(&conf->cluster), out, report);
    }
    return status == BPS_OK ? bps_meeting_leave(met.place, conf, met.given, met.n, until, report) : status;
}

/* ---- the others ---- */

static bps_status meet_look(uint64_t until, struct bps_report *report)
{
    return bps_meeting_find(met.place, met.conf, met.given, met.n, until, report);
}

static bps_status meet_find(uint64_t until, struct bps_report *report)
{
    const uint64_t since = bps_now();
    bps_status status = BPS_ERR_TIMEOUT;
    for (uint64_t now = since; status == BPS_ERR_TIMEOUT && now < until; now = bps_now()) {
        status = meet_look(now + REMIND_EVERY < until ? now + REMIND_EVERY : until, report);
        if (status == BPS_ERR_TIMEOUT) {
            bps_warn(LOG, "waiting for worker 0 to publish the address of the scheduler: %s (%.0f s)", report->text,
                     (double)(bps_now() - since) / 1e9);
        }
    }
    if (status == BPS_ERR_TIMEOUT) {
        char why[400];
        snprintf(why, sizeof why, "%.399s", report->text);
        BPS_REPORT(
            report,
            "worker 0 did not publish the address of the scheduler within %.0f s (cluster.rendezvous_timeout): %s",
            (double)met.conf->cluster.rendezvous_timeout / 1e9, why);
    }
    return status;
}

void bps_meet_again(void)
{
    struct bps_report why = {""};
    bool noted = met.place != NULL && met.place->port == NULL && !met.hosts;
    if (noted && meet_look(bps_now() + BPS_S, &why) != BPS_OK) {
        bps_debug(LOG, "%s", why.text);
    }
}

/* ---- all ---- */

static bps_status meet_refuse(const struct bps_conf *conf, struct bps_report *report)
{
    const int64_t n = conf->cluster.workers;
    BPS_REPORT(report,
               "%s = %" PRId64 ": %s has started several processes without a rendezvous, so that each of them would "
               "train alone; start them by `byteps run -n %" PRId64
               " -- python3 train.py` (on several hosts `byteps run -H host1:n,host2:n -- python3 train.py`), or give "
               "all of them MASTER_ADDR and MASTER_PORT, or BYTEPS_MEETING_FILE, a path in a folder that they share, "
               "or set cluster.scheduler = \"HOST:PORT\" for all and run "
               "`byteps scheduler` there, or set cluster.workers = 1 to train each on its own",
               bps_conf_find(conf, "cluster.workers")->origin, n, conf->launcher, n);
    return BPS_ERR_CONF;
}

static bps_status meet_by_note(struct bps_conf *conf, uint64_t until, struct bps_hosting **hosting,
                               struct bps_report *report)
{
    return met.hosts ? meet_host(conf, until, hosting, report) : meet_find(until, report);
}

/* Where there are no notes. Others may know worker 0 by an address that is none of its host, such as a service's. */
static bps_status meet_as_known(struct bps_conf *conf, struct bps_hosting **hosting, struct bps_report *report)
{
    char known[300], why[400];
    bps_status status = bps_meeting_know(met.place, conf, met.n, report);
    if (status != BPS_OK || !met.hosts) {
        return status;
    }
    snprintf(known, sizeof known, "%.299s", conf->cluster.scheduler);
    status = meet_begin(conf, known, bps_route_is_loopback(known), hosting, report);
    if (status != BPS_OK) {
        snprintf(why, sizeof why, "%.399s", report->text);
        bps_report_at(report, met.place->name, why);
    }
    return status;
}

bps_status bps_meet(struct bps_conf *conf, struct bps_hosting **hosting, struct bps_report *report)
{
    struct bps_report own, *why = report != NULL ? report : &own;
    uint64_t until = bps_now() + conf->cluster.rendezvous_timeout;
    *hosting = NULL;
    met.place = NULL;
    if (conf->launcher == NULL || conf->cluster.scheduler[0] != '\0') {
        return BPS_OK;
    }
    bool server = conf->cluster.role == BPS_ROLE_SERVER;
    bps_status status = bps_transport_check_secret(conf, why); /* a note would tell one to who reads along */
    if (status == BPS_OK && (server || conf->cluster.rank >= 0)) {
        status = bps_meeting_here(&met.place, why);
    }
    if (status != BPS_OK || met.place == NULL) {
        return status != BPS_OK ? status : meet_refuse(conf, why);
    }
    met.conf = conf;
    met.hosts = !server && conf->cluster.rank == 0;
    met.given = (struct bps_given){.secret = conf->has_secret, .job = strcmp(conf->cluster.job, "default") != 0};
    met.n++;
    status = met.place->port == NULL ? meet_by_note(conf, until, hosting, why) : meet_as_known(conf, hosting, why);
    if (status != BPS_OK) {
        bps_hosting_end(*hosting, why->text);
        *hosting = NULL;
    }
    return status;
}

void bps_meet_end(void)
{
    if (met.place != NULL && met.place->end != NULL) {
        met.place->end();
    }
    met.place = NULL;
}

void bps_meet_in_child(void)
{
    bps_meeting_in_child();
}
