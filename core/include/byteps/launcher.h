/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launcher.h - the interface for launchers: where the processes meet that another program has started, such as mpirun.
 *
 * Worker 0 hosts the scheduler and leaves a note of it where the launcher keeps such things for its processes; the
 * others find it there. The note has the secret of the job: none but the processes of this user must be able to read
 * it. Its contents are the core's affair, and so is what a foreign one can do.
 *
 * Launchers are looked for only in a process that knows that it is one of several, by WORLD_SIZE and RANK or what
 * mpirun and srun set, and that has no cluster.scheduler: not in one of `byteps run`, and not in one that is alone. Of
 * those that recognise their variables the one with the least `order` is taken. BYTEPS_MEETING_FILE comes before all of
 * them, and MASTER_ADDR with MASTER_PORT after them.
 *
 * Options: the configuration does not name launchers, so that they have none; what they need is in the environment.
 * State: a process belongs to its launcher once, so what it needs only once may lie in static memory. At most
 * one instance is open at a time, from before the note is left or found until the job is over.
 * Threads: one call at a time, from any thread; in_child excepted. There is no event loop.
 * Blocking: leave and find may block until `until`, which is a time of CLOCK_MONOTONIC in nanoseconds.
 * Memory: key and note are there during the call.
 */
#ifndef BYTEPS_LAUNCHER_H
#define BYTEPS_LAUNCHER_H

#include <byteps/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BPS_LAUNCHER_NOTE_BYTES 256u /* that a note has at most, with the zero at its end; it has no spaces */
#define BPS_LAUNCHER_KEY_BYTES  33u  /* likewise of a key, which is a word and differs for each job of a process */

/*
 * ELF note "BytePS" of type BPS_NOTE_LAUNCHER, beside that of the plugin: a variable without which the launcher is not
 * there. The file is opened only where one of its notes names a variable that is set, or where it has no such note.
 */
#define BPS_NOTE_LAUNCHER 3u
struct bps_launcher_note {
    uint32_t namesz, descsz, type;
    char owner[8]; /* "BytePS" */
    struct bps_launcher_note_body {
        char variable[64]; /* "PMI_FD" */
    } body;
};

/* Put it once at file scope for each variable: BPS_LAUNCHER_NOTE("PMI_FD"); */
#define BPS_LAUNCHER_NOTE(variable_) BPS_NOTE(struct bps_launcher_note, BPS_NOTE_LAUNCHER, variable_)

struct bps_launcher_ops {
    size_t size;
    bps_status (*open)(const struct bps_host *host, const void *options, void **instance_out,
                       struct bps_report *report);
    /* The job is over, or has not come about: nothing is handed out any more. */
    void (*close)(void *instance);
    /* The least one is asked first: 100 the store of torchrun, 200 PMIx, 300 PMI, 400 Slurm. */
    uint32_t order;
    const char *place; /* for messages: "the store of torchrun"; static */
    /* Whether the environment shows it. Called before open, maybe in a process of another launcher: it is cheap. */
    bool (*recognise)(void);
    /*
     * Worker 0: leaves the note for all with the key. BPS_ERR_TIMEOUT: it could not until then; the report has
     * what it has waited for. Another error ends the attempt.
     */
    bps_status (*leave)(void *instance, const char *key, const char *note, uint64_t until, struct bps_report *report);
    /*
     * The others: waits for the note, and writes it to note[BPS_LAUNCHER_NOTE_BYTES]. BPS_ERR_TIMEOUT as above; then,
     * and where nobody answers at the address of the note, it is called again: the note may be another one now.
     */
    bps_status (*find)(void *instance, const char *key, char *note, uint64_t until, struct bps_report *report);
    /*
     * Optional: a name or number in whose direction the others are, by which worker 0 chooses which of its addresses
     * they are told; valid until close. NULL: unknown.
     */
    const char *(*direction)(void *instance);
    /*
     * Optional: this process is a child of fork(), which is not in the job; close what is open here. Nothing else may
     * be called that fork(2) forbids in a child of several threads. No other function follows, not even close.
     */
    void (*in_child)(void *instance);
};

#ifdef __cplusplus
}
#endif
#endif
