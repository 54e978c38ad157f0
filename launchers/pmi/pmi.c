/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pmi.c - PMI-1, which the launchers of MPICH speak with each process through the descriptor PMI_FD: worker 0 puts the
 * note, all of them pass a barrier, then each can get it.
 *
 * A line is "cmd=NAME KEY=VALUE ...\n", where values have no spaces; each is answered by one. MPI, if the program uses
 * it, goes on with the same descriptor. Whoever ends without cmd=finalize takes the others with it.
 */
#include "util/util.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_LIMIT 1024u

/* The meeting that is under way, as its barrier may outlast one call. */
static struct {
    char key[128];
    char space[BPS_LAUNCHER_NOTE_BYTES]; /* in which all processes put and get */
    bool entered, passed;                /* the barrier */
    pid_t begun;                         /* the process that has said cmd=init; 0: none */
    ino_t socket;                        /* what its descriptor is */
} meeting;

/* Of PMI_FD; -1: none. */
static int descriptor(void)
{
    const char *text = getenv("PMI_FD");
    char *end;
    long fd = text != NULL && *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;
    return fd >= 0 && fd <= 1 << 20 && *end == '\0' ? (int)fd : -1;
}

/* That of srun --mpi=pmi2 is left to MPI, as it begins only once. */
static bool recognise(void)
{
    const char *slurm = getenv("SLURM_MPI_TYPE");
    int fd = slurm == NULL || strcmp(slurm, "pmi2") != 0 ? descriptor() : -1;
    return fd >= 0 && fcntl(fd, F_GETFD) >= 0;
}

/* ---- lines ---- */

static bps_status say(const char *line, struct bps_report *report)
{
    size_t length = strlen(line);
    for (size_t said = 0; said < length;) {
        ssize_t n = write(descriptor(), line + said, length - said);
        if (n < 0 && errno != EINTR) {
            return launcher_fail(report, BPS_ERR_IO, "PMI_FD: %s", strerror(errno));
        }
        said += n > 0 ? (size_t)n : 0;
    }
    return BPS_OK;
}

/* Byte by byte: what follows the line is for others, such as MPI. */
static bps_status hear(char line[LINE_LIMIT], uint64_t until, struct bps_report *report)
{
    struct pollfd ready = {.fd = descriptor(), .events = POLLIN};
    uint64_t now;
    for (size_t used = 0; used < LINE_LIMIT && (now = launcher_now()) < until;) {
        if (poll(&ready, 1, (int)((until - now) / LAUNCHER_MS) + 1) <= 0) {
            continue;
        }
        ssize_t n = read(descriptor(), line + used, 1);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return launcher_fail(report, BPS_ERR_IO, "PMI_FD: %s",
                                 n == 0 ? "mpirun has closed the connection" : strerror(errno));
        }
        if (n > 0 && line[used] == '\n') {
            line[used] = '\0';
            return BPS_OK;
        }
        used += n > 0 ? 1 : 0;
        if (used == LINE_LIMIT) {
            return launcher_fail(report, BPS_ERR_PROTOCOL, "PMI_FD: a line of more than %u bytes", LINE_LIMIT - 1);
        }
    }
    return launcher_fail(report, BPS_ERR_TIMEOUT, "not all processes of mpirun have called bps_init() yet");
}

/* The value of "KEY=" in a line, without what follows. False: it is not there, or longer. */
static bool value_of(const char *line, const char *key, char *out, size_t room)
{
    size_t length = strlen(key);
    for (const char *word = line; word != NULL; word = strchr(word, ' ')) {
        word += strspn(word, " ");
        if (strncmp(word, key, length) == 0 && word[length] == '=') {
            const char *value = word + length + 1;
            size_t n = strcspn(value, " ");
            bool fits = n < room;
            memcpy(out, value, fits ? n : 0);
            out[fits ? n : 0] = '\0';
            return fits;
        }
    }
    return false;
}

/* An answer that has another name, or a result that is not 0, is a refusal. */
static bps_status expect(char line[LINE_LIMIT], const char *name, uint64_t until, struct bps_report *report)
{
    char command[64], result[16] = "0";
    bps_status status = hear(line, until, report);
    if (status == BPS_OK && (!value_of(line, "cmd", command, sizeof command) || strcmp(command, name) != 0 ||
                             (value_of(line, "rc", result, sizeof result) && strcmp(result, "0") != 0))) {
        status = launcher_fail(report, BPS_ERR_PROTOCOL, "PMI_FD: expected cmd=%s rc=0, found %.200s", name, line);
    }
    return status;
}

static bps_status ask(const char *question, const char *name, char line[LINE_LIMIT], uint64_t until,
                      struct bps_report *report)
{
    bps_status status = say(question, report);
    return status == BPS_OK ? expect(line, name, until, report) : status;
}

/* ---- the place ---- */

static ino_t socket_of(int fd)
{
    struct stat about;
    return fstat(fd, &about) == 0 ? about.st_ino : 0;
}

/*
 * When the process ends, unless MPI has said it, which closes the descriptor. Where the processes have not met, it is
 * right that the others are ended.
 */
static void end(void)
{
    char line[LINE_LIMIT];
    if (meeting.begun == getpid() && meeting.passed && socket_of(descriptor()) == meeting.socket) {
        (void)ask("cmd=finalize\n", "finalize_ack", line, launcher_now() + LAUNCHER_S, NULL);
    }
}

/* Once for a process. */
static bps_status introduce(uint64_t until, struct bps_report *report)
{
    char line[LINE_LIMIT];
    bps_status status = ask("cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init", line, until, report);
    if (status == BPS_OK) {
        meeting.begun = getpid();
        meeting.socket = socket_of(descriptor());
        atexit(end);
        status = ask("cmd=get_my_kvsname\n", "my_kvsname", line, until, report);
    }
    if (status == BPS_OK && !value_of(line, "kvsname", meeting.space, sizeof meeting.space)) {
        status = launcher_fail(report, BPS_ERR_PROTOCOL, "PMI_FD: no kvsname in %.200s", line);
    }
    return status;
}

static bps_status begin(const char *key, uint64_t until, struct bps_report *report)
{
    bps_status status = meeting.space[0] != '\0' ? BPS_OK : introduce(until, report);
    if (status == BPS_OK && strcmp(meeting.key, key) != 0) {
        snprintf(meeting.key, sizeof meeting.key, "%s", key);
        meeting.entered = meeting.passed = false;
    }
    return status;
}

static bps_status pass_barrier(uint64_t until, struct bps_report *report)
{
    char line[LINE_LIMIT];
    bps_status status = meeting.entered ? BPS_OK : say("cmd=barrier_in\n", report);
    meeting.entered = true;
    if (status == BPS_OK && !meeting.passed) {
        status = expect(line, "barrier_out", until, report);
        meeting.passed = status == BPS_OK;
    }
    return status;
}

static bps_status leave(void *instance, const char *key, const char *note, uint64_t until, struct bps_report *report)
{
    (void)instance;
    char question[LINE_LIMIT], line[LINE_LIMIT];
    bps_status status = begin(key, until, report);
    if (status == BPS_OK) {
        snprintf(question, sizeof question, "cmd=put kvsname=%s key=%.64s value=%.255s\n", meeting.space, key, note);
        status = ask(question, "put_result", line, until, report);
    }
    return status == BPS_OK ? pass_barrier(until, report) : status;
}

static bps_status find(void *instance, const char *key, char *note, uint64_t until, struct bps_report *report)
{
    (void)instance;
    char question[LINE_LIMIT], line[LINE_LIMIT];
    bps_status status = begin(key, until, report);
    if (status == BPS_OK) {
        status = pass_barrier(until, report);
    }
    if (status == BPS_OK) {
        snprintf(question, sizeof question, "cmd=get kvsname=%s key=%.64s\n", meeting.space, key);
        status = ask(question, "get_result", line, until, report);
    }
    if (status == BPS_OK && !value_of(line, "value", note, BPS_LAUNCHER_NOTE_BYTES)) {
        status = launcher_fail(report, BPS_ERR_PROTOCOL, "PMI_FD: no value in %.200s", line);
    }
    return status;
}

static const struct bps_launcher_ops ops = {
    .size = sizeof ops,
    .open = launcher_open_nothing,
    .close = launcher_close_nothing,
    .order = 300,
    .place = "PMI",
    .recognise = recognise,
    .leave = leave,
    .find = find,
};

BPS_LAUNCHER_NOTE("PMI_FD");
BPS_PLUGIN_MODULE(BPS_KIND_LAUNCHER, "pmi", PLUGIN_VERSION, "Apache-2.0",
                  .summary = "PMI-1, of the launchers of MPICH and its relatives", .ops = &ops, .format = 1);
