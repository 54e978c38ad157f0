/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_part.c - the share of a job on another machine: `ssh HOST byteps run --part`.
 *
 * Everything the other side needs goes to its standard input, so that nothing has to be quoted and nothing
 * shows in the list of processes: one line "byteps-part VERSION LENGTH", then LENGTH bytes of strings
 * "key=value", each ended by a zero byte. After that each byte is the number of a signal for the parts
 * there; 0 says that no worker is left anywhere, BPS_RUN_GATHERED and above what the scheduler has said, and the
 * end of input that nobody cares any more. What comes back is output with its prefixes, and on standard error the
 * records "done", or "empty" if no worker has ended well, "absent WHY", "failed STATUS CAUSE" and, where the job
 * goes on, "without STATUS CAUSE".
 */
#include "tools/run.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <byteps/byteps.h>

#include "base/report.h"

#define HEADER      "byteps-part "
#define SIZE_LIMIT  (64u << 20)
#define COUNT_LIMIT (1 << 20)

/* Variables that make programs and modules be found; BYTEPS_ and DMLC_ variables go along too. */
static const char *const variables[] = {"PATH",        "PYTHONPATH",      "LD_LIBRARY_PATH",
                                        "VIRTUAL_ENV", "OMP_NUM_THREADS", "KMP_AFFINITY"};

/* ---- the side that starts it --------------------------------------------------------------------------- */

static void put(FILE *file, const char *key, const char *value)
{
    fprintf(file, "%s=%s", key, value);
    fputc('\0', file);
}

static void put_number(FILE *file, const char *key, int value)
{
    fprintf(file, "%s=%d", key, value);
    fputc('\0', file);
}

static void put_variable(FILE *file, const char *name)
{
    const char *value = getenv(name);
    if (value) {
        fprintf(file, "env=%s=%s", name, value);
        fputc('\0', file);
    }
}

static void put_environment(FILE *file, const struct bps_run_options *o)
{
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        put_variable(file, variables[i]);
    }
    for (char **entry = environ; *entry; entry++) {
        if (strncmp(*entry, "BYTEPS_", 7) == 0 || strncmp(*entry, "DMLC_", 5) == 0) {
            put(file, "env", *entry);
        }
    }
    for (size_t i = 0; i < o->nenv; i++) {
        put_variable(file, o->env[i]);
    }
}

static void describe(FILE *file, const struct bps_run_options *o, const struct bps_run_plan *plan)
{
    char *dir = getcwd(NULL, 0);
    put(file, "dir", dir ? dir : "/");
    free(dir);
    put(file, "host", plan->host);
    put(file, "scheduler", plan->scheduler);
    put(file, "job", plan->job);
    put_number(file, "workers", plan->workers);
    put_number(file, "servers", plan->servers);
    put_number(file, "first", plan->first);
    put_number(file, "count", plan->count);
    put_number(file, "slot", plan->slot);
    put_number(file, "size", plan->size);
    put_number(file, "machine", plan->machine);
    put_number(file, "machines", plan->machines);
    put_number(file, "grace_ms", (int)(o->grace / BPS_MS)); /* an hour at most */
    put_number(file, "prefix", o->prefix);
    put_number(file, "color_out", o->color[0]);
    put_number(file, "color_err", o->color[1]);
    put_number(file, "tee", o->tee);
    put_number(file, "elastic", o->elastic);
    if (o->as) {
        put(file, "as", o->as);
    }
    if (o->log_dir) {
        put(file, "log_dir", o->log_dir);
    }
    if (o->conf.file) {
        put(file, "conf", o->conf.file);
    }
    for (size_t i = 0; i < o->conf.nset; i++) {
        put(file, "set", o->conf.set[i]);
    }
    put_environment(file, o);
    for (char **arg = o->command; *arg; arg++) {
        put(file, "arg", *arg);
    }
}

/* The plan of one host: workers in the order of the hosts. */
static struct bps_run_plan plan_of(const struct bps_run_options *o, size_t index)
{
    struct bps_run_plan plan = o->plan;
    plan.first = 0;
    for (size_t i = 0; i < index; i++) {
        plan.first += o->hosts[i].slots;
    }
    plan.count = o->hosts[index].slots;
    plan.slot = o->hosts[index].slot;
    plan.size = o->hosts[index].size;
    plan.machine = o->hosts[index].machine;
    plan.host = o->hosts[index].name;
    return plan;
}

static void send_description(struct bps_run_child *child, const struct bps_run_options *o, size_t index)
{
    struct bps_run_plan plan = plan_of(o, index);
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    if (file) {
        describe(file, o, &plan);
    }
    if (!file || fclose(file) != 0) {
        return; /* out of memory: the other side will say that it got nothing */
    }
    char *header = bps_cmd_print(HEADER "%s %zu\n", bps_version(), size);
    bps_run_sink_put(&child->control, header, strlen(header));
    bps_run_sink_put(&child->control, text, size);
    bps_run_sink_flush(&child->control);
    free(header);
    free(text);
}

/* 'It'\''s one word' for a shell. */
static char *quote(const char *word)
{
    char *quoted = bps_cmd_alloc(4 * strlen(word) + 3, 1), *out = quoted;
    *out++ = '\'';
    for (; *word; word++) {
        if (*word == '\'') {
            out = stpcpy(out, "'\\''");
        } else {
            *out++ = *word;
        }
    }
    *out = '\'';
    return quoted;
}

/* By ssh, or, on this machine, by itself. */
struct bps_run_child *bps_run_start_host(struct bps_run *run, size_t index)
{
    const struct bps_run_options *o = run->options;
    char self[4096], label[sizeof(run->children->label)], *name = o->hosts[index].name;
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
    char *program = quote(self);
    char *remote = bps_cmd_print("%s run --part", program);
    char *shell = bps_cmd_print("exec %s \"$@\"", o->ssh);
    char *by_ssh[] = {"sh", "-c", shell, "sh", name, remote, NULL}, *by_itself[] = {self, "run", "--part", NULL};
    snprintf(label, sizeof(label), "host %s", name);
    struct bps_run_child *child =
        bps_run_spawn(run, BPS_RUN_HOST, (int)index, label, bps_run_is_here(name) ? by_itself : by_ssh, -1);
    if (child) {
        send_description(child, o, index);
    }
    free(program);
    free(remote);
    free(shell);
    return child;
}

/* "failed STATUS CAUSE", or "without STATUS CAUSE" */
static void take_failure(struct bps_run_child *child, const char *text)
{
    struct bps_run *run = child->run;
    int status, n = 0;
    bool gone = strncmp(text, "without ", 8) == 0;
    if (sscanf(text, gone ? "without %d %n" : "failed %d %n", &status, &n) != 1 || status <= 0 || status > 255) {
        return;
    }
    if (gone) {
        bps_run_gone(run, status, n > 0 ? text + n : "");
        return;
    }
    child->told = true;
    if (!run->status) {
        snprintf(run->cause, sizeof(run->cause), "%s", n > 0 ? text + n : "");
        bps_make_printable(run->cause);
    }
    bps_run_fail(run, status);
}

void bps_run_part_record(void *arg, const char *text)
{
    struct bps_run_child *child = arg;
    if (child->leaves) {
        return; /* it ends because it was told to */
    }
    if (strcmp(text, "done") == 0 || strcmp(text, "empty") == 0) {
        child->done = true;
        child->unneeded = strcmp(text, "empty") == 0;
    } else if (strncmp(text, "absent ", 7) == 0) {
        bps_run_absent(child->run, text + 7);
    } else {
        take_failure(child, text);
    }
}

/* ---- the side that was started ------------------------------------------------------------------------- */

void bps_run_part_tell(struct bps_run *run, const char *format, ...)
{
    if (!run->options->part || run->part_lost) {
        return;
    }
    char text[500], line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    int n = snprintf(line, sizeof(line), "%c%s\n", BPS_RUN_RECORD, text);
    bps_run_sink_put(&run->sink[1], line, (size_t)n);
}

/* What the scheduler has said of an elastic job. */
static void take_word(struct bps_run *run, unsigned char byte)
{
    if (byte == BPS_RUN_GATHERED) {
        run->elastic->gathered(run);
    } else if (byte == BPS_RUN_CLOSES) {
        run->elastic->closes(run);
    } else {
        run->elastic->goes_on(run, "");
    }
}

/* True: the byte is one of a process's number. */
static bool take_pid_byte(struct bps_run *run, unsigned char byte)
{
    if (run->number_bytes == 0) {
        return false;
    }
    run->number = run->number >> 8 | (uint32_t)byte << 24;
    if (--run->number_bytes == 0 && run->elastic) {
        run->elastic->joined(run, (int)run->number);
    }
    return true;
}

void bps_run_part_control(struct bps_run *run)
{
    unsigned char bytes[64];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        return;
    }
    if (n <= 0) {
        run->part_lost = true;
        bps_run_interrupt(run, run->phase < BPS_RUN_ENDING ? SIGTERM : SIGQUIT);
        return;
    }
    for (ssize_t i = 0; i < n; i++) {
        if (take_pid_byte(run, bytes[i])) {
            continue;
        }
        switch (bytes[i]) {
        case BPS_RUN_JOINED:
            run->number_bytes = 4;
            break;
        case 0:
            bps_run_end_services(run);
            break;
        case BPS_RUN_DOOM:
            run->elastic ? run->elastic->hopeless(run) : bps_run_doom(run);
            break;
        case BPS_RUN_GATHERED:
        case BPS_RUN_CLOSES:
        case BPS_RUN_GOES_ON:
            if (run->elastic) {
                take_word(run, bytes[i]);
            }
            break;
        case SIGINT:
        case SIGTERM:
        case SIGHUP:
        case SIGQUIT:
        case SIGUSR1:
        case SIGUSR2:
        case SIGTSTP:
        case SIGCONT:
            bps_run_interrupt(run, bytes[i]);
            break;
        default:
            if (bytes[i] >= BPS_RUN_WITHOUT) {
                const struct bps_run_plan *plan = &run->options->plan;
                bps_run_without(run, (bytes[i] - BPS_RUN_WITHOUT) * plan->machines + plan->machine);
            }
            break;
        }
    }
}

/* Reads exactly n bytes: what follows them is not ours. */
static bool read_all(char *data, size_t n)
{
    while (n > 0) {
        ssize_t got = read(STDIN_FILENO, data, n);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        data += got > 0 ? got : 0;
        n -= got > 0 ? (size_t)got : 0;
    }
    return true;
}

static char *read_description(size_t *size)
{
    char line[128], version[64];
    size_t used = 0;
    while (used < sizeof(line) - 1 && read_all(line + used, 1) && line[used] != '\n') {
        used++;
    }
    line[used] = '\0';
    if (sscanf(line, HEADER "%63s %zu", version, size) != 2 || *size == 0 || *size > SIZE_LIMIT) {
        bps_cmd_failure(BPS_RUN_NAME,
                        "--part is for the use of 'byteps run --hosts' only, which has sent nothing to run");
        return NULL;
    }
    if (strcmp(version, bps_version()) != 0) {
        bps_cmd_failure(
            BPS_RUN_NAME,
            "byteps is version %s here and %s where the job was started; install the same version on all hosts",
            bps_version(), version);
        return NULL;
    }
    char *text = bps_cmd_alloc(*size + 1, 1);
    if (!read_all(text, *size)) {
        bps_cmd_failure(BPS_RUN_NAME, "the connection ended before the description of the job did");
        free(text);
        return NULL;
    }
    return text;
}

static bool take_number(struct bps_run_options *o, const char *key, const char *value)
{
    struct {
        const char *key;
        int *place;
    } numbers[] = {
        {"workers", &o->plan.workers}, {"servers", &o->plan.servers}, {"first", &o->plan.first},
        {"count", &o->plan.count},     {"machine", &o->plan.machine}, {"machines", &o->plan.machines},
        {"slot", &o->plan.slot},       {"size", &o->plan.size},
    };
    char *end;
    long number = strtol(value, &end, 10);
    if (*end || end == value || number < 0 || number > INT_MAX) {
        return false;
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (strcmp(key, numbers[i].key) == 0) {
            *numbers[i].place = (int)number;
            return true;
        }
    }
    return false;
}

static bool take_variable(char *text)
{
    char *equals = strchr(text, '=');
    if (!equals || equals == text) {
        return false;
    }
    *equals = '\0';
    return setenv(text, equals + 1, 1) == 0;
}

static bool take(struct bps_run_options *o, const char *key, char *value, size_t *nargs)
{
    if (strcmp(key, "dir") == 0) {
        if (chdir(value) != 0) {
            bps_cmd_failure(BPS_RUN_NAME, "cannot change to the directory %s: %s", value, strerror(errno));
            return false;
        }
    } else if (strcmp(key, "host") == 0) {
        o->plan.host = value;
    } else if (strcmp(key, "scheduler") == 0) {
        o->plan.scheduler = value;
    } else if (strcmp(key, "job") == 0) {
        o->plan.job = value;
    } else if (strcmp(key, "grace_ms") == 0) {
        o->grace = strtoul(value, NULL, 10) * BPS_MS;
    } else if (strcmp(key, "log_dir") == 0) {
        o->log_dir = value;
        if (!bps_run_log_make(value)) {
            bps_cmd_failure(BPS_RUN_NAME, "--log-dir %s: %s", value, strerror(errno));
            return false;
        }
    } else if (strcmp(key, "as") == 0) {
        o->as = value;
        return bps_run_as_check(value) < 0;
    } else if (strcmp(key, "tee") == 0) {
        o->tee = *value == '1';
    } else if (strcmp(key, "elastic") == 0) {
        o->elastic = *value == '1';
    } else if (strcmp(key, "prefix") == 0) {
        o->prefix = *value == '1';
    } else if (strncmp(key, "color_", 6) == 0) {
        o->color[key[6] == 'e'] = *value == '1';
    } else if (strcmp(key, "conf") == 0) {
        o->conf.file = value;
    } else if (strcmp(key, "set") == 0) {
        bps_cmd_conf_set(&o->conf, value);
    } else if (strcmp(key, "env") == 0) {
        return take_variable(value);
    } else if (strcmp(key, "arg") == 0) {
        o->command[(*nargs)++] = value;
    } else {
        return take_number(o, key, value);
    }
    return true;
}

/* An elastic job may grow beyond the workers that it begins with. */
static bool plan_is_sane(const struct bps_run_plan *plan, bool elastic)
{
    int workers = elastic ? COUNT_LIMIT : plan->workers;
    return plan->machines >= 1 && plan->machine <= plan->machines && plan->count >= 1 && plan->workers <= COUNT_LIMIT &&
           plan->servers <= COUNT_LIMIT && plan->count <= workers && plan->first <= workers - plan->count &&
           plan->slot <= plan->size - plan->count;
}

int bps_run_part_read(struct bps_run_options *o)
{
    size_t size, nargs = 0, strings = 1;
    char *text = read_description(&size);
    if (!text) {
        return BPS_EXIT_FAILURE;
    }
    bps_run_keep(o, text);
    for (size_t i = 0; i < size; i++) {
        strings += text[i] == '\0';
    }
    o->command = bps_run_keep(o, bps_cmd_alloc(strings, sizeof(*o->command)));
    for (char *entry = text, *next; entry < text + size; entry = next) {
        char *equals = strchr(entry, '=');
        next = entry + strlen(entry) + 1;
        if (equals) {
            *equals = '\0';
        }
        if (!equals || !take(o, entry, equals + 1, &nargs)) {
            bps_cmd_failure(BPS_RUN_NAME, "invalid line in the description of the job: '%s'", entry);
            return BPS_EXIT_FAILURE;
        }
    }
    if (!nargs || !plan_is_sane(&o->plan, o->elastic) || !o->plan.host || !o->plan.scheduler || !o->plan.job) {
        return bps_cmd_failure(BPS_RUN_NAME, "the description of the job is not complete");
    }
    return -1;
}
