/* SPDX-License-Identifier: Apache-2.0 */
/* run_spawn.c - starts one process of a job: its group, descriptors and environment. */
#include "base/place.h"
#include "tools/run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- environment of the parts of `byteps run` ---------------------------------------------------------- */

static void set_text(const char *name, const char *value)
{
    if (setenv(name, value, 1) != 0) {
        fprintf(stderr, "byteps: cannot set %s: %s\n", name, strerror(errno));
        _exit(BPS_EXIT_FAILURE);
    }
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    set_text(name, text);
}

/* What scripts written for the original read. A machine is its "worker", a process there a "local rank". */
static void set_old_variables(const struct bps_run_plan *plan, const struct bps_run_child *child)
{
    static const char *const roles[] = {"scheduler", "server", "worker"};
    set_text("DMLC_ROLE", roles[child->role]);
    set_number("DMLC_NUM_WORKER", plan->machines);
    set_number("DMLC_NUM_SERVER", plan->servers);
    const char *colon = strrchr(plan->scheduler, ':');
    if (colon) {
        bool brackets = *plan->scheduler == '[';
        int length = (int)(colon - plan->scheduler) - 2 * brackets;
        char *host = bps_cmd_print("%.*s", length, plan->scheduler + brackets);
        set_text("DMLC_PS_ROOT_URI", host);
        set_text("DMLC_PS_ROOT_PORT", colon + 1);
        free(host);
    } else {
        unsetenv("DMLC_PS_ROOT_URI");
        unsetenv("DMLC_PS_ROOT_PORT");
    }
    if (child->role == BPS_RUN_WORKER) {
        set_number("DMLC_WORKER_ID", plan->machine);
        set_number("BYTEPS_LOCAL_RANK", plan->slot + child->rank - plan->first);
        set_number("BYTEPS_LOCAL_SIZE", plan->size);
    }
    unsetenv("BYTEPS_GLOBAL_RANK");
}

/* The user's own lines come first: what is later is stronger, and the shape of the job is ours. */
static void set_configuration(const struct bps_run *run, const struct bps_run_child *child)
{
    const struct bps_run_options *o = run->options;
    const struct bps_run_plan *plan = &o->plan;
    const char *own = getenv("BYTEPS_SET");
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    if (!file) {
        _exit(BPS_EXIT_FAILURE);
    }
    fprintf(file, "%s", own && *own ? own : "");
    for (size_t i = 0; i < o->conf.nset; i++) {
        fprintf(file, "\n%s", o->conf.set[i]);
    }
    static const char *const roles[] = {"scheduler", "server", "worker"};
    fprintf(file, "\ncluster.role=%s\ncluster.job=%s", roles[child->role], plan->job);
    fprintf(file, "\ncluster.scheduler=\"%s\"", plan->scheduler); /* quoted, or "[::1]:9000" would be a list */
    fprintf(file, "\ncluster.workers=%d\ncluster.servers=%d", plan->workers, plan->servers);
    fprintf(file, "\ncluster.rank=%d", child->role == BPS_RUN_SCHEDULER ? -1 : child->rank);
    if (child->role == BPS_RUN_WORKER) {
        int rank = plan->slot + child->rank - plan->first;
        fprintf(file, "\ncluster.local_rank=%d\ncluster.local_size=%d\n", rank, plan->size);
    } else {
        fprintf(file, "\ncluster.local_rank=-1\ncluster.local_size=-1\ncluster.stay=true\n");
    }
    if (fclose(file) != 0) {
        _exit(BPS_EXIT_FAILURE);
    }
    set_text("BYTEPS_SET", text + (*text == '\n'));
    free(text);
}

/* A folder behind those of the caller, if it is there. */
static void add_to_path(const char *name, const char *folder)
{
    struct stat about;
    const char *own = getenv(name);
    if (stat(folder, &about) == 0 && S_ISDIR(about.st_mode)) {
        char *path = own && *own ? bps_cmd_print("%s:%s", own, folder) : bps_cmd_print("%s", folder);
        set_text(name, path);
        free(path);
    }
}

void bps_run_environment_languages(void)
{
    add_to_path("PYTHONPATH", bps_place(BPS_PLACE_PYTHON));
    set_text("PYTHONUNBUFFERED", "1");
    add_to_path("LD_LIBRARY_PATH", bps_place(BPS_PLACE_PLUGINS)); /* with a link to libbyteps, and nothing of others */
}

void bps_run_environment(const struct bps_run *run, const struct bps_run_child *child)
{
    if (child->role == BPS_RUN_HOST) {
        return;
    }
    set_configuration(run, child);
    set_old_variables(&run->options->plan, child);
    if (run->options->conf.file) {
        set_text("BYTEPS_CONF", run->options->conf.file);
    }
    bps_run_environment_languages();
    if (child->role == BPS_RUN_WORKER && run->options->as) {
        bps_run_as_environment(run->options->as);
    }
}

/* ---- the process --------------------------------------------------------------------------------------- */

struct pipes {
    int in[2], out[2], err[2], failed[2]; /* [0] is read, [1] is written; failed tells the errno of exec */
};

static void close_pair(int pair[2])
{
    for (int i = 0; i < 2; i++) {
        if (pair[i] >= 0) {
            close(pair[i]);
        }
    }
}

static void pipes_close(struct pipes *p)
{
    close_pair(p->in);
    close_pair(p->out);
    close_pair(p->err);
    close_pair(p->failed);
}

static bool pipes_open(struct pipes *p, bool inherit, bool control)
{
    *p = (struct pipes){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
    bool ok = pipe2(p->failed, O_CLOEXEC) == 0;
    if (ok && control) {
        ok = pipe2(p->in, O_CLOEXEC) == 0;
    } else if (ok) {
        p->in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        ok = p->in[0] >= 0;
    }
    if (ok && !inherit) {
        ok = pipe2(p->out, O_CLOEXEC) == 0 && pipe2(p->err, O_CLOEXEC) == 0 &&
             fcntl(p->out[0], F_SETFL, O_NONBLOCK) == 0 && fcntl(p->err[0], F_SETFL, O_NONBLOCK) == 0;
    }
    if (!ok) {
        int error = errno;
        pipes_close(p);
        errno = error;
    }
    return ok;
}

void bps_run_reset_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE, SIGTTOU};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        signal(numbers[i], SIG_DFL);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void become(struct bps_run *run, const struct bps_run_child *child, char **argv, int pass,
                             const struct pipes *p, pid_t manager)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != manager) {
        _exit(BPS_EXIT_FAILURE);
    }
    bps_run_reset_signals();
    bool ok = dup2(p->in[0], STDIN_FILENO) >= 0;
    if (!run->inherit) {
        ok = ok && dup2(p->out[1], STDOUT_FILENO) >= 0 && dup2(p->err[1], STDERR_FILENO) >= 0;
    }
    if (pass >= 0) {
        ok = ok && fcntl(pass, F_SETFD, 0) == 0;
    }
    if (ok) {
        run->environment(run, child);
        if (child->role == BPS_RUN_WORKER) {
            bps_run_bind(run);
        }
        bool own = child->role == BPS_RUN_SCHEDULER || child->role == BPS_RUN_SERVER;
        own ? execv("/proc/self/exe", argv) : execvp(argv[0], argv); /* even if our file was replaced meanwhile */
    }
    int error = errno;
    ssize_t written = write(p->failed[1], &error, sizeof(error));
    (void)written; /* if even that fails, the exit status tells */
    _exit(BPS_RUN_STATUS_NO_FILE);
}

/* Waits until the process has become the child. Returns the errno if it could not. */
static int exec_error(struct pipes *p)
{
    int error = 0;
    close(p->failed[1]);
    p->failed[1] = -1;
    ssize_t n;
    while ((n = read(p->failed[0], &error, sizeof(error))) < 0 && errno == EINTR) {
    }
    return n == (ssize_t)sizeof(error) ? error : 0;
}

/* A part could not be started. Takes over `why`. */
static void give_up(struct bps_run *run, int status, char *why)
{
    bps_run_say(run, "%s", why);
    bps_run_absent(run, why);
    bps_run_fail(run, status);
    bps_run_end(run);
    free(why);
}

static void refuse(struct bps_run *run, const struct bps_run_child *child, const char *file, int error)
{
    size_t n = strlen(file);
    bool script = error == EACCES && n > 3 && strcmp(file + n - 3, ".py") == 0;
    give_up(run, error == ENOENT || error == ENOTDIR ? BPS_RUN_STATUS_NO_FILE : BPS_RUN_STATUS_NOT_EXEC,
            bps_cmd_print("%s: cannot execute '%s': %s%s%s", child->label, file, strerror(error),
                          script ? "; did you mean: python3 " : "", script ? file : ""));
}

static void take_pipes(struct bps_run *run, struct bps_run_child *child, struct pipes *p)
{
    if (p->in[1] >= 0) {
        bps_run_sink_init(&child->control, p->in[1]);
        child->control.owned = true;
        p->in[1] = -1;
    }
    if (run->inherit) {
        return;
    }
    const struct bps_run_options *o = run->options;
    int *ends[2] = {&p->out[0], &p->err[0]};
    bool is_host = child->role == BPS_RUN_HOST, prints = is_host || !o->log_dir || o->tee;
    for (int i = 0; i < 2; i++) {
        bool prefix = o->prefix && !is_host;
        child->stream[i] = (struct bps_run_stream){
            .fd = *ends[i],
            .sink = prints ? &run->sink[i] : &run->nowhere,
            .log = child->log.fd >= 0 ? &child->log : NULL,
            .last = i == 1 && !is_host ? child->last : NULL,
            .prefix = prefix ? bps_run_prefix(child->label, child->rank, o->color[i]) : bps_cmd_print("%s", ""),
        };
        *ends[i] = -1;
    }
    if (is_host) {
        child->stream[1].record = bps_run_part_record;
        child->stream[1].record_arg = child;
    }
}

/* Of one that is started in the place of another it is that of the lost one. */
static struct bps_run_child *place_of(struct bps_run *run, enum bps_run_role role, int rank)
{
    for (size_t i = 0; i < run->nchildren; i++) {
        struct bps_run_child *child = &run->children[i];
        if (child->role == role && child->rank == rank) {
            bps_run_child_fini(child);
            return child;
        }
    }
    return &run->children[run->nchildren];
}

struct bps_run_child *bps_run_spawn(struct bps_run *run, enum bps_run_role role, int rank, const char *label,
                                    char **argv, int pass)
{
    struct bps_run_child *child = place_of(run, role, rank);
    *child = (struct bps_run_child){.run = run,
                                    .role = role,
                                    .rank = rank,
                                    .control.fd = -1,
                                    .log.fd = -1,
                                    .began = bps_now(),
                                    .place = child->place};
    child->stream[0].fd = child->stream[1].fd = -1;
    snprintf(child->label, sizeof(child->label), "%s", label);
    struct pipes p;
    if (!bps_run_log_open(run, child) ||
        !pipes_open(&p, run->inherit, role == BPS_RUN_HOST || role == BPS_RUN_SCHEDULER)) {
        goto fail;
    }
    pid_t manager = getpid(), pid = fork();
    if (pid == 0) {
        become(run, child, argv, pass, &p, manager);
    }
    if (pid < 0) {
        int error = errno;
        pipes_close(&p);
        errno = error;
        goto fail;
    }
    setpgid(pid, pid);
    run->nchildren += child == &run->children[run->nchildren];
    child->pid = pid;
    take_pipes(run, child, &p);
    int error = exec_error(&p);
    pipes_close(&p);
    if (error) {
        child->told = true;
        refuse(run, child, argv[0], error);
        return NULL;
    }
    return child;
fail:
    give_up(run, BPS_EXIT_FAILURE, bps_cmd_print("cannot start %s: %s", child->label, strerror(errno)));
    return NULL;
}
