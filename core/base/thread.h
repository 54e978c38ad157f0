/* SPDX-License-Identifier: Apache-2.0 */
/* thread.h - threads of the library within an application, which keeps the signals. */
#ifndef BPS_BASE_THREAD_H
#define BPS_BASE_THREAD_H

#include <byteps/plugin.h> /* struct bps_report */
#include <pthread.h>
#include <signal.h>
#include <string.h>

/*
 * The name has at most 15 letters. Signals are blocked from the beginning, as a thread inherits that; but those of its
 * own faults are not: they could not be handled.
 */
static inline bps_status bps_thread_start(pthread_t *out, const char *name, void *(*run)(void *), void *arg,
                                          struct bps_report *report)
{
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(out, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error != 0) {
        BPS_REPORT(report, "cannot start a thread: %s", strerror(error));
        return BPS_ERR_IO;
    }
    pthread_setname_np(*out, name);
    return BPS_OK;
}

#endif
