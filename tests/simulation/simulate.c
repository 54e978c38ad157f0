/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulate.c - random jobs, each in one thread: simulate [-p PLANT] [SEED [COUNT [TROUBLE [verbose]]]].
 *
 * A job has a scheduler, servers and workers on some hosts, which reduce and broadcast tensors of any size in any
 * order; in some jobs they have devices, and tensors there. Workers may be late, leave early, be killed, push something
 * else than the others, or run out of memory. Every operation ends: with the right result, the same bits for all, or
 * with an error; every worker leaves; nothing is left in its queues. A seed repeats its job.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "conf/load.h"
#include "flow/flow.h"
#include "plugin/builtin.h"
#include "plugin/memory.h"
#include "coded/coded.h"
#include "job.h"
#include "scheduler/rates.h"
#include "scheduler/scheduler.h"

#define SECOND     1000000000ull
#define MOVE_EVERY (SECOND / 500)
#define LIMIT      (600 * SECOND) /* of simulated time, in which a job ends; */
#define PLANTED    (150 * SECOND) /* one with a planted error soon, or never */

static uint64_t limit = LIMIT;

static const char *const trouble_names[TROUBLES] = {
    "none",
    "a worker is killed",
    "a worker leaves early",
    "a worker pushes another size",
    "a server is killed",
    "an allocation fails",
    "a worker pushes another type",
    "a worker asks for another operation",
    "a worker asks for another root",
    "a worker has another order of two tensors without names",
    "a stage fails",
    "an allocation fails in the scheduler or a server",
    "a worker declares another coding",
    "a worker codes what nobody can decode",
    "a device fails",
    "the scheduler is killed, and another one takes its place",
    "members are lost, and the workers that are left reform",
    "none, and rounds end without the slowest workers",
    "a server comes into the job, and a server or the scheduler may be killed",
};

const struct bps_module *bps_module_reducer_cpu(void);

/* The modules of this program. */
const struct bps_module *__wrap_bps_builtin_module(size_t index);
const struct bps_module *__wrap_bps_builtin_module(size_t index)
{
    const struct bps_module *const modules[] = {&sim_network, bps_module_reducer_cpu(), &sim_stages, &sim_compressors,
                                                &sim_devices};
    return index < 5 ? modules[index] : NULL;
}

/* It would wait for time that passes in no thread of ours. */
bps_status __wrap_bps_watchdog_begin(struct bps_watchdog_user *user, struct bps_report *report);
bps_status __wrap_bps_watchdog_begin(struct bps_watchdog_user *user, struct bps_report *report)
{
    (void)user;
    (void)report;
    return BPS_OK;
}

void __wrap_bps_watchdog_end(struct bps_watchdog_user *user);
void __wrap_bps_watchdog_end(struct bps_watchdog_user *user)
{
    (void)user;
}

/*
 * Memory of bps_alloc() is that of a process, and so are those who hear of it: here are many workers, and none hears
 * of it.
 */
bps_status __wrap_bps_memory_join(const struct bps_memory_user *user, struct bps_report *report);
bps_status __wrap_bps_memory_join(const struct bps_memory_user *user, struct bps_report *report)
{
    (void)user;
    (void)report;
    return BPS_OK;
}

void __wrap_bps_memory_run(struct bps_loop *loop);
void __wrap_bps_memory_run(struct bps_loop *loop)
{
    (void)loop;
}

void __wrap_bps_memory_close(struct bps_instance *instance);
void __wrap_bps_memory_close(struct bps_instance *instance)
{
    bps_instance_close(instance);
}

/* The host's side of tensors on devices; what who is killed has left is given back in the end. */
struct memory {
    LIST_ENTRY(memory) entry;
    void *bytes;
};
static LIST_HEAD(, memory) memories = LIST_HEAD_INITIALIZER(memories);

void *__wrap_bps_alloc(size_t bytes);
void *__wrap_bps_alloc(size_t bytes)
{
    struct memory *memory = __real_calloc(1, sizeof *memory);
    memory->bytes = __real_calloc(1, bytes);
    LIST_INSERT_HEAD(&memories, memory, entry);
    return memory->bytes;
}

void __wrap_bps_free(void *bytes);
void __wrap_bps_free(void *bytes)
{
    struct memory *memory = LIST_FIRST(&memories);
    while (memory->bytes != bytes) {
        memory = LIST_NEXT(memory, entry);
    }
    LIST_REMOVE(memory, entry);
    free(memory->bytes);
    free(memory);
}

static void free_memories(void)
{
    while (!LIST_EMPTY(&memories)) {
        __wrap_bps_free(LIST_FIRST(&memories)->bytes);
    }
}

/* No task is under way when its operation ends. */
void __real_bps_operation_end(struct bps_operation *operation);
void __wrap_bps_operation_end(struct bps_operation *operation);
void __wrap_bps_operation_end(struct bps_operation *operation)
{
    const struct bps_tensor_entry *tensor = bps_container(operation, const struct bps_tensor_entry, operation);
    for (uint32_t i = 0; i < tensor->tasks; i++) {
        bps_assert(tensor->task[i].state == BPS_TASK_IDLE);
    }
    __real_bps_operation_end(operation);
}

static struct job *playing; /* that is simulated */
static int wanted = -1;     /* the trouble that all jobs are to have; -1: any */

void job_blame(struct job *job, const char *what)
{
    if (job->wrong == NULL) {
        job->wrong = what;
    }
}

/* Nothing that sums would be left. */
bool __real_bps_book_lose(struct bps_book *book, uint32_t member);
bool __wrap_bps_book_lose(struct bps_book *book, uint32_t member);
bool __wrap_bps_book_lose(struct bps_book *book, uint32_t member)
{
    bool others = __real_bps_book_lose(book, member);
    playing->last_killed |= !others && playing->trouble == ELASTIC;
    return others;
}

/* ---- configuration ---- */

static void set(struct job *job, const char *key, const char *value)
{
    char *text = job->settings[job->nset];
    snprintf(text, sizeof job->settings[0], "%s=%s", key, value);
    job->set[job->nset++] = text;
}

static void set_number(struct job *job, const char *key, uint32_t value)
{
    char text[16];
    snprintf(text, sizeof text, "%u", value);
    set(job, key, text);
}

struct bps_conf *job_configure(const struct job *job, const char *role, const struct worker *w)
{
    struct bps_report report = {""};
    struct bps_conf *conf;
    const char *all[SETTINGS + 3];
    char role_text[32], rank[32];
    uint32_t n = 0;
    for (; n < job->nset; n++) {
        all[n] = job->set[n];
    }
    snprintf(role_text, sizeof role_text, "cluster.role=%s", role);
    all[n++] = role_text;
    if (w != NULL) {
        snprintf(rank, sizeof rank, "cluster.rank=%d", job->trouble == ELASTIC ? -1 : (int)w->number);
        all[n++] = rank;
        all[n++] = w->has_device ? "worker.use=gpu" : "worker.use=sum";
    }
    const struct bps_conf_request request = {.confdir = "/nonexistent", .text = "", .set = all, .nset = n};
    if (bps_conf_load_from(&request, &conf, &report) != BPS_OK) {
        printf("configuration: %s\n", report.text);
        exit(2);
    }
    conf->has_secret = job->seed % 2 == 1;
    conf->secret[0] = conf->has_secret;
    return conf;
}

/* ---- scheduler and servers ---- */

static void on_finished(void *arg, bps_status status)
{
    (void)status;
    bps_loop_stop(arg);
}

/* Whom the scheduler lets go. */
static void on_news(void *arg, const char *line)
{
    uint32_t rank;
    (void)arg;
    if (sscanf(line, "left %u", &rank) == 1) {
        playing->let_go |= 1u << rank;
    }
}

/* As `byteps run` does; not whoever starts it by hand, in one job of three. */
static bool tells_who_left(const struct job *job)
{
    return job->seed % 3 > 0;
}

/* The one before has let these go. */
static void tell_who_left(const struct job *job, struct bps_scheduler *scheduler)
{
    for (uint32_t rank = 0; rank < job->workers && tells_who_left(job); rank++) {
        if (job->let_go & 1u << rank) {
            bps_scheduler_left(scheduler, rank);
        }
    }
}

/* If it is this one of scheduler and servers, one of its allocations is going to fail. */
static void starve(const struct job *job, const struct sim_process *process)
{
    if (job->trouble != HOST_STARVES) {
        return;
    }
    if (process == (job->victim == 0 ? &job->scheduler : &job->server[job->victim - 1])) {
        sim_starve(process, 1 + sim_random(600));
    }
}

/* ---- tensors that move ---- */

static uint64_t moving; /* of the moves alone: the same seed makes the same job, whatever moves in it */

static uint32_t move_random(uint32_t n)
{
    moving = moving * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((moving >> 33) % n);
}

/* Any shares, and often none. */
bps_status __wrap_bps_rates_take(struct bps_rates *rates, struct bps_book *book);
bps_status __wrap_bps_rates_take(struct bps_rates *rates, struct bps_book *book)
{
    (void)rates;
    for (uint32_t i = 0; i < book->shards; i++) {
        book->shard[i].weight = book->shard[i].gone ? 0 : move_random(4);
    }
    uint32_t i = move_random(book->shards);
    while (book->shard[i].gone) {
        i = (i + 1) % book->shards;
    }
    book->shard[i].weight += 1;
    return bps_book_weigh(book) ? BPS_OK : BPS_ERR_FAILED;
}

/* Now and then, in two jobs of three; and sometimes shards are taken away. */
static void move(void *arg)
{
    if (move_random(4) == 0) {
        bps_scheduler_move(arg);
    }
    if (move_random(6) == 0 && !collectives_in_groups(playing)) {
        playing->retires |= bps_scheduler_retire(arg, move_random(playing->workers + playing->servers));
    }
}

static void run_scheduler(void *arg)
{
    struct job *job = arg;
    struct bps_conf *conf = job_configure(job, "scheduler", NULL);
    struct bps_scheduler *scheduler;
    struct bps_report report = {""};
    char address[64];
    starve(job, &job->scheduler);
    struct bps_loop *loop = bps_loop_new();
    bps_status status = loop == NULL ? BPS_ERR_NOMEM
                                     : bps_scheduler_new(conf, loop, on_finished, on_news, loop, address,
                                                         sizeof address, &scheduler, &report);
    if (status == BPS_OK) {
        tell_who_left(job, scheduler);
        moving = job->seed;
        bool moves = move_random(3) > 0;
        struct bps_timer *mover = moves ? bps_loop_timer(loop, MOVE_EVERY, MOVE_EVERY, move, scheduler) : NULL;
        bps_loop_run(loop);
        if (mover != NULL) {
            bps_loop_cancel(loop, mover);
        }
        bps_scheduler_free(scheduler);
    } else if (job->trouble != HOST_STARVES) {
        printf("  scheduler: %s\n", report.text);
        job_blame(job, "the scheduler could not begin");
    }
    if (loop != NULL) {
        bps_loop_free(loop);
    }
    bps_conf_free(conf);
}

static void run_server(void *arg)
{
    struct job *job = arg;
    struct bps_report report = {""};
    struct bps_conf *conf = job_configure(job, "server", NULL);
    sim_sleep(sim_random(2000) * 1000);
    starve(job, sim_self());
    bps_server_run(conf, false, -1, &report);
    bps_conf_free(conf);
}

/* One that comes into the job while that runs. */
static void run_comer(void *arg)
{
    struct bps_report report = {""};
    struct bps_conf *conf = job_configure(arg, "server", NULL);
    bps_server_run(conf, true, -1, &report);
    bps_conf_free(conf);
}

/* At the end of a worker no slice of its tasks is coded any more. */
void __real_bps_coded_close(struct bps_worker *worker);
void __wrap_bps_coded_close(struct bps_worker *worker);
void __wrap_bps_coded_close(struct bps_worker *worker)
{
    if (worker->coded != NULL) {
        sim_check_pool(&worker->coded->pool);
    }
    __real_bps_coded_close(worker);
}

/* In the place of that which looks at bytes and cores: half of the slices are coded by the pool of threads. */
bool __wrap_bps_thread_pool_pays(const struct bps_worker *worker, uint64_t bytes);
bool __wrap_bps_thread_pool_pays(const struct bps_worker *worker, uint64_t bytes)
{
    (void)worker;
    (void)bytes;
    return sim_chance(50);
}

/* In the place of that which looks at times: anything may pay, and the next time not. */
bool __wrap_bps_trial_codes(const struct bps_trial *trial);
bool __wrap_bps_trial_codes(const struct bps_trial *trial)
{
    (void)trial;
    return sim_chance(50);
}

/* ---- workers ---- */

/* Small whole numbers, whose sums are the same in any order. */
static float value(uint32_t rank, uint32_t operation, uint32_t i)
{
    return (float)((rank + 1) * ((operation + i) % 13));
}

/* What a round loses another one has: see balance.c. */
static bool has_balance(const struct job *job, const struct operation *o)
{
    return job->lossy && (o->op == BPS_SUM || o->op == BPS_AVERAGE) && !o->unnamed;
}

/* What the members of a set make of it, a bit each. */
static float expected(const struct job *job, const struct members *members, uint32_t set, uint32_t number, uint32_t i)
{
    const struct operation *o = &job->operation[number];
    float sum = 0, largest = 0;
    if (o->op == BPS_WIRE_BROADCAST) {
        return value(members->number[o->root % members->size], number, i);
    }
    for (uint32_t rank = 0; rank < members->size; rank++) {
        float x = (set >> rank & 1) != 0 ? value(members->number[rank], number, i) : 0;
        sum += x;
        largest = x > largest ? x : largest;
    }
    float n = (float)__builtin_popcount(set);
    float result = o->op == BPS_MAX ? largest : o->op == BPS_AVERAGE ? sum / n : sum;
    return job->stage != NOWHERE ? 2 * result : result;
}

/* Whether some of the members make that, as many as have to. */
static bool is_expected(const struct job *job, const struct members *members, uint32_t number, uint32_t i, float got)
{
    const struct operation *o = &job->operation[number];
    bool early = o->op != BPS_WIRE_BROADCAST && !o->unnamed;
    uint32_t backups = early ? job->backups : 0, all = (1u << members->size) - 1;
    for (uint32_t set = all; set > 0; set--) {
        uint32_t n = (uint32_t)__builtin_popcount(set);
        float want = n + backups >= members->size ? expected(job, members, set, number, i) : NAN;
        if (want - got <= 1e-3f && got - want <= 1e-3f) { /* NaN is wrong */
            return true;
        }
    }
    return false;
}

void job_note_member(const struct worker *w)
{
    const struct bps_job_info *info = &w->worker->job;
    struct members *members = &w->job->members[info->epoch % GENERATIONS];
    members->size = info->size;
    members->number[info->rank] = w->number;
}

/* ---- troubles ---- */

/* The trouble is with this operation, and with no other one. */
static bool is_with(const struct job *job, uint32_t number)
{
    return (number == job->moment && (job->trouble == OTHER_SIZE || job->trouble >= OTHER_TYPE) &&
            job->trouble != HOST_STARVES && job->trouble != CODER_LIES && job->trouble < DEVICE_FAILS) ||
           (number == job->moment + 1 && job->trouble == OTHER_ORDER);
}

/* It has the trouble in this round; in all of them, if that is another coding. */
static bool is_troubled(const struct job *job, uint32_t number, uint32_t round)
{
    return is_with(job, number) && (round == job->when || job->trouble == OTHER_CODING);
}

/* Such an operation fails for all, unless those who have passed the stage may have their result. */
static bool must_fail(const struct job *job, uint32_t number, uint32_t round)
{
    return is_troubled(job, number, round) && (job->trouble != STAGE_FAILS || job->stage == FIRST);
}

static bool any_leaves(const struct job *job)
{
    bool leaves = false;
    for (uint32_t i = 0; i < job->workers; i++) {
        leaves |= job->worker[i].leaves;
    }
    return leaves;
}

/* Who comes to a round of which a stage has failed may find that a worker has gone already, and with it the words. */
static bool may_fail(const struct job *job, uint32_t number, uint32_t round, bps_status status)
{
    bool gone = job->trouble == STAGE_FAILS && any_leaves(job) && status == BPS_ERR_LOST;
    if (job->trouble == CODER_LIES) {
        return status == BPS_ERR_PROTOCOL || status == BPS_ERR_PLUGIN;
    }
    return is_troubled(job, number, round) &&
           (gone || status == (job->trouble == STAGE_FAILS ? BPS_ERR_FAILED : BPS_ERR_MISMATCH));
}

bool job_may_end(const struct job *job)
{
    return job->trouble == KILLED || job->trouble == LEAVES ||
           ((job->trouble == SERVER_KILLED || job->trouble == COMES) && job->last_killed) || job->trouble == STARVES ||
           job->trouble == HOST_STARVES || job->trouble == CODER_LIES || job->trouble == DEVICE_FAILS || job->any_left;
}

bool sim_stage_fails(const struct sim_process *process, const char *tensor, uint32_t partition)
{
    char name[16];
    snprintf(name, sizeof name, "t%u", playing->moment);
    const struct worker *victim = &playing->worker[playing->victim];
    return playing->trouble == STAGE_FAILS && process == &victim->process && victim->round == playing->when &&
           strcmp(tensor, name) == 0 && (partition == 0 || !playing->partly);
}

bool sim_coder_lies(void)
{
    return playing->trouble == CODER_LIES && sim_self() == &playing->worker[playing->victim].process && sim_chance(20);
}

/* Workers begin a round when they have ended the one before. */
uint32_t sim_round_now(const struct bps_worker *worker)
{
    uint32_t i = 0;
    while (playing->worker[i].worker != worker) {
        i++;
    }
    return playing->worker[i].round;
}

void sim_blame(const char *what)
{
    job_blame(playing, what);
}

static const struct worker *worker_of(const struct sim_process *process)
{
    return (const struct worker *)process; /* its first member */
}

bool sim_device_fails(const struct sim_process *process)
{
    return playing->trouble == DEVICE_FAILS && worker_of(process)->number == playing->victim && sim_chance(1);
}

bool sim_device_joins_not(const struct sim_process *process)
{
    return worker_of(process)->joins_not;
}

bool sim_device_is_shared(const struct sim_process *process)
{
    (void)process;
    return playing->shared_device;
}

static bool is_on_device(const struct worker *w, uint32_t number)
{
    return (w->job->operation[number].devices >> w->number & 1) != 0;
}

/* What the one who disagrees pushes instead. */
static void disagree(const struct job *job, struct bps_push_pull *request, uint32_t *op, uint32_t *root)
{
    request->count += job->trouble == OTHER_SIZE;
    request->dtype = job->trouble == OTHER_TYPE ? BPS_INT32 : request->dtype;
    *op = request->op = job->trouble == OTHER_OP ? BPS_MAX : request->op;
    *root = job->trouble == OTHER_ROOT ? (*root + 1) % job->workers : *root;
}

/* All of a generation have the same bits, whatever they are. */
static void check_same(struct worker *w, uint32_t number)
{
    float **first = &w->job->first[number][w->round];
    uint32_t *first_in = &w->job->first_in[number][w->round], epoch = w->worker->job.epoch;
    size_t bytes = w->job->operation[number].count[w->round] * sizeof **first;
    if (*first == NULL || *first_in < epoch) {
        free(*first);
        *first_in = epoch;
        *first = __real_calloc(1, bytes + 1);
        memcpy(*first, w->memory[number], bytes);
    } else if (memcmp(*first, w->memory[number], bytes) != 0) {
        job_blame(w->job, "workers have different results");
    }
}

void job_check_result(struct worker *w, const struct flight *flight)
{
    const struct operation *o = &w->job->operation[flight->number];
    const struct members *members = &w->job->members[w->worker->job.epoch % GENERATIONS];
    if (is_on_device(w, flight->number) && !sim_device_finish()) {
        return;
    }
    check_same(w, flight->number);
    if (has_balance(w->job, o)) {
        return;
    }
    for (uint32_t i = 0; i < o->count[w->round]; i++) {
        if (!is_expected(w->job, members, flight->number, i, w->memory[flight->number][i])) {
            job_blame(w->job, "a result is wrong");
            return;
        }
    }
}

static void await(struct bps_worker *worker, struct worker *w, const struct flight *flight)
{
    struct bps_report report = {""};
    const struct job *job = w->job;
    bps_status status = bps_operation_wait(worker, flight->handle, BPS_FOREVER, &report);
    if (status == BPS_OK && must_fail(job, flight->number, w->round)) {
        printf("  worker %u: operation %u has a result\n", w->number, flight->number);
        job_blame(w->job, "an operation did not fail that has to");
    } else if (status == BPS_OK) {
        sim_balance_ended(flight->number, w->round);
        job_check_result(w, flight);
    } else if (job_may_end(job)) {
        w->failed = job->trouble != CODER_LIES || worker->failure != BPS_OK;
    } else if (!may_fail(job, flight->number, w->round, status)) {
        printf("  worker %u: operation %u: %s\n", w->number, flight->number, report.text);
        job_blame(w->job, "an operation failed for no reason");
    }
}

static bps_status declare_coding(struct bps_worker *worker, const char *name)
{
    const struct bps_declaration declaration = {
        .size = sizeof declaration, .name = name, .dtype = BPS_DTYPES, .coding = "plugin=whole; seed=5"};
    return bps_worker_declare(worker, &declaration, 1, NULL, NULL);
}

static void note_pushed(const struct worker *w, uint32_t number, const float *x)
{
    const struct job *job = w->job;
    const struct operation *o = &job->operation[number];
    const struct sim_round round = {.count = o->count[w->round],
                                    .scale = job->stage == FIRST || job->stage == BEFORE ? 2 : 1,
                                    .divisor = o->op == BPS_AVERAGE ? job->workers : 1,
                                    .rate = o->rate[w->round]};
    sim_balance_pushed(number, w->round, &round, x);
}

/* What this worker pushes; on a device it is there later. */
static void fill(const struct worker *w, uint32_t number)
{
    const struct job *job = w->job;
    const struct operation *o = &job->operation[number];
    float x[SIM_ELEMENTS], none[SIM_ELEMENTS];
    size_t bytes = o->count[w->round] * sizeof *x;
    for (uint32_t i = 0; i < o->count[w->round]; i++) {
        x[i] = value(w->number, number, i);
        none[i] = NAN;
    }
    if (has_balance(job, o) && o->infinite[w->round] && w->number == job->workers - 1) {
        x[o->count[w->round] / 2] = INFINITY;
    }
    note_pushed(w, number, x);
    if (is_on_device(w, number)) {
        memcpy(w->input[number], none, bytes);
        sim_device_write(w->memory[number], none, bytes);
        sim_device_write(w->input[number], x, bytes);
    } else {
        memcpy(w->input[number], x, bytes);
    }
}

bps_status job_start(struct bps_worker *worker, struct worker *w, uint32_t number, struct flight *flight)
{
    const struct job *job = w->job;
    const struct operation *o = &job->operation[number];
    struct bps_report report = {""};
    char name[16];
    uint32_t op = o->op, root = o->root % worker->job.size;
    snprintf(name, sizeof name, "t%u", number);
    fill(w, number);
    struct bps_push_pull request = {
        .size = sizeof request,
        .name = o->unnamed ? NULL : name,
        .in = w->input[number],
        .out = w->memory[number],
        .count = o->count[w->round],
        .dtype = BPS_FLOAT32,
        .op = o->op,
        .priority = o->priority,
        .prescale = 1,
        .postscale = 1,
        .learning_rate = o->rate[w->round],
        .device = {.type = is_on_device(w, number) ? BPS_DEVICE_CUDA : BPS_DEVICE_HOST},
    };
    if (is_troubled(job, number, w->round) && job->victim == w->number) {
        disagree(job, &request, &op, &root);
        if (job->trouble == OTHER_CODING && declare_coding(worker, name) != BPS_OK) {
            return BPS_ERR_FAILED;
        }
    }
    *flight = (struct flight){.number = number};
    const struct bps_call call = {
        .op = op, .kind = op == BPS_WIRE_BROADCAST ? BPS_KIND_BROADCAST : BPS_KIND_PUSH_PULL, .root = root};
    return bps_operation_start(worker, &request, &call, &flight->handle, &report);
}

void job_shuffle(const struct job *job, uint32_t *order)
{
    for (uint32_t i = 0; i < job->operations; i++) {
        order[i] = i;
    }
    for (uint32_t i = 0; i + 1 < job->operations && job->window >= job->operations; i++) {
        uint32_t j = i + sim_random(3);
        j = j < job->operations ? j : i;
        if (!job->operation[order[i]].unnamed && !job->operation[order[j]].unnamed) {
            uint32_t one = order[i];
            order[i] = order[j];
            order[j] = one;
        }
    }
}

/* Once through all operations. False: this worker is to leave. */
static bool work(struct bps_worker *worker, struct worker *w)
{
    const struct job *job = w->job;
    struct flight flight[OPERATIONS];
    uint32_t order[OPERATIONS], first = 0, next = 0;
    job_shuffle(job, order);
    if (job->trouble == OTHER_ORDER && job->victim == w->number && w->round == job->when) {
        order[job->moment] = job->moment + 1;
        order[job->moment + 1] = job->moment;
    }
    while (first < job->operations && !w->failed) {
        bool victim = job->victim == w->number && w->round == ROUNDS - 2 && next == job->moment;
        if (victim && job->trouble == KILLED) {
            sim_kill(&w->process);
        }
        if (victim && job->trouble == LEAVES) {
            w->failed = true; /* with operations in flight */
            return false;
        }
        bool may_start = next < job->operations && next - first < job->window;
        if (may_start && (next == first || job->window >= job->operations || sim_chance(70))) {
            if (job_start(worker, w, order[next], &flight[next]) != BPS_OK) {
                w->failed = true;
                break;
            }
            next++;
        } else {
            await(worker, w, &flight[first++]);
        }
        if (sim_chance(10)) {
            sim_sleep(sim_random(50000) * 1000);
        }
    }
    while (first < next) {
        await(worker, w, &flight[first++]);
    }
    return !w->failed;
}

void job_check_idle(struct job *job, const struct bps_worker *worker)
{
    const struct bps_shards *shards = worker->shards;
    for (uint32_t i = 0; shards != NULL && i < shards->remotes; i++) {
        if (shards->remote[i]->queue.count > 0 || shards->remote[i]->credit.unanswered > 0) {
            job_blame(job, "something is still queued for a shard, or unanswered");
        }
    }
    for (uint32_t slot = 1; slot < atomic_load(&worker->names.count); slot++) {
        const struct bps_tensor_entry *tensor = bps_tensor_at((struct bps_worker *)(uintptr_t)worker, slot);
        for (uint32_t i = 0; i < tensor->tasks; i++) {
            if (tensor->task[i].state != BPS_TASK_IDLE) {
                job_blame(job, "a task is not done");
            }
        }
    }
}

/* Asks what coding has left, as for a checkpoint; the job may end meanwhile. */
static void save_states(struct worker *w, struct bps_worker *worker)
{
    for (uint32_t slot = 1; slot < atomic_load(&worker->names.count); slot++) {
        struct bps_tensor_entry *tensor = bps_tensor_at(worker, slot);
        struct bps_writer state;
        bps_writer_init(&state);
        if (!tensor->named.unnamed && (w->job->lossy || sim_chance(30))) {
            w->failed = bps_state_save(tensor, &state, NULL) != BPS_OK || w->failed;
            if (w->failed && !job_may_end(w->job)) {
                job_blame(w->job, "what coding has left could not be saved");
            } else if (!w->failed) {
                sim_balance_saved(tensor, state.data, state.size);
            }
        }
        bps_writer_fini(&state);
    }
}

static void run_worker(void *arg)
{
    struct worker *w = arg;
    struct bps_report report = {""};
    struct bps_worker *worker = NULL;
    struct bps_conf *conf = job_configure(w->job, "worker", w);
    sim_sleep(sim_random(3000) * 1000);
    if (w->job->trouble == STARVES && w->job->victim == w->number) {
        sim_starve(&w->process, 1 + sim_random(1000));
    }
    int32_t rank = -1;
    if (bps_worker_new(conf, &rank, &worker, &report) != BPS_OK) {
        if (!w->job->last_killed && w->job->trouble != STARVES && w->job->trouble != HOST_STARVES) {
            printf("  worker %u: %s\n", w->number, report.text);
            job_blame(w->job, "a worker could not join");
        }
    } else {
        w->worker = worker;
        job_note_member(w);
        while (w->round < ROUNDS && work(worker, w) && collectives_run(w)) {
            w->round++;
        }
        w->failed = w->failed || w->round < ROUNDS;
        if (!w->failed) {
            save_states(w, worker);
            job_check_idle(w->job, worker);
        }
        w->leaves = true;
        bps_worker_leave(worker, false, &report);
        w->worker = NULL;
        bps_worker_free(worker);
    }
    w->ended = true;
    bps_conf_free(conf);
}

/* Whether all workers have joined, or left again. */
static bool all_joined(const struct job *job)
{
    bool all = true;
    for (uint32_t i = 0; i < job->workers; i++) {
        all &= job->worker[i].worker != NULL || job->worker[i].ended;
    }
    return all;
}

static void end_server(struct job *job)
{
    job->last_killed = job->servers == 1 || job->retires || !all_joined(job);
    sim_kill(&job->server[0]);
}

/* The end of a server in the middle of the job: at any time, or when some of a result has come. */
static void kill_server(void *arg)
{
    struct job *job = arg;
    job->results_left = sim_chance(70) ? 1 + sim_random(1u << sim_random(10)) : 0;
    sim_sleep(sim_random(100000) * 1000);
    if (job->results_left == 0) {
        end_server(job);
    }
}

void sim_result_came(void)
{
    if (playing->results_left > 0 && --playing->results_left == 0) {
        (playing->trouble == ELASTIC ? elastic_kill_some : end_server)(playing);
    }
}

/* Whether all workers go on without any of the servers. */
static bool all_settled(const struct job *job)
{
    bool all = true;
    for (uint32_t i = 0; i < job->workers; i++) {
        const struct worker *w = &job->worker[i];
        const struct bps_shards *shards = w->worker != NULL ? w->worker->shards : NULL;
        all &= w->ended || shards != NULL;
        for (uint32_t k = 0; shards != NULL && k < shards->remotes && !w->ended; k++) {
            all &= shards->remote[k]->has_heirs && !shards->remote[k]->bare;
        }
    }
    return all;
}

/* A server comes at any time. Then one of them may be killed: it, or one that was there. */
static void bring_server(void *arg)
{
    struct job *job = arg;
    sim_sleep(sim_random(sim_chance(50) ? 5000 : 100000) * 1000);
    sim_start(&job->comer, run_comer, job);
    if (sim_chance(25)) {
        return;
    }
    bool own = job->servers == 0 || sim_chance(30);
    for (uint32_t i = 0; i < 2000 && !own && sim_chance(99) && !all_settled(job); i++) {
        sim_sleep(SECOND / 10000);
    }
    sim_sleep(sim_random(sim_chance(50) ? 2000 : 50000) * 1000);
    job->last_killed = job->retires || (!own && (!all_joined(job) || (job->servers == 1 && !all_settled(job))));
    sim_kill(own ? &job->comer : &job->server[0]);
}

/* Often while it tells several something, of which some do not hear then. */
static void await_words(const struct sim_process *scheduler)
{
    uint32_t others = sim_chance(70) ? 2 : 0;
    for (uint32_t i = 0; i < 5000 && sim_sending(scheduler) < others; i++) {
        sim_sleep(2000);
    }
}

/* The end of the scheduler in the middle of the job, and another one. */
static void kill_scheduler(void *arg)
{
    struct job *job = arg;
    for (uint32_t i = 0; i < job->workers; i++) {
        while (job->worker[i].worker == NULL && !job->worker[i].ended) {
            sim_sleep(SECOND / 10000);
        }
    }
    struct sim_process *killed = &job->scheduler;
    uint32_t times = 1 + sim_random(SCHEDULERS);
    for (uint32_t i = 0; i < times; i++) {
        sim_sleep(sim_random(sim_chance(50) ? 4000 : 40000) * 1000);
        await_words(killed);
        job->any_left |= any_leaves(job) && !tells_who_left(job);
        if (sim_chance(50)) {
            sim_lose_sent(killed);
        }
        sim_kill(killed);
        sim_sleep(sim_random(50000) * 1000);
        killed = &job->another[i];
        sim_start(killed, run_scheduler, job);
    }
}

/* ---- jobs ---- */

/* The operation that the trouble is with. */
static void draw_troubled(struct job *job)
{
    struct operation *o = &job->operation[job->moment];
    if (!is_with(job, job->moment)) {
        return;
    }
    o->unnamed =
        job->trouble == OTHER_ORDER || (job->trouble != STAGE_FAILS && job->trouble != OTHER_CODING && sim_chance(50));
    o->op = job->trouble == OTHER_ROOT ? BPS_WIRE_BROADCAST : BPS_SUM;
    o->root = job->trouble == OTHER_ROOT ? sim_random(job->workers) : 0;
    if (job->trouble == OTHER_ORDER) {
        uint32_t more = 1 + sim_random(300);
        o[1] = o[0];
        for (uint32_t round = 0; round < ROUNDS; round++) {
            o[1].count[round] += more;
        }
    }
}

/* The graph with the stage somewhere in it. */
static void set_graph(struct job *job)
{
    static const char *const stages[] = {"local_reduce", "push_pull", "local_broadcast"};
    char text[320] = "", *at = text;
    for (uint32_t i = 0; i < 4; i++) {
        if (job->stage == FIRST + i) {
            at += sprintf(at, "%s{ stage = \"double\"; }", at > text ? ", " : "");
        }
        if (i == 1 && job->coded) {
            at += sprintf(at, ", { stage = \"compress\"; use = \"%s\"; when = \"bytes >= 100\"; }",
                          sim_chance(40) ? "auto" : "small");
        }
        if (i < 3) {
            at += sprintf(at, "%s{ stage = \"%s\"; }", at > text ? ", " : "", stages[i]);
        }
    }
    char graph[330];
    snprintf(graph, sizeof graph, "(%s)", text);
    set(job, "worker.graph", graph);
}

/* Sizes and learning rates, which may change from round to round. */
static void draw_rounds(struct operation *o)
{
    uint32_t count = sim_chance(10) ? 0 : sim_chance(50) ? 1 + sim_random(40) : 1 + sim_random(600);
    uint32_t other = 1 + sim_random(600);
    bool told = sim_chance(50), changes = sim_chance(20);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        o->count[round] = changes && sim_chance(50) ? other : count;
        o->rate[round] = told ? 1u << sim_random(3) : 0;
        o->infinite[round] = count > 0 && sim_chance(5);
    }
}

static void draw_operations(struct job *job)
{
    static const uint32_t ops[] = {BPS_SUM, BPS_AVERAGE, BPS_MAX, BPS_WIRE_BROADCAST};
    for (uint32_t i = 0; i < job->operations; i++) {
        struct operation *o = &job->operation[i];
        o->op = ops[sim_random(4)];
        o->root = o->op == BPS_WIRE_BROADCAST ? sim_random(job->workers) : 0;
        draw_rounds(o);
        o->priority = (int32_t)sim_random(5);
        o->unnamed = sim_chance(30);
    }
    draw_troubled(job);
    for (uint32_t w = 0; w < job->people; w++) {
        for (uint32_t i = 0; i < job->operations; i++) {
            float *memory = __real_calloc(SIM_ELEMENTS, sizeof(float));
            job->worker[w].memory[i] = memory;
            job->worker[w].input[i] = sim_chance(50) ? memory : __real_calloc(SIM_ELEMENTS, sizeof(float));
        }
    }
}

/* Of the devices alone: jobs without them are what their seeds have always made. */
static uint64_t device_numbers;

static uint32_t device_random(uint32_t n)
{
    device_numbers = device_numbers * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((device_numbers >> 33) % n);
}

/* In one job of six of those in which all would go well otherwise. */
static void draw_loss(struct job *job)
{
    uint64_t drawn = (job->seed + 1) * 0xd1342543de82ef95u; /* of its own, as for devices */
    bool may = job->trouble == NONE && job->workers > 1 && wanted < 0;
    if (may && (drawn >> 40) % 6 == 0) {
        job->trouble = SCHEDULER_KILLED;
    } else if (may && (drawn >> 40) % 6 == 2) {
        job->trouble = COMES;
    }
}

/* In one job of four; most tensors on the devices of all. */
static void draw_devices(struct job *job)
{
    const uint32_t all = (1u << job->workers) - 1;
    uint32_t have = 0;
    device_numbers = (job->seed + 1) * 0x9e3779b97f4a7c15u;
    job->devices = device_random(4) == 0 || wanted == DEVICE_FAILS;
    for (uint32_t i = 0; i < job->workers && job->devices; i++) {
        job->worker[i].has_device = device_random(12) > 0;
        job->worker[i].joins_not = device_random(24) == 0;
        have |= (uint32_t)job->worker[i].has_device << i;
    }
    for (uint32_t i = 0; i < job->operations && job->devices; i++) {
        uint32_t where = device_random(6);
        job->operation[i].devices = have & (where == 0 ? 0 : where == 1 ? device_random(all + 1) : all);
    }
    job->shared_device = device_random(12) == 0;
    bool fails = device_random(4) == 0 && wanted < 0;
    if (job->devices && (wanted == DEVICE_FAILS || (fails && job->trouble == NONE))) {
        job->trouble = DEVICE_FAILS;
    }
    if (job->devices) {
        set(job, "reducers.gpu.plugin", "device");
        set(job, "worker.device_groups", device_random(12) > 0 ? "auto" : "off");
        set_number(job, "worker.group_size", 1 + device_random(6));
    }
}

/* Its servers may be beside shards in workers. */
static const char *draw_colocated(const struct job *job)
{
    static const char *const colocated[] = {"all", "first", "hosts"};
    bool none = job->servers > 0 && (job->trouble != ELASTIC || sim_chance(50));
    return none ? "none" : colocated[sim_random(3)];
}

static void draw_settings(struct job *job, uint32_t partition)
{
    snprintf(job->address, sizeof job->address, "127.0.0.1:%u", 20000 + (uint32_t)(job->seed % 40000));
    set(job, "cluster.scheduler", job->address); /* another one each time: a process knows those that have ended */
    set_number(job, "cluster.workers", job->workers);
    set_number(job, "cluster.servers", job->servers);
    const char *colocated = draw_colocated(job);
    set(job, "cluster.colocated", colocated);
    job->colocated = strcmp(colocated, "none") != 0;
    if (job->trouble == ELASTIC) {
        set_number(job, "cluster.min_workers", 1);
        set_number(job, "cluster.max_workers", job->people);
    }
    set(job, "transports.net.plugin", "sim");
    set(job, "transports.local.plugin", "sim");
    set(job, "transports.local.local", "true");
    set(job, "worker.hierarchy", sim_chance(60) ? "auto" : "off");
    set_number(job, "worker.partition", partition);
    set_number(job, "worker.slice", partition >> sim_random(2) > 64 ? partition / 2 : 64);
    set(job, "worker.credit", sim_chance(50) ? "0" : "4 KiB");
    bool by_rank = sim_chance(50) && !(job->devices && device_random(4) > 0); /* which devices do not sum by */
    set(job, "server.order", by_rank ? "rank" : "arrival");
    set_number(job, "server.shards", 1 + sim_random(2));
}

/* On the first of the hosts, or beside them. */
static void draw_processes(struct job *job, uint32_t hosts)
{
    static const char *const host[HOSTS] = {"a", "b", "c"};
    job->scheduler = (struct sim_process){.name = "the scheduler", .host = "a"};
    for (uint32_t i = 0; i < SCHEDULERS; i++) {
        job->another[i] = (struct sim_process){.name = "another scheduler", .host = "a"};
    }
    job->hand = (struct sim_process){.name = "who kills it", .host = "a"};
    job->comer = (struct sim_process){.name = "a server that comes", .host = job->seed % 2 == 0 ? "s" : "a"};
    for (uint32_t i = 0; i < job->servers; i++) {
        job->server[i] = (struct sim_process){.name = "a server", .host = sim_chance(50) ? "s" : "a"};
    }
    for (uint32_t i = 0; i < job->people; i++) {
        struct worker *w = &job->worker[i];
        w->job = job;
        w->number = i;
        w->place = -1;
        w->process = (struct sim_process){.name = "a worker", .host = host[sim_random(hosts)]};
    }
}

static void draw_job(struct job *job)
{
    uint32_t hosts = 1 + sim_random(HOSTS), partition = 64 << sim_random(5);
    job->workers = 1 + sim_random(WORKERS);
    job->servers = sim_random(SERVERS + 1);
    job->operations = 1 + sim_random(OPERATIONS);
    job->window = 1 + sim_random(OPERATIONS);
    job->trouble = job->workers > 1 && sim_chance(50) ? 1 + sim_random(DEVICE_FAILS - 1) : NONE;
    if (wanted >= 0 && wanted != DEVICE_FAILS && job->workers > 1) {
        job->trouble = (enum trouble)wanted;
    }
    if (job->trouble == SERVER_KILLED && job->servers == 0) {
        job->trouble = NONE;
    }
    if (job->trouble == OTHER_ORDER && job->operations < 2) {
        job->operations = 2;
    }
    job->people = job->workers + (job->trouble == ELASTIC);
    if (job->trouble == QUORUM) {
        job->backups = 1 + sim_random(2);
        set(job, "server.quorum", job->backups == 1 ? "n-1" : "n-2");
    }
    job->victim = sim_random(job->trouble == HOST_STARVES ? 1 + job->servers : job->workers);
    job->moment = sim_random(job->operations - (job->trouble == OTHER_ORDER));
    job->when = sim_random(ROUNDS);
    if (job->trouble == STAGE_FAILS || sim_chance(25)) {
        job->stage = FIRST + sim_random(PLACES - FIRST);
        job->partly = sim_chance(50);
    }
    job->coded = job->trouble == CODER_LIES || sim_chance(30);
    if (job->stage != NOWHERE || job->coded) {
        set_graph(job);
    }
    job->lossy = job->coded && job->trouble != QUORUM && sim_chance(60);
    if (job->coded) {
        set(job, "compressors.small",
            job->lossy       ? "{ plugin = \"part\"; feedback = true; }"
            : sim_chance(50) ? "{ plugin = \"whole\"; feedback = true; }"
                             : "{ plugin = \"whole\"; }");
    }
    draw_operations(job);
    draw_devices(job);
    draw_loss(job);
    draw_settings(job, partition);
    draw_processes(job, hosts);
}

static void start_job(struct job *job)
{
    sim_start(&job->scheduler, run_scheduler, job);
    for (uint32_t i = 0; i < job->servers; i++) {
        sim_start(&job->server[i], run_server, job);
    }
    for (uint32_t i = 0; i < job->people; i++) {
        sim_start(&job->worker[i].process, job->trouble == ELASTIC ? elastic_run_worker : run_worker, &job->worker[i]);
    }
    if (job->trouble == SERVER_KILLED) {
        sim_start(&job->scheduler, kill_server, job);
    }
    if (job->trouble == SCHEDULER_KILLED) {
        sim_start(&job->hand, kill_scheduler, job);
    }
    if (job->trouble == COMES) {
        sim_start(&job->hand, bring_server, job);
    }
    if (job->trouble == COMES && job->seed % 4 == 3) {
        sim_start(&job->hand, kill_scheduler, job);
    }
    if (job->trouble == ELASTIC) {
        sim_start(&job->hand, elastic_kill, job);
    }
}

/* What a worker still waits for. */
static void describe_worker(const struct worker *w)
{
    const struct bps_operation *operation;
    printf("  worker %u on host %s%s\n", w->number, w->process.host, w->ended ? ", ended" : "");
    if (w->worker == NULL || w->process.dead) {
        return;
    }
    TAILQ_FOREACH(operation, &w->worker->operations, entry) {
        const struct bps_tensor_entry *tensor = bps_container(operation, const struct bps_tensor_entry, operation);
        printf("    '%s', round %u, id %u: phase %d, %u tasks left\n", tensor->named.name, tensor->round, tensor->id,
               operation->phase, operation->left);
        for (uint32_t i = 0; bps_has_begun(operation) && i < tensor->tasks; i++) {
            const struct bps_task *task = &tensor->task[i];
            printf("      %u: state %u, step %u, failed %d, refused %d\n", i, task->state, task->step, task->failed,
                   task->refused);
        }
    }
}

static void describe(const struct job *job)
{
    printf("seed %lu: %u workers, %u servers, %u operations, trouble: %s (worker %u, operation %u, round %u)\n",
           job->seed, job->workers, job->servers, job->operations, trouble_names[job->trouble], job->victim,
           job->moment, job->when);
    for (uint32_t i = 0; i < job->nset; i++) {
        printf("  %s\n", job->set[i]);
    }
    for (uint32_t i = 0; i < job->operations; i++) {
        const struct operation *o = &job->operation[i];
        printf("  operation %u: %s of", i, o->op == BPS_WIRE_BROADCAST ? "broadcast" : bps_op_name(o->op));
        for (uint32_t round = 0; round < ROUNDS; round++) {
            printf(" %u (rate %g%s)", o->count[round], o->rate[round], o->infinite[round] ? ", infinite" : "");
        }
        printf("%s, root %u, on devices of 0x%x\n", o->unnamed ? " without a name" : "", o->root, o->devices);
    }
    for (uint32_t i = 0; i < job->people; i++) {
        describe_worker(&job->worker[i]);
    }
}

/* The command that repeats a job. */
static const char *again(uint64_t seed, char *text, size_t n)
{
    int length = snprintf(text, n, "tests/simulation/simulate %lu", seed);
    if (wanted >= 0) {
        snprintf(text + length, n - (size_t)length, " 1 %d", wanted);
    }
    return text;
}

/*
 * Of all tensors, if all workers have ended well. Who has pushed another form, or will have another coding, has
 * forgotten its errors.
 */
static void check_balance(struct job *job)
{
    /* Who is killed has lost something, too. */
    bool good = job->lossy && job->trouble != SERVER_KILLED && job->trouble != ELASTIC && job->trouble != COMES;
    for (uint32_t i = 0; i < job->workers; i++) {
        good &= job->worker[i].ended && !job->worker[i].failed && job->worker[i].round == ROUNDS;
    }
    for (uint32_t i = 0; i < job->operations && good; i++) {
        const struct operation *o = &job->operation[i];
        bool forgotten = is_with(job, i) && job->trouble != STAGE_FAILS && job->when > 0;
        if (has_balance(job, o) && !forgotten && !sim_balance_holds(i)) {
            job_blame(job, "error feedback is lost, or applied twice");
        }
    }
}

/* Does not return if something is wrong, and says it. */
static void simulate(uint64_t seed)
{
    struct job *job = __real_calloc(1, sizeof *job);
    job->seed = seed;
    playing = job;
    sim_seed(seed);
    sim_starve(NULL, 0);
    sim_balance_reset();
    draw_job(job);
    start_job(job);
    bool good = sim_run(limit);
    if (!good) {
        job_blame(job, "it does not go on");
        sim_explain();
    }
    for (uint32_t i = 0; i < job->people && good; i++) {
        if (!job->worker[i].ended && !job->worker[i].process.dead) {
            job_blame(job, "a worker has not ended");
        }
    }
    check_balance(job);
    if (job->wrong != NULL) {
        char command[64];
        describe(job);
        printf("  %s; again: %s\n", job->wrong, again(seed, command, sizeof command));
        fflush(stdout);
        _exit(1); /* threads are in the midst of something, of which exit() would tell */
    }
    sim_network_reset();
    sim_engines_reset();
    sim_devices_reset();
    free_memories();
    for (uint32_t i = 0; i < job->operations * ROUNDS; i++) {
        free(job->first[i / ROUNDS][i % ROUNDS]);
    }
    for (uint32_t w = 0; w < job->people; w++) {
        for (uint32_t i = 0; i < job->operations; i++) {
            if (job->worker[w].input[i] != job->worker[w].memory[i]) {
                free(job->worker[w].input[i]);
            }
            free(job->worker[w].memory[i]);
        }
    }
    free(job);
}

/* The seed of a job that ends the program. */
static void on_crash(int number)
{
    char text[128], command[64];
    int n = snprintf(text, sizeof text, "signal %d in the job of seed %lu; again: %s\n", number, playing->seed,
                     again(playing->seed, command, sizeof command));
    ssize_t written = write(STDOUT_FILENO, text, (size_t)n);
    (void)written;
    _exit(1);
}

/* What sanitizers ask: what they find is a crash, too; who is killed leaves its memory. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "abort_on_error=1:detect_leaks=0";
}

__attribute__((visibility("default"))) const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void)
{
    return "abort_on_error=1:print_stacktrace=1";
}

/* Threads have little room: the handler has its own. */
static void catch_crashes(void)
{
    static char stack[65536];
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK};
    sigaltstack(&alternate, NULL);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGABRT, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "-p") == 0) {
        if (!sim_plant(argv[2])) {
            printf("simulate: there is no error '%s' to plant; plant.c has the list\n", argv[2]);
            return 2;
        }
        limit = PLANTED;
        argc -= 2;
        argv += 2;
    }
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    bps_log_set_level(argc > 4 ? BPS_LOG_DEBUG : 0);
    wanted = NONE;
    catch_crashes();
    simulate(0); /* what is made once in a process is there, so that each seed finds the same */
    wanted = argc > 3 ? atoi(argv[3]) % (int)TROUBLES : -1;
    for (uint64_t i = 0; i < count; i++) {
        simulate(seed + i);
    }
    printf("%lu jobs\n", count);
    return 0;
}
