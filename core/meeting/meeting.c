/* SPDX-License-Identifier: Apache-2.0 */
/* meeting.c - which place is taken, and what a note says: "2,ADDRESS,SECRET,JOB"; "-" in the place of
 * what all processes have been given by other means.
 */
#include "meeting/meeting.h"

#include <stdio.h>
#include <string.h>

#include "base/report.h"
#include "base/route.h"

#define GIVEN "-"

/* Who asks for a place has it; who keeps notes comes next: MASTER_ADDR may be set for PyTorch alone. */
bps_status bps_meeting_here(const struct bps_meeting_place **out, struct bps_report *report)
{
    *out = &bps_meeting_file;
    if (bps_meeting_file.is_here()) {
        return BPS_OK;
    }
    bps_status status = bps_meeting_launcher(out, report);
    if (status == BPS_OK && *out == NULL && bps_meeting_master.is_here()) {
        *out = &bps_meeting_master;
    }
    return status;
}

/* ---- without notes ---- */

bps_status bps_meeting_know(const struct bps_meeting_place *place, struct bps_conf *conf, unsigned n,
                            struct bps_report *report)
{
    unsigned port = 0;
    char address[300];
    const char *host = place->direction();
    bool bare = host[0] != '[' && strchr(host, ':') != NULL; /* IPv6 */
    bps_status status = place->port(n, &port, report);
    if (status != BPS_OK) {
        return status;
    }
    snprintf(address, sizeof address, bare ? "[%.255s]:%u" : "%.255s:%u", host, port);
    if (!conf->has_secret && !bps_route_is_loopback(address)) {
        return bps_fail(report, BPS_ERR_CONF,
                        "the scheduler would listen at %s (by %s), where other hosts can reach it, but this job has no "
                        "secret to authenticate its members; give all processes the same " BPS_SECRET_VARIABLE
                        ", such as openssl rand -hex 32 prints (in Kubernetes by secretKeyRef), or a file of it by "
                        "cluster.secret_file; on one host MASTER_ADDR=localhost needs none",
                        address, place->name);
    }
    return bps_conf_put_cluster(conf, "scheduler", address, place->name, report);
}

/* ---- keys ---- */

#define KEY_LIMIT 33u

static void meeting_key_of(unsigned n, char key[KEY_LIMIT])
{
    snprintf(key, KEY_LIMIT, "byteps-%u", n);
}

/* ---- the secret as text ---- */

static void write_secret(const uint8_t secret[BPS_SECRET_BYTES], char *out)
{
    for (size_t i = 0; i < BPS_SECRET_BYTES; i++) {
        snprintf(out + 2 * i, 3, "%02x", secret[i]);
    }
}

static bool read_secret(const char *text, uint8_t secret[BPS_SECRET_BYTES])
{
    if (strlen(text) != 2 * (size_t)BPS_SECRET_BYTES || strspn(text, "0123456789abcdef") != strlen(text)) {
        return false;
    }
    for (size_t i = 0; i < BPS_SECRET_BYTES; i++) {
        unsigned byte;
        sscanf(text + 2 * i, "%2x", &byte);
        secret[i] = (uint8_t)byte;
    }
    return true;
}

/* ---- notes ---- */

bps_status bps_meeting_leave(const struct bps_meeting_place *place, const struct bps_conf *conf, struct bps_given given,
                             unsigned n, uint64_t until, struct bps_report *report)
{
    char key[KEY_LIMIT], note[BPS_NOTE_LIMIT], secret[2 * BPS_SECRET_BYTES + 1] = GIVEN;
    if (!given.secret) {
        write_secret(conf->secret, secret);
    }
    meeting_key_of(n, key);
    snprintf(note, sizeof note, "2,%.128s,%s,%.32s", conf->cluster.scheduler, secret,
             given.job ? GIVEN : conf->cluster.job);
    return place->leave(key, note, until, report);
}

/* The note is the word of another process: nothing of it is believed. */
static bps_status take_note(struct bps_conf *conf, const char *place, const char *note, struct bps_given given,
                            struct bps_report *report)
{
    char address[129], secret[2 * BPS_SECRET_BYTES + 1], job[33], more;
    bool read = sscanf(note, "2,%128[^,],%64[^,],%32[^,]%c", address, secret, job, &more) == 3;
    bool handed = read && strcmp(secret, GIVEN) != 0;
    if (!read || strchr(address, ':') == NULL || (handed && !given.secret && !read_secret(secret, conf->secret))) {
        BPS_REPORT(report,
                   "the note of worker 0 in %s is not of this version of BytePS; install the same version on all hosts",
                   place);
        return BPS_ERR_PROTOCOL;
    }
    if (handed == given.secret) {
        BPS_REPORT(report, "%s has a secret of the job and %s has none; give all of them the same %s, or none",
                   handed ? "this process" : "worker 0", handed ? "worker 0" : "this process", BPS_SECRET_VARIABLE);
        return BPS_ERR_CONF;
    }
    conf->has_secret = true;
    bps_status status =
        strcmp(job, GIVEN) != 0 && !given.job ? bps_conf_put_cluster(conf, "job", job, place, report) : BPS_OK;
    return status == BPS_OK ? bps_conf_put_cluster(conf, "scheduler", address, place, report) : status;
}

bps_status bps_meeting_find(const struct bps_meeting_place *place, struct bps_conf *conf, struct bps_given given,
                            unsigned n, uint64_t until, struct bps_report *report)
{
    char key[KEY_LIMIT], note[BPS_NOTE_LIMIT];
    meeting_key_of(n, key);
    bps_status status = place->find(key, note, until, report);
    return status == BPS_OK ? take_note(conf, place->name, note, given, report) : status;
}
