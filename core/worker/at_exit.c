/* SPDX-License-Identifier: Apache-2.0 */
/* at_exit.c - see at_exit.h. */
#include "worker/at_exit.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/loop.h"

#define LOOPS    64u /* far more than a worker and its shards have */
#define PATIENCE 1   /* s, for a loop that does not come round: the process ends all the same */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pid_t process;
    bool halted;
    uint32_t asked, parked;
    struct bps_post post[LOOPS];
} halt = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* On the thread of a loop. */
static void park(struct bps_post *post)
{
    (void)post;
    pthread_mutex_lock(&halt.lock);
    halt.parked++;
    pthread_cond_broadcast(&halt.changed);
    while (halt.halted) {
        pthread_cond_wait(&halt.changed, &halt.lock);
    }
    pthread_mutex_unlock(&halt.lock);
}

static void ask_to_park(void *none, const struct bps_loop_look *look)
{
    (void)none;
    if (halt.asked < LOOPS) {
        struct bps_post *post = &halt.post[halt.asked++];
        post->fn = park;
        bps_loop_post(look->loop, post);
    }
}

static void halt_loops(void)
{
    struct timespec end;
    if (halt.process != getpid()) {
        return; /* a child has no such threads */
    }
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE;
    pthread_mutex_lock(&halt.lock);
    halt.halted = true;
    pthread_mutex_unlock(&halt.lock);
    bps_loops_look(ask_to_park, NULL);
    pthread_mutex_lock(&halt.lock);
    while (halt.parked < halt.asked && pthread_cond_timedwait(&halt.changed, &halt.lock, &end) == 0) {
    }
    pthread_mutex_unlock(&halt.lock);
}

static void register_halt(void)
{
    halt.process = getpid();
    /* OpenSSL's own handler is registered before ours and runs after it, or not at all: it would free under us. */
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    atexit(halt_loops);
}

void bps_halt_loops_at_exit(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_halt);
}

void bps_resume_loops(void)
{
    pthread_mutex_lock(&halt.lock);
    halt.halted = false;
    pthread_cond_broadcast(&halt.changed);
    pthread_mutex_unlock(&halt.lock);
}
