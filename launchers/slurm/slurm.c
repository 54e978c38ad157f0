/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slurm.c - tasks of srun, which by itself keeps nothing for them: task 0 hands the note to whoever connects to one of
 * a few ports that follow from the number of the step, sealed by MUNGE so that only processes of the same user on the
 * nodes of the cluster can read it. What another one sends there is found out in the same way.
 *
 * MUNGE is what Slurm itself has between its nodes; its library is found at run time.
 */
#include "util/util.h"

#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/stream.h"

#define LIBRARY    "libmunge.so.2"
#define ONLY_USER  9      /* MUNGE_OPT_UID_RESTRICTION */
#define FIRST_PORT 23000u /* below those that systems hand out by themselves */
#define PORTS      8192u
#define TRIES      8u /* ports that are looked at: another step or program may have one */
#define RETRY_MS   100
#define ANSWER_NS  (2 * LAUNCHER_S) /* of a port that may be another program's */
#define SEAL_LIMIT 4096u
#define TEXT_LIMIT (BPS_LAUNCHER_NOTE_BYTES + 128)

static struct {
    void *(*context)(void);
    void (*release)(void *context);
    int (*set)(void *context, int option, ...);
    int (*encode)(char **seal, void *context, const void *data, int n);
    int (*decode)(const char *seal, void *context, void **data, int *n, uid_t *uid, gid_t *gid);
    const char *(*text)(int error);
} munge;

/* What task 0 hands out. */
static struct {
    int fd; /* listens; -1: nothing */
    pthread_t thread;
    char text[TEXT_LIMIT];
} counter = {.fd = -1};

/* What listens is the parent's, and its port free when that has ended. */
static void in_child(void *instance)
{
    (void)instance;
    if (counter.fd >= 0) {
        close(counter.fd);
        counter.fd = -1;
    }
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL ? value : "";
}

static const char *nodes(void)
{
    const char *first_group = getenv("SLURM_JOB_NODELIST_HET_GROUP_0");
    return first_group != NULL ? first_group : variable("SLURM_STEP_NODELIST");
}

static bool recognise(void)
{
    return *variable("SLURM_JOB_ID") != '\0' && *variable("SLURM_STEP_ID") != '\0' && *nodes() != '\0';
}

static const char *direction(void *instance)
{
    (void)instance;
    return getenv("SLURM_LAUNCH_NODE_IPADDR");
}

/* ---- where ---- */

/* The first of "a[3-5,9]-x[0-1],b": "a3-x0". */
static void first_node(char *out, size_t room)
{
    size_t used = 0;
    for (const char *c = nodes(); *c != '\0' && *c != ',' && used + 1 < room; c++) {
        if (*c != '[') {
            out[used++] = *c;
            continue;
        }
        for (c++; *c >= '0' && *c <= '9' && used + 1 < room; c++) {
            out[used++] = *c;
        }
        c += strcspn(c, "]");
        if (*c == '\0') {
            break;
        }
    }
    out[used] = '\0';
}

static unsigned port_of(unsigned try)
{
    unsigned job = (unsigned)strtoul(variable("SLURM_JOB_ID"), NULL, 10);
    unsigned step = (unsigned)strtoul(variable("SLURM_STEP_ID"), NULL, 10);
    return FIRST_PORT + (job * TRIES + step + try) % PORTS;
}

/* The note of one job of one step in one attempt. */
static void full_text(const char *key, const char *note, char text[TEXT_LIMIT])
{
    const char *job = getenv("SLURM_HET_JOB_ID");
    snprintf(text, TEXT_LIMIT, "%.33s/%.20s/%.20s/%.20s %.255s", key, job != NULL ? job : variable("SLURM_JOB_ID"),
             variable("SLURM_STEP_ID"), variable("SLURM_RESTART_COUNT"), note);
}

/* ---- seals ---- */

static bps_status load(struct bps_report *report)
{
    const struct {
        const char *name;
        void *place;
    } symbols[] = {{"munge_ctx_create", &munge.context}, {"munge_ctx_destroy", &munge.release},
                   {"munge_ctx_set", &munge.set},        {"munge_encode", &munge.encode},
                   {"munge_decode", &munge.decode},      {"munge_strerror", &munge.text}};
    void *library = munge.text != NULL ? NULL : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL && munge.text == NULL) {
        return launcher_fail(report, BPS_ERR_PLUGIN,
                             "%s; start the tasks by srun --mpi=pmi2 or srun --mpi=pmix, or set cluster.scheduler = "
                             "\"HOST:PORT\" and run `byteps scheduler` there",
                             dlerror());
    }
    for (size_t i = 0; library != NULL && i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (symbol == NULL) {
            return launcher_fail(report, BPS_ERR_PLUGIN, "%s has no %s", LIBRARY, symbols[i].name);
        }
        memcpy(symbols[i].place, &symbol, sizeof symbol);
    }
    return BPS_OK;
}

/* A new seal each time, as each can be read once on each node. Freed by the caller. */
static char *seal(const char *text, struct bps_report *report)
{
    char *out = NULL;
    void *context = munge.context();
    int error = context == NULL ? 0 : munge.set(context, ONLY_USER, geteuid());
    if (context != NULL && error == 0) {
        error = munge.encode(&out, context, text, (int)strlen(text));
    }
    if (error != 0 || out == NULL) {
        BPS_REPORT(report, "MUNGE: %s", error != 0 ? munge.text(error) : "out of memory");
        free(out);
        out = NULL;
    }
    if (context != NULL) {
        munge.release(context);
    }
    return out;
}

/* Only what this user has sealed is taken. */
static bool unseal(const char *sealed, char text[TEXT_LIMIT], struct bps_report *report)
{
    void *data = NULL;
    int n = 0;
    uid_t uid;
    gid_t gid;
    int error = munge.decode(sealed, NULL, &data, &n, &uid, &gid);
    bool ours = error == 0 && uid == geteuid() && n > 0 && (unsigned)n < TEXT_LIMIT;
    if (ours) {
        memcpy(text, data, (size_t)n);
        text[n] = '\0';
    } else {
        BPS_REPORT(report, "MUNGE: %s", error != 0 ? munge.text(error) : "it is another user's");
    }
    free(data);
    return ours;
}

/* ---- task 0 ---- */

/* The socket's buffer is empty and takes it at once. */
static void hand_out(int fd)
{
    char *sealed = seal(counter.text, NULL);
    if (sealed != NULL) {
        uint32_t n = htonl((uint32_t)strlen(sealed));
        if (send(fd, &n, sizeof n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof n) {
            (void)!send(fd, sealed, strlen(sealed), MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
    free(sealed);
    close(fd);
}

static void *serve(void *arg)
{
    (void)arg;
    for (;;) {
        int fd = accept4(counter.fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            hand_out(fd);
        } else if (errno == EINVAL) {
            return NULL; /* it has been shut down */
        } else if (errno != EINTR && errno != ECONNABORTED) {
            poll(NULL, 0, RETRY_MS); /* no descriptors, or no memory */
        }
    }
}

/* Without signals, which are the application's; but for those of its own faults, which cannot be blocked. */
static bps_status start_thread(struct bps_report *report)
{
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&counter.thread, NULL, serve, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error != 0) {
        return launcher_fail(report, BPS_ERR_IO, "cannot start a thread: %s", strerror(error));
    }
    pthread_setname_np(counter.thread, "bps-meeting");
    return BPS_OK;
}

static int listen_at(unsigned port)
{
    const int yes = 1, no = 0;
    struct sockaddr_in6 any = {
        .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool four = fd < 0; /* a host without IPv6 */
    if (four) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    } else {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const struct sockaddr *at = four ? (struct sockaddr *)&any4 : (struct sockaddr *)&any;
    if (fd >= 0 && bind(fd, at, four ? sizeof any4 : sizeof any) == 0 && listen(fd, 4096) == 0) {
        return fd;
    }
    if (fd >= 0) {
        int error = errno;
        close(fd);
        errno = error;
    }
    return -1;
}

static void close_counter(void *instance)
{
    (void)instance;
    if (counter.fd >= 0) {
        shutdown(counter.fd, SHUT_RDWR);
        pthread_join(counter.thread, NULL);
        close(counter.fd);
        counter.fd = -1;
    }
}

static bps_status leave(void *instance, const char *key, const char *note, uint64_t until, struct bps_report *report)
{
    (void)instance;
    (void)until; /* it waits for nobody */
    bps_status status = load(report);
    full_text(key, note, counter.text);
    char *tried = status == BPS_OK ? seal(counter.text, report) : NULL;
    if (tried == NULL) {
        return status == BPS_OK ? BPS_ERR_IO : status;
    }
    free(tried);
    for (unsigned i = 0; i < TRIES && counter.fd < 0; i++) {
        counter.fd = listen_at(port_of(i));
    }
    if (counter.fd < 0) {
        return launcher_fail(report, BPS_ERR_IO, "the tasks cannot meet at any of the ports %u to %u of this node: %s",
                             port_of(0), port_of(TRIES - 1), strerror(errno));
    }
    status = start_thread(report);
    if (status != BPS_OK) {
        close(counter.fd);
        counter.fd = -1;
    }
    return status;
}

/* ---- the other tasks ---- */

static bps_status receive_text(struct launcher_stream *stream, char text[TEXT_LIMIT], struct bps_report *report)
{
    char sealed[SEAL_LIMIT];
    uint32_t n = 0;
    bps_status status = launcher_stream_receive(stream, &n, sizeof n, report);
    n = ntohl(n);
    if (status == BPS_OK && n >= SEAL_LIMIT) {
        status = launcher_fail(report, BPS_ERR_IO, "it is another program's");
    }
    if (status == BPS_OK) {
        status = launcher_stream_receive(stream, sealed, n, report);
    }
    sealed[status == BPS_OK ? n : 0] = '\0';
    return status == BPS_OK && !unseal(sealed, text, report) ? BPS_ERR_IO : status;
}

/* The note that is handed out at one port, if that is ours. */
static bps_status look_at(unsigned port, const char *key, char note[BPS_LAUNCHER_NOTE_BYTES], uint64_t until,
                          struct bps_report *report)
{
    struct launcher_stream stream;
    struct bps_report why = {""};
    char host[256], service[8], text[TEXT_LIMIT], wanted[TEXT_LIMIT];
    first_node(host, sizeof host);
    snprintf(service, sizeof service, "%u", port);
    full_text(key, "", wanted);
    bps_status status = launcher_stream_open(&stream, host, service, until, &why);
    if (status == BPS_OK) {
        status = receive_text(&stream, text, &why);
    }
    launcher_stream_close(&stream);
    if (status == BPS_OK && strncmp(text, wanted, strlen(wanted)) != 0) {
        status = launcher_fail(&why, BPS_ERR_IO, "it is that of another step");
    }
    if (status != BPS_OK) {
        BPS_REPORT(report, "task 0 does not provide a note yet (%.200s port %u: %.200s)", host, port, why.text);
        return status;
    }
    snprintf(note, BPS_LAUNCHER_NOTE_BYTES, "%.255s", text + strlen(wanted));
    return BPS_OK;
}

static bps_status find(void *instance, const char *key, char *note, uint64_t until, struct bps_report *report)
{
    (void)instance;
    bps_status status = load(report);
    if (status != BPS_OK) {
        return status;
    }
    while (launcher_now() < until) {
        for (unsigned i = TRIES; i-- > 0;) { /* the first one last, so that the report is of that */
            uint64_t enough = launcher_now() + ANSWER_NS;
            if (look_at(port_of(i), key, note, enough < until ? enough : until, report) == BPS_OK) {
                return BPS_OK;
            }
        }
        poll(NULL, 0, RETRY_MS);
    }
    return BPS_ERR_TIMEOUT;
}

static const struct bps_launcher_ops ops = {
    .size = sizeof ops,
    .open = launcher_open_nothing,
    .close = close_counter,
    .order = 400,
    .place = "Slurm's task 0",
    .recognise = recognise,
    .leave = leave,
    .find = find,
    .direction = direction,
    .in_child = in_child,
};

BPS_LAUNCHER_NOTE("SLURM_STEP_ID");
BPS_PLUGIN_MODULE(BPS_KIND_LAUNCHER, "slurm", PLUGIN_VERSION, "Apache-2.0", .summary = "tasks of srun, by MUNGE",
                  .ops = &ops, .format = 1);
