/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meeting.h - how the processes that a launcher has started find each other: the first one hosts the scheduler and
 * leaves a note where the launcher keeps such things; the others read it. The note has the scheduler's address and the
 * secret of the job. Where there are no notes, all know the address beforehand.
 *
 * What is known of one launcher is a plugin (byteps/launcher.h); a shared file and MASTER_ADDR are of none.
 */
#ifndef BPS_MEETING_MEETING_H
#define BPS_MEETING_MEETING_H

#include <byteps/launcher.h>

#include "conf/conf.h"

#define BPS_NOTE_LIMIT BPS_LAUNCHER_NOTE_BYTES

/*
 * Where processes meet. The functions may block until `until` (bps_now()) and then answer BPS_ERR_TIMEOUT; the report
 * says what they have waited for. `key` is a word of at most 32 letters that differs for each job of these processes; a
 * note has no spaces.
 */
struct bps_meeting_place {
    const char *name; /* "the store of torchrun" */
    /* Whether the environment of this process tells of it. */
    bool (*is_here)(void);
    /* A name or number in whose direction the others are, for the choice of an own address. Optional; NULL: unknown. */
    const char *(*direction)(void);
    /* Only where there are no notes: the port of the n-th job's scheduler, on the host that direction() names. */
    bps_status (*port)(unsigned n, unsigned *port, struct bps_report *report);
    bps_status (*leave)(const char *key, const char *note, uint64_t until, struct bps_report *report);
    /* The job of the note is over. Optional. */
    void (*end)(void);
    /* Waits for the note. Can be called again: the note may be another one then. */
    bps_status (*find)(const char *key, char note[BPS_NOTE_LIMIT], uint64_t until, struct bps_report *report);
};

extern const struct bps_meeting_place bps_meeting_file, bps_meeting_master;

/*
 * The place of the launcher of this process, whose plugin is open from then on until end(), which must be called; NULL:
 * there is none. An error is that of the plugin.
 */
bps_status bps_meeting_launcher(const struct bps_meeting_place **out, struct bps_report *report);
/* In a child of fork(): what the launcher has opened is closed. */
void bps_meeting_in_child(void);

/* *out NULL: there is none. Where there is one, its end() is to be called. */
bps_status bps_meeting_here(const struct bps_meeting_place **out, struct bps_report *report);

/*
 * Sets cluster.scheduler where there are no notes. BPS_ERR_CONF: other hosts are to come there, but there is no secret.
 */
bps_status bps_meeting_know(const struct bps_meeting_place *place, struct bps_conf *conf, unsigned n,
                            struct bps_report *report);
/* What this process has been given by other means than a note. */
struct bps_given {
    bool secret, job; /* cluster.job */
};

/*
 * Leaves a note of cluster.scheduler, and of the secret and cluster.job unless they are given, for the n-th job of
 * these processes. BPS_ERR_CONF: another job is using that place.
 */
bps_status bps_meeting_leave(const struct bps_meeting_place *place, const struct bps_conf *conf, struct bps_given given,
                             unsigned n, uint64_t until, struct bps_report *report);
/*
 * Reads it, and sets cluster.scheduler, and the secret and cluster.job unless they are given. BPS_ERR_CONF: the first
 * process has been given a secret and this one has not, or the other way round.
 */
bps_status bps_meeting_find(const struct bps_meeting_place *place, struct bps_conf *conf, struct bps_given given,
                            unsigned n, uint64_t until, struct bps_report *report);

#endif
