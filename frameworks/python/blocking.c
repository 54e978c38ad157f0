/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocking.c - calls that may block for long, such as joining a job.
 *
 * Python handles signals only between its own instructions. So the call runs on a thread of its own, and
 * the Python thread that made it wakes from time to time to look for signals.
 */
#include "python.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

struct call {
    pthread_t thread;
    pthread_mutex_t lock; /* guards over and forsaken */
    pthread_cond_t ended;
    bool over;
    bool forsaken; /* nobody waits any more: the thread frees the call */
    python_blocking_fn fn;
    void *arg;
    void (*release)(void *arg);
    bps_status status;
    struct bps_report report;
};

static struct call *call_new(python_blocking_fn fn, void *arg, void (*release)(void *arg))
{
    struct call *call = calloc(1, sizeof(*call));
    pthread_condattr_t attr;

    if (call == NULL)
        return NULL;
    call->fn = fn;
    call->arg = arg;
    call->release = release;
    pthread_mutex_init(&call->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&call->ended, &attr);
    pthread_condattr_destroy(&attr);
    return call;
}

static void call_free(struct call *call)
{
    if (call->release != NULL)
        call->release(call->arg);
    pthread_cond_destroy(&call->ended);
    pthread_mutex_destroy(&call->lock);
    free(call);
}

static void *call_main(void *arg)
{
    struct call *call = arg;
    bool forsaken;

    call->status = call->fn(call->arg, &call->report);
    pthread_mutex_lock(&call->lock);
    call->over = true;
    forsaken = call->forsaken;
    pthread_cond_signal(&call->ended);
    pthread_mutex_unlock(&call->lock);
    if (forsaken)
        call_free(call);
    return NULL;
}

/* The thread must not take the signals that Python waits for. */
static int call_start(struct call *call)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&call->thread, NULL, call_main, call);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Sleeps until the call is over, at most one period. */
static bool call_sleep(struct call *call)
{
    struct timespec until;
    bool over;
    int error = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)PYTHON_SIGNAL_PERIOD_NS;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_mutex_lock(&call->lock);
    while (!call->over && error == 0)
        error = pthread_cond_timedwait(&call->ended, &call->lock, &until);
    over = call->over;
    pthread_mutex_unlock(&call->lock);
    return over;
}

/* Gives the call up after a signal; if it is over after all, frees it. */
static void call_forsake(struct call *call)
{
    bool over;

    pthread_mutex_lock(&call->lock);
    over = call->over;
    call->forsaken = !over;
    if (!over)
        pthread_detach(call->thread);
    pthread_mutex_unlock(&call->lock);
    if (over) {
        pthread_join(call->thread, NULL);
        call_free(call);
    }
}

static PyObject *call_result(struct call *call)
{
    PyObject *result = NULL;

    pthread_join(call->thread, NULL);
    if (call->status < 0) {
        python_raise(call->status, call->report.text);
    } else {
        result = Py_None;
        Py_INCREF(result);
    }
    call_free(call);
    return result;
}

PyObject *python_blocking_call(python_blocking_fn fn, void *arg, void (*release)(void *arg))
{
    struct call *call = call_new(fn, arg, release);
    int error;
    bool over;

    if (call == NULL) {
        if (release != NULL)
            release(arg);
        return PyErr_NoMemory();
    }
    error = call_start(call);
    if (error != 0) {
        errno = error;
        PyErr_SetFromErrno(PyExc_OSError);
        call_free(call);
        return NULL;
    }
    do {
        Py_BEGIN_ALLOW_THREADS over = call_sleep(call);
        Py_END_ALLOW_THREADS if (!over && PyErr_CheckSignals() != 0)
        {
            call_forsake(call);
            return NULL;
        }
    } while (!over);
    return call_result(call);
}
