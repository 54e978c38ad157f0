/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulation.h - whole jobs in one thread: threads that take turns by a seed, a network of queues, a clock that jumps.
 *
 * The code under test is that of the library as it is. The linker gives it other functions for what it takes from the
 * system (threads, semaphores, futexes, epoll, the clock, the host's name): green.c. What a seed has shown once, it
 * shows again.
 */
#ifndef SIMULATION_H
#define SIMULATION_H

#include <stdbool.h>
#include <stdint.h>

#include <byteps/plugin.h>

/* What is drawn from now on follows from this. */
void sim_seed(uint64_t seed);
/* A number below n, by the seed. */
uint32_t sim_random(uint32_t n);
/* True in n percent of the cases. */
bool sim_chance(uint32_t percent);

/* ---- green.c: threads and time ---- */

/* A process on a host: threads that it starts belong to it. The names are the caller's. */
struct sim_process {
    const char *name, *host;
    bool dead;
};

/* Starts a thread of a process. */
void sim_start(struct sim_process *process, void (*fn)(void *arg), void *arg);
/* Lets all threads take turns until they have ended. False: none of them can go on, or they take too long. */
bool sim_run(uint64_t limit_ns);
/* The process whose thread is running. */
struct sim_process *sim_self(void);
/* The running thread sleeps. */
void sim_sleep(uint64_t ns);
/*
 * Ends a process at once: its threads never run again, its channels end. If it is the caller's, this does not return.
 */
void sim_kill(struct sim_process *process);
/* What each thread that has not ended waits for. */
void sim_explain(void);

/*
 * The n-th allocation of a process from now on fails, and no other one. NULL: none does. What the simulation itself
 * needs is not counted: it calls __real_calloc().
 */
void sim_starve(const struct sim_process *process, uint32_t n);
void *__real_calloc(size_t n, size_t size);

/* ---- network.c ---- */

extern const struct bps_module sim_network;
/* The channels of a process end, as its peers see it. */
void sim_disconnect(const struct sim_process *process);
/* To how many others something that a process has sent is under way. */
uint32_t sim_sending(const struct sim_process *process);
/* Some of the last messages that a process has sent by copies do not arrive, as if its host had died with it. */
void sim_lose_sent(const struct sim_process *process);
/* Forgets what a job has left. */
void sim_network_reset(void);

/* ---- stage.c ---- */

/* The stage "double". It asks: whether it fails on this partition of a tensor, in this process. */
extern const struct bps_module sim_stages;
bool sim_stage_fails(const struct sim_process *process, const char *tensor, uint32_t partition);

/* ---- compressor.c ---- */

/* The compressors "whole" and "part". They ask: whether this process codes what nobody can decode. */
extern const struct bps_module sim_compressors;
bool sim_coder_lies(void);

/* ---- device.c, device_group.c ---- */

/*
 * The reducer "device". It asks, of the device of a process: whether what it is about to do fails, whether it does not
 * join a group, whether it is another one's, too.
 */
extern const struct bps_module sim_devices;
bool sim_device_fails(const struct sim_process *process);
bool sim_device_joins_not(const struct sim_process *process);
bool sim_device_is_shared(const struct sim_process *process);
/* It tells: something that was not to be. */
/* A worker has got a slice of a result; perhaps others have not. */
void sim_result_came(void);
void sim_blame(const char *what);
/* The stream of the running process writes this to memory of its device, when it comes to it. */
void sim_device_write(void *to, const void *from, size_t bytes);
/* Returns when the stream has done all that it was given. False: the device has failed. */
bool sim_device_finish(void);
/* Forgets what a job has left. */
void sim_devices_reset(void);

/* ---- balance.c ---- */

#define SIM_OPERATIONS 24u
#define SIM_ROUNDS     3u
#define SIM_ELEMENTS   1024u /* of a tensor, at most */

/* What all workers know of an operation in a round. */
struct sim_round {
    uint32_t count;
    double scale;   /* by a stage before it is pushed */
    double divisor; /* of the sum */
    double rate;    /* the learning rate; 0: not told */
};

struct bps_worker;
struct bps_tensor_entry;
/* Forgets what it knows of a job. */
void sim_balance_reset(void);
/* A worker is going to push that. */
void sim_balance_pushed(uint32_t number, uint32_t round, const struct sim_round *what, const float *x);
/* A worker has its result. */
void sim_balance_ended(uint32_t number, uint32_t round);
/* It asks: the round of a worker. */
uint32_t sim_round_now(const struct bps_worker *worker);
/* A worker that has ended its rounds has saved what coding has left of a tensor. */
void sim_balance_saved(const struct bps_tensor_entry *tensor, const void *state, size_t bytes);
/* Whether what was pushed of an operation is in results or errors, after its rounds. False: says where it is not. */
bool sim_balance_holds(uint32_t number);

/* ---- plant.c ---- */

/* Plants an error. False: none has this name. */
bool sim_plant(const char *name);
/* Whether one is planted: marks are reached before their time. */
bool sim_marks_early(void);

/* ---- engines.c ---- */

/* Ends the program if a block of a pool is out that nothing is known to hold. */
struct bps_pool;
void sim_check_pool(const struct bps_pool *pool);

/* Forgets the blocks of engines that have not been freed: of processes that were killed. */
void sim_engines_reset(void);

#endif
