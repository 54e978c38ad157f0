/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elastic.c - jobs whose workers go on when others are lost, as programs do that call bps_reform().
 *
 * Workers are killed or leave at any time, also those with shards; sometimes a server with them; and one comes later.
 * Those that are left agree about every operation of a generation: it has ended well for all of them, with the same
 * bits, or for none. What has not is done again in the next generation, until all have all results.
 */
#include <stdio.h>
#include <string.h>

#include "flow/flow.h"
#include "job.h"

/* ---- what they agree about ---- */

/* Whoever has been in a generation, and is there, or has left with all results. */
static bool is_left(const struct worker *w)
{
    return w->trained && !w->process.dead && !w->failed && (!w->leaves || w->finished);
}

/* It has joined this generation: before it, all that are left have got the same results, in the same generations. */
static void check_agreement(const struct worker *w, uint32_t epoch)
{
    struct job *job = w->job;
    for (uint32_t i = 0; i < job->people; i++) {
        const struct worker *other = &job->worker[i];
        for (uint32_t k = 0; k < OPERATIONS * ROUNDS && is_left(other); k++) {
            uint32_t number = k / ROUNDS, round = k % ROUNDS;
            uint32_t done = other->done[number][round] < epoch ? other->done[number][round] : 0;
            if (w->done[number][round] != done && job->wrong == NULL) {
                printf("  operation %u, round %u, before generation %u: worker %u has its result of generation %u, "
                       "worker %u that of %u (0: none)\n",
                       number, round, epoch, w->number, w->done[number][round], i, done);
                job_blame(job, "workers do not agree about an operation");
            }
        }
    }
}

/* A newcomer learns what the others have, as by a broadcast. */
static void learn(struct worker *w, uint32_t epoch)
{
    const struct job *job = w->job;
    for (uint32_t i = 0; i < job->people && !w->trained; i++) {
        const struct worker *other = &job->worker[i];
        for (uint32_t k = 0; k < OPERATIONS * ROUNDS && is_left(other); k++) {
            uint32_t done = other->done[k / ROUNDS][k % ROUNDS];
            w->done[k / ROUNDS][k % ROUNDS] = done < epoch ? done : 0;
        }
    }
}

/* ---- a worker ---- */

static void elastic_await(struct worker *w, const struct flight *flight)
{
    struct bps_report report = {""};
    bps_status status = bps_operation_wait(w->worker, flight->handle, BPS_FOREVER, &report);
    if (status == BPS_OK) {
        w->done[flight->number][w->round] = w->worker->job.epoch;
        job_check_result(w, flight);
        return;
    }
    w->reforms = true;
    w->failed |= status != BPS_ERR_MEMBERSHIP;
    if (w->failed && !w->job->last_killed) {
        printf("  worker %u: operation %u: %s: %s\n", w->number, flight->number, bps_strerror(status), report.text);
        job_blame(w->job, "an operation failed for no reason");
    }
}

static bool elastic_begin(struct worker *w, uint32_t number, struct flight *flight)
{
    bps_status status = job_start(w->worker, w, number, flight);
    w->reforms |= status != BPS_OK;
    if (status != BPS_OK && status != BPS_ERR_MEMBERSHIP && !w->job->last_killed) {
        printf("  worker %u: operation %u: %s\n", w->number, number, bps_strerror(status));
        job_blame(w->job, "an operation could not begin");
    }
    return status == BPS_OK;
}

/* Now and then, if somebody waits for that. */
static bool wants_reform(const struct worker *w)
{
    return atomic_load(&w->worker->newcomers) > 0 && sim_chance(20);
}

/* Where each worker has an order of its own, each begins all of a round before it stops: the others wait for that. */
static bool may_stop(const struct job *job, uint32_t n, uint32_t next)
{
    return job->window < job->operations || next == 0 || next == n;
}

/* What is not done of the round. */
static uint32_t list_undone(const struct worker *w, uint32_t *order)
{
    uint32_t drawn[OPERATIONS], n = 0;
    job_shuffle(w->job, drawn);
    for (uint32_t i = 0; i < w->job->operations; i++) {
        if (w->done[drawn[i]][w->round] == 0) {
            order[n++] = drawn[i];
        }
    }
    return n;
}

/* False: it has to reform, or is to leave. */
static bool elastic_work(struct worker *w)
{
    const struct job *job = w->job;
    struct flight flight[OPERATIONS];
    uint32_t order[OPERATIONS], n = list_undone(w, order), first = 0, next = 0;
    while (first < n && !((w->reforms || w->leaves) && may_stop(job, n, next))) {
        bool may_start = next < n && next - first < job->window;
        if (may_start && may_stop(job, n, next) && wants_reform(w)) {
            w->reforms = true;
        } else if (may_start && (next == first || job->window >= job->operations || sim_chance(70))) {
            if (!elastic_begin(w, order[next], &flight[next])) {
                break;
            }
            next++;
        } else {
            elastic_await(w, &flight[first++]);
        }
        if (sim_chance(10)) {
            sim_sleep(sim_random(50000) * 1000);
        }
    }
    bool waits = !w->leaves || sim_chance(50);
    while (first < next && waits) {
        elastic_await(w, &flight[first++]);
    }
    return !w->reforms && !w->leaves;
}

static bool any_finished(const struct job *job)
{
    bool finished = false;
    for (uint32_t i = 0; i < job->people; i++) {
        finished |= job->worker[i].finished;
    }
    return finished;
}

/* False: it cannot, which is right where the job has ended. */
static bool elastic_join(struct worker *w, const struct bps_conf *conf)
{
    struct bps_report report;
    struct bps_worker *worker = NULL;
    bps_status status;
    do {
        report.text[0] = '\0';
        status = bps_worker_new(conf, &w->place, &worker, &report);
    } while (status == BPS_ERR_MEMBERSHIP);
    w->failed = status != BPS_OK;
    if (w->failed && !w->job->last_killed && !any_finished(w->job)) {
        printf("  worker %u: %s\n", w->number, report.text);
        job_blame(w->job, "a worker could not join");
    }
    if (w->failed) {
        return false;
    }
    w->worker = worker;
    job_note_member(w);
    learn(w, worker->job.epoch);
    check_agreement(w, worker->job.epoch);
    w->trained = true;
    w->reforms = false;
    return true;
}

static void elastic_leave(struct worker *w)
{
    struct bps_report report = {""};
    bool reform = w->reforms && !w->leaves && !w->failed;
    if (!reform && !w->failed && !w->leaves) {
        job_check_idle(w->job, w->worker);
        w->leaves = w->finished = true;
    }
    bps_status status = bps_worker_leave(w->worker, reform, &report);
    if (reform && status != BPS_OK && !w->job->last_killed) {
        printf("  worker %u: %s: %s\n", w->number, bps_strerror(status), report.text);
        job_blame(w->job, "a worker could not reform");
    }
    w->failed |= status != BPS_OK;
    bps_worker_free(w->worker);
    w->worker = NULL;
}

void elastic_run_worker(void *arg)
{
    struct worker *w = arg;
    struct bps_conf *conf = job_configure(w->job, "worker", w);
    sim_sleep(sim_random(w->number < w->job->workers ? 3000 : 300000) * 1000);
    do {
        if (!elastic_join(w, conf)) {
            break;
        }
        for (w->round = 0; w->round < ROUNDS && elastic_work(w);) {
            w->round++;
        }
        elastic_leave(w);
    } while (w->reforms && !w->failed && !w->leaves);
    w->ended = true;
    bps_conf_free(conf);
}

/* ---- who is lost ---- */

/* Another one if it is drawn again. One of those that the job begins with stays. */
static void lose_worker(struct job *job)
{
    uint32_t there = 0;
    for (uint32_t i = 0; i < job->workers; i++) {
        there += !job->worker[i].process.dead && !job->worker[i].leaves;
    }
    struct worker *victim = &job->worker[sim_random(job->people)];
    if (there < 2 || victim->process.dead || victim->leaves) {
        return;
    }
    if (victim->trained && sim_chance(20)) {
        victim->leaves = true;
    } else {
        sim_kill(&victim->process);
    }
}

/* Not before the job has begun, which waits for all of them. */
static void lose_server(struct job *job)
{
    job->last_killed |= !job->colocated && job->servers - job->servers_killed == 1;
    sim_kill(&job->server[job->servers_killed++]);
}

void elastic_kill_some(struct job *job)
{
    bool begun = false;
    for (uint32_t i = 0; i < job->people; i++) {
        begun |= job->worker[i].trained;
    }
    if (begun && job->servers_killed < job->servers && sim_chance(25)) {
        lose_server(job);
    }
    lose_worker(job);
}

void elastic_kill(void *arg)
{
    struct job *job = arg;
    uint32_t times = 1 + sim_random(3);
    for (uint32_t i = 0; i < times; i++) {
        job->results_left = sim_chance(50) ? 1 + sim_random(1u << sim_random(10)) : 0;
        sim_sleep(sim_random(sim_chance(30) ? 5000 : 150000) * 1000);
        elastic_kill_some(job);
    }
}
