/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - a random job: what is drawn of it, how far its workers have got, and what kinds of jobs have in common. */
#ifndef JOB_H
#define JOB_H

#include "conf/conf.h"
#include "simulation.h"
#include "worker/worker.h"

#define WORKERS     6u
#define SERVERS     2u
#define SCHEDULERS  3u /* that take the place of one that was killed, one after the other, at most */
#define HOSTS       3u
#define OPERATIONS  SIM_OPERATIONS
#define ROUNDS      SIM_ROUNDS
#define SETTINGS    24u
#define GENERATIONS 64u /* of an elastic job, that are told apart */

enum trouble {
    NONE,
    KILLED,
    LEAVES,
    OTHER_SIZE,
    SERVER_KILLED,
    STARVES,
    OTHER_TYPE,
    OTHER_OP,
    OTHER_ROOT,
    OTHER_ORDER,
    STAGE_FAILS,
    HOST_STARVES,
    OTHER_CODING,
    CODER_LIES,
    DEVICE_FAILS, /* of jobs with devices alone */
    SCHEDULER_KILLED,
    ELASTIC,
    QUORUM, /* no trouble: rounds end without the slowest */
    COMES,
    TROUBLES
};

/* Where the stage is in the graph. */
enum place { NOWHERE, FIRST, BEFORE, BEHIND, LAST, PLACES };

struct operation {
    uint32_t op, root, count[ROUNDS];
    int32_t priority;
    bool unnamed;
    uint32_t devices;      /* workers whose tensor lies on a device, a bit each */
    double rate[ROUNDS];   /* the learning rate */
    bool infinite[ROUNDS]; /* an element of the last worker's is, if the job is lossy */
};

struct worker {
    struct sim_process process;
    struct job *job;
    uint32_t number, round;
    bool failed, leaves, ended;
    struct bps_worker *worker;                     /* NULL: not joined, or left */
    float *memory[OPERATIONS], *input[OPERATIONS]; /* may be the same */
    bool has_device, joins_not;
    /* Of an elastic job: */
    int32_t place;                     /* its rank, now or before; -1: none yet */
    uint32_t done[OPERATIONS][ROUNDS]; /* the generation in which it has got the result; 0: not yet */
    bool trained, reforms, finished;   /* it was in a generation, is to reform, or has left with all results */
};

/* The workers of a generation, in the order of their ranks. */
struct members {
    uint32_t size, number[WORKERS + 1];
};

struct job {
    uint64_t seed;
    uint32_t workers, servers, operations, window;
    uint32_t backups; /* workers that rounds may end without */
    uint32_t people;  /* workers, with who comes later */
    enum trouble trouble;
    uint32_t victim, moment, when; /* whose, at which operation, and in which round */
    enum place stage;
    bool partly;       /* only the first partition fails there */
    bool coded, lossy; /* on the network, and so that not all of a round is in its result */
    bool devices, shared_device;
    float *first[OPERATIONS][ROUNDS];      /* the result of the worker that had it first; NULL: none has */
    uint32_t first_in[OPERATIONS][ROUNDS]; /* the generation of that worker */
    struct members members[GENERATIONS];
    struct operation operation[OPERATIONS];
    struct worker worker[WORKERS + 1]; /* one comes later, to an elastic job */
    struct sim_process scheduler, another[SCHEDULERS], hand, server[SERVERS], comer;
    bool any_left;   /* before the scheduler was killed, and the next one is not told */
    uint32_t let_go; /* workers, by the scheduler: a bit each */
    char settings[SETTINGS][400];
    const char *set[SETTINGS];
    uint32_t nset;
    char address[64];
    uint32_t results_left; /* slices, until a server is killed */
    bool retires;          /* shards have been taken away */
    bool last_killed;      /* no shards are left */
    uint32_t servers_killed;
    bool colocated;    /* workers have shards */
    const char *wrong; /* what should not have been */
};

/* ---- simulate.c ---- */

struct flight {
    bps_handle handle;
    uint32_t number;
};

/* What should not have been; the first is said. */
void job_blame(struct job *job, const char *what);
/* NULL: not of a worker. */
struct bps_conf *job_configure(const struct job *job, const char *role, const struct worker *w);
/*
 * The order of this worker. All have the same of those without names; and of all, where some have to end before others
 * begin.
 */
void job_shuffle(const struct job *job, uint32_t *order);
bps_status job_start(struct bps_worker *worker, struct worker *w, uint32_t number, struct flight *flight);
/* A worker has joined: it is one of the members of its generation. */
void job_note_member(const struct worker *w);
/* Looks at a result that a worker has got. */
void job_check_result(struct worker *w, const struct flight *flight);
/* Nothing is under way: what was lent, queued, or sent on credit has come back. */
void job_check_idle(struct job *job, const struct bps_worker *worker);

/* Workers, servers or the scheduler may end, and with them the job. */
bool job_may_end(const struct job *job);

/* ---- collectives.c ---- */

/* Whether workers make process groups, which no shards may be taken from. */
bool collectives_in_groups(const struct job *job);
/* Some operations of blocks. False: the job has ended. */
bool collectives_run(struct worker *w);

/* ---- elastic.c ---- */

void elastic_run_worker(void *arg);
/* Members are lost, one after the other. */
void elastic_kill(void *arg);
/* Now: a worker, and perhaps a server with it. */
void elastic_kill_some(struct job *job);

#endif
