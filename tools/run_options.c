/* SPDX-License-Identifier: Apache-2.0 */
/* run_options.c - the command line of `byteps run`, and what the configuration adds to it. */
#include "tools/run.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "conf/option.h"
#include "conf/schema.h"

#define RESTARTS_LIMIT 65536
#define GRACE_LIMIT    (3600 * BPS_S)

enum {
    OPT_HOSTS = 'H',
    OPT_TIMEOUT = 't',
    OPT_ADDRESS = 'a',
    OPT_ENV = 'e',
    OPT_GRACE = 256,
    OPT_SSH,
    OPT_HOSTFILE,
    OPT_RESTARTS,
    OPT_MIN_WORKERS,
    OPT_MAX_WORKERS,
    OPT_SCRIPT,
    OPT_LOG_DIR,
    OPT_TEE,
    OPT_NO_PREFIX,
    OPT_AS,
    OPT_GUARD,
    OPT_PART,
    OPT_CALLER
};

static const struct option long_options[] = {
    {"workers", required_argument, NULL, 'n'},
    {"servers", required_argument, NULL, 's'},
    {"hosts", required_argument, NULL, OPT_HOSTS},
    {"hostfile", required_argument, NULL, OPT_HOSTFILE},
    {"restarts", required_argument, NULL, OPT_RESTARTS},
    {"min-workers", required_argument, NULL, OPT_MIN_WORKERS},
    {"max-workers", required_argument, NULL, OPT_MAX_WORKERS},
    {"host-discovery-script", required_argument, NULL, OPT_SCRIPT},
    {"log-dir", required_argument, NULL, OPT_LOG_DIR},
    {"tee", no_argument, NULL, OPT_TEE},
    {"address", required_argument, NULL, OPT_ADDRESS},
    {"ssh", required_argument, NULL, OPT_SSH},
    {"env", required_argument, NULL, OPT_ENV},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"grace", required_argument, NULL, OPT_GRACE},
    {"no-prefix", no_argument, NULL, OPT_NO_PREFIX},
    {"as", required_argument, NULL, OPT_AS},
    {"guard", no_argument, NULL, OPT_GUARD},
    {"part", no_argument, NULL, OPT_PART},
    {"caller", required_argument, NULL, OPT_CALLER},
    {"version", no_argument, NULL, 'V'},
    {"help", no_argument, NULL, 'h'},
    BPS_CMD_CONF_OPTIONS,
    {NULL, 0, NULL, 0},
};

static int help(void)
{
    fputs("Usage: byteps run [OPTIONS] [--] COMMAND [ARGUMENT]...\n"
          "\n"
          "Starts a whole job: a scheduler, servers, and workers that run COMMAND. Ends all\n"
          "of it when a part dies, reports which part failed first, and returns its status.\n"
          "\n"
          "  -n, --workers N        number of workers (default: cluster.workers, or 1)\n"
          "  -s, --servers K        number of server processes; workers may host servers,\n"
          "                         too, see cluster.colocated (default: cluster.servers,\n"
          "                         or 0)\n"
          "  -H, --hosts A:2,B:2    start 2 workers on each host, and the servers in turn;\n"
          "                         through ssh, but for this machine\n"
          "      --hostfile FILE    the same from a file of lines such as \"A slots=2\"\n"
          "  -t, --timeout TIME     end the job after TIME, such as 90, 30min or 2h, with\n"
          "                         status 124\n"
          "      --grace TIME       how long the others may report when a part has died\n"
          "                         (default: 10 s)\n"
          "      --restarts N       start all of it anew when it has failed, N times at\n"
          "                         most; COMMAND gets the count in BYTEPS_RESTART_COUNT\n"
          "      --min-workers N    go on when workers are lost, as long as N are left: if\n"
          "                         COMMAND can; others are started in their place\n"
          "      --max-workers M    let others join up to M (default: as many as at first)\n"
          "      --host-discovery-script SCRIPT\n"
          "                         as hosts come and go: SCRIPT prints one in each line, A\n"
          "                         or A:2, and runs every second\n"
          "      --log-dir DIR      write what each part prints to DIR/worker-0.log and the\n"
          "                         like, on the host where it runs\n"
          "      --tee              and print it, too\n"
          "      --as API           run COMMAND, a program for another library, with BytePS\n"
          "                         under its name: horovod\n"
          "      --guard            memory that plugins get of the core ends at pages that\n"
          "                         cannot be touched, as with --set plugins.guard=true\n"
          "  -e, --env NAME[=VALUE] pass a variable on to the other hosts, or set it\n"
          "                         everywhere\n"
          "  -a, --address ADDRESS  where the scheduler listens, HOST or HOST:PORT\n"
          "      --ssh COMMAND      instead of: ssh -o BatchMode=yes\n"
          "                         -o ServerAliveInterval=10\n"
          "      --no-prefix        do not put [worker 0] and the like before each line\n" BPS_CMD_CONF_HELP
          "  -V, --version          show the versions, and what works with what\n"
          "  -h, --help             show this text\n"
          "\n"
          "  byteps run -n 2 -s 1 -- python3 train.py --epochs 2\n",
          stdout);
    return bps_cmd_finish(BPS_RUN_NAME, 0);
}

void *bps_run_keep(struct bps_run_options *o, void *memory)
{
    void **kept = bps_cmd_alloc(o->nkept + 1, sizeof(*kept));
    for (size_t i = 0; i < o->nkept; i++) {
        kept[i] = o->kept[i];
    }
    kept[o->nkept++] = memory;
    free(o->kept);
    o->kept = kept;
    return memory;
}

void bps_run_options_fini(struct bps_run_options *o)
{
    for (size_t i = 0; i < o->nkept; i++) {
        free(o->kept[i]);
    }
    free(o->kept);
    bps_cmd_conf_fini(&o->conf);
}

/* ---- options ------------------------------------------------------------------------------------------- */

/* The children find the file from wherever they run. */
static int use_conf(struct bps_run_options *o, const char *file)
{
    o->conf.file = bps_run_keep(o, realpath(file, NULL));
    if (!o->conf.file) {
        return bps_cmd_failure(BPS_RUN_NAME, "--conf %s: %s", file, strerror(errno));
    }
    return -1;
}

static int use_set(struct bps_run_options *o, const char *text)
{
    if (strchr(text, '\n') || !strchr(text, '=')) {
        return bps_cmd_usage(BPS_RUN_NAME, "--set '%s': expected KEY=VALUE in one line", text);
    }
    bps_cmd_conf_set(&o->conf, text);
    return -1;
}

static int use_env(struct bps_run_options *o, char *text)
{
    char *equals = strchr(text, '=');
    char *name = bps_run_keep(o, bps_cmd_print("%.*s", (int)strcspn(text, "="), text));
    if (!*name || (equals && setenv(name, equals + 1, 1) != 0)) {
        return bps_cmd_usage(BPS_RUN_NAME, "--env '%s': expected NAME or NAME=VALUE", text);
    }
    const char **env = bps_run_keep(o, bps_cmd_alloc(o->nenv + 1, sizeof(*env)));
    for (size_t i = 0; i < o->nenv; i++) {
        env[i] = o->env[i];
    }
    env[o->nenv++] = name;
    o->env = env;
    return -1;
}

static int use_time(const char *option, const char *text, uint64_t most, uint64_t *out)
{
    if (bps_parse_time(text, out) != BPS_OK || *out == 0 || *out > most) {
        return bps_cmd_usage(BPS_RUN_NAME, "%s: '%s' is not a time above 0%s; expected for example 90, 30min or 2h",
                             option, text, most == GRACE_LIMIT ? " and up to 1h" : "");
    }
    return -1;
}

/* What the configuration says of the number of members of a kind: "workers" or "servers". */
static const struct bps_option *row_of(const char *key)
{
    const struct bps_section *section = bps_sections;
    while (strcmp(section->name, "cluster") != 0) {
        section++;
    }
    return bps_option_find(section->table, key);
}

static bps_status count_of(const char *key, const char *text, int *out, struct bps_report *report)
{
    const struct bps_option *row = row_of(key);
    struct bps_conf_cluster cluster;
    int64_t value;
    bps_status status = bps_option_parse(row, text, &cluster, report);
    if (status == BPS_OK) {
        memcpy(&value, (const char *)&cluster + row->offset, sizeof value);
        *out = (int)value;
    }
    return status;
}

static int use_count(const char *key, const char *text, int *out)
{
    struct bps_report why;
    if (count_of(key, text, out, &why) != BPS_OK) {
        return bps_cmd_usage(BPS_RUN_NAME, "--%s: '%s': %s", key, text, why.text);
    }
    return -1;
}

static int use_workers(const char *text, struct bps_run_options *o)
{
    if (strcmp(text, "p") == 0) {
        return bps_cmd_usage(BPS_RUN_NAME, "-np: use -n for the number of workers, as in byteps run -n 2");
    }
    return use_count("workers", text, &o->plan.workers);
}

/* Of an elastic job; the parts read it in their configuration. */
static int use_bound(struct bps_run_options *o, const char *option, const char *key, const char *text, int *out)
{
    struct bps_report why;
    int value;
    if (count_of(key, text, &value, &why) != BPS_OK || value == 0) {
        return bps_cmd_usage(BPS_RUN_NAME, "%s: '%s' is not a number of workers", option, text);
    }
    bps_cmd_conf_set(&o->conf, bps_run_keep(o, bps_cmd_print("cluster.%s=%d", key, value)));
    *out = value;
    return -1;
}

static int use_restarts(const char *text, int *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < 0 || value > RESTARTS_LIMIT) {
        return bps_cmd_usage(BPS_RUN_NAME, "--restarts: '%s' is not a number from 0 to %d", text, RESTARTS_LIMIT);
    }
    *out = (int)value;
    return -1;
}

/* The parts find it from wherever they run. */
static int use_log_dir(struct bps_run_options *o, const char *dir)
{
    char *path = bps_run_log_make(dir) ? bps_run_keep(o, realpath(dir, NULL)) : NULL;
    if (!path) {
        return bps_cmd_failure(BPS_RUN_NAME, "--log-dir %s: %s", dir, strerror(errno));
    }
    o->log_dir = path;
    return -1;
}

static int use_option(struct bps_run_options *o, int code, char *value, char **argv)
{
    switch (code) {
    case 'n':
        return use_workers(value, o);
    case 's':
        return use_count("servers", value, &o->plan.servers);
    case OPT_HOSTS:
        return bps_run_hosts_parse(o, "--hosts", value);
    case OPT_HOSTFILE:
        return bps_run_hosts_read(o, value);
    case OPT_RESTARTS:
        return use_restarts(value, &o->restarts);
    case OPT_MIN_WORKERS:
        return use_bound(o, "--min-workers", "min_workers", value, &o->least);
    case OPT_MAX_WORKERS:
        return use_bound(o, "--max-workers", "max_workers", value, &o->most);
    case OPT_SCRIPT:
        o->script = value;
        return -1;
    case OPT_LOG_DIR:
        return use_log_dir(o, value);
    case OPT_TEE:
        o->tee = true;
        return -1;
    case OPT_TIMEOUT:
        return use_time("--timeout", value, UINT64_MAX / 2, &o->timeout);
    case OPT_GRACE:
        return use_time("--grace", value, GRACE_LIMIT, &o->grace);
    case OPT_ENV:
        return use_env(o, value);
    case OPT_ADDRESS:
        o->address = value;
        return -1;
    case OPT_SSH:
        o->ssh = value;
        return -1;
    case OPT_NO_PREFIX:
        o->prefix = false;
        return -1;
    case OPT_AS:
        o->as = value;
        return bps_run_as_check(value);
    case OPT_GUARD:
        return use_set(o, "plugins.guard=true");
    case OPT_PART:
        o->part = true;
        return -1;
    case OPT_CALLER: /* for byteps.run() in Python */
        o->caller = (pid_t)atol(value);
        return -1;
    case BPS_CMD_OPT_CONF:
        return use_conf(o, value);
    case BPS_CMD_OPT_SET:
        return use_set(o, value);
    case 'V':
        bps_cmd_versions();
        return bps_cmd_finish(BPS_RUN_NAME, 0);
    case 'h':
        return help();
    default:
        return bps_cmd_bad_option(BPS_RUN_NAME, code, argv);
    }
}

/* ---- configuration ------------------------------------------------------------------------------------- */

static char *random_job(void)
{
    unsigned char bytes[8];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        uint64_t now = bps_now() ^ ((uint64_t)getpid() << 40);
        memcpy(bytes, &now, sizeof(bytes));
    }
    char *text = bps_cmd_alloc(2 * sizeof(bytes) + 1, 1);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    }
    return text;
}

/* Whether someone has set the key, be it in a file, a variable or by --set. */
static bool is_configured(const struct bps_conf *conf, const char *key)
{
    const struct bps_conf_node *node = bps_conf_find(conf, key);
    return node && strcmp(node->origin, "default") != 0;
}

static char *scheduler_address(struct bps_run_options *o, const struct bps_conf *conf)
{
    if (o->address) {
        const char *colon = strrchr(o->address, ':'), *bracket = strrchr(o->address, ']');
        if (colon && !bracket && strchr(o->address, ':') != colon) {
            return bps_cmd_print("[%s]:0", o->address);
        }
        bool port = colon && (!bracket || colon > bracket);
        return bps_cmd_print(port ? "%s" : "%s:0", o->address);
    }
    if (is_configured(conf, "cluster.scheduler") && *conf->cluster.scheduler) {
        return bps_cmd_print("%s", conf->cluster.scheduler);
    }
    o->open_address = o->script != NULL;
    return o->nhosts ? bps_run_choose_address(o) : bps_cmd_print("127.0.0.1:0");
}

/* Checks the configuration before anything starts, and takes from it what the command line leaves open. */
static int use_configuration(struct bps_run_options *o)
{
    struct bps_cmd_conf all = {.file = o->conf.file};
    for (size_t i = 0; i < o->conf.nset; i++) {
        bps_cmd_conf_set(&all, o->conf.set[i]);
    }
    char *workers = o->plan.workers < 0 ? NULL : bps_cmd_print("cluster.workers=%d", o->plan.workers);
    char *servers = o->plan.servers < 0 ? NULL : bps_cmd_print("cluster.servers=%d", o->plan.servers);
    if (workers) {
        bps_cmd_conf_set(&all, workers);
    }
    if (servers) {
        bps_cmd_conf_set(&all, servers);
    }
    bps_cmd_conf_set(&all, "cluster.rank=-1");
    struct bps_conf *conf = bps_cmd_conf_load(BPS_RUN_NAME, &all, "scheduler");
    bps_cmd_conf_fini(&all);
    free(workers);
    free(servers);
    if (!conf) {
        return BPS_EXIT_FAILURE;
    }
    o->plan.workers = (int)conf->cluster.workers;
    o->plan.servers = (int)conf->cluster.servers;
    o->elastic = conf->cluster.min_workers > 0;
    o->most = (int)conf->cluster.max_workers;
    o->rendezvous = conf->cluster.rendezvous_timeout;
    o->any_port = conf->ports.first == 0;
    o->plan.scheduler = bps_run_keep(o, scheduler_address(o, conf));
    bool named = is_configured(conf, "cluster.job");
    o->plan.job = bps_run_keep(o, named ? bps_cmd_print("%s", conf->cluster.job) : random_job());
    bps_conf_free(conf);
    return -1;
}

static int count_slots(struct bps_run_options *o)
{
    int slots = 0;
    for (size_t i = 0; i < o->nhosts && slots <= BPS_RUN_SLOTS_LIMIT; i++) {
        slots += o->hosts[i].slots;
    }
    if (o->nhosts && o->plan.workers >= 0 && slots != o->plan.workers) {
        return bps_cmd_usage(BPS_RUN_NAME, "--workers %d, but --hosts names places for %d; leave --workers out",
                             o->plan.workers, slots);
    }
    char text[16];
    struct bps_report why;
    snprintf(text, sizeof text, "%d", slots);
    if (o->nhosts && count_of("workers", text, &o->plan.workers, &why) != BPS_OK) {
        return bps_cmd_usage(BPS_RUN_NAME, "--hosts names places for %s: %s", text, why.text);
    }
    return -1;
}

/* Until the script has named hosts, the job is as small as it may be. */
static int use_script(struct bps_run_options *o)
{
    const char *other = o->hosts ? "--hosts" : o->plan.workers >= 0 ? "--workers" : NULL;
    if (other) {
        return bps_cmd_usage(BPS_RUN_NAME, "%s and --host-discovery-script: the script determines it; leave %s out",
                             other, other);
    }
    if (!o->least) {
        return bps_cmd_usage(BPS_RUN_NAME, "--host-discovery-script needs --min-workers");
    }
    o->plan.workers = o->least;
    return -1;
}

static bool wants_color(int fd)
{
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    return isatty(fd) && !(no && *no) && !(term && strcmp(term, "dumb") == 0);
}

int bps_run_options_parse(int argc, char **argv, struct bps_run_options *o)
{
    *o = (struct bps_run_options){
        .plan = {.workers = -1, .servers = -1, .machines = 1},
        .ssh = "ssh -o BatchMode=yes -o ServerAliveInterval=10",
        .grace = BPS_RUN_GRACE,
        .prefix = true,
        .color = {wants_color(STDOUT_FILENO), wants_color(STDERR_FILENO)},
    };
    int code, status;
    opterr = 0;
    optind = 1;
    /* '+': the options of COMMAND are its own. */
    while ((code = getopt_long(argc, argv, "+:n:s:H:t:e:a:hV", long_options, NULL)) != -1) {
        status = use_option(o, code, optarg, argv);
        if (status >= 0) {
            return status;
        }
    }
    if (o->part) {
        return bps_run_part_read(o);
    }
    o->command = argv + optind;
    if (!*o->command) {
        return bps_cmd_usage(BPS_RUN_NAME,
                             "no command to run; expected for example: byteps run -n 2 -- python3 train.py");
    }
    if (o->tee && !o->log_dir) {
        return bps_cmd_usage(BPS_RUN_NAME, "--tee needs --log-dir");
    }
    status = o->script ? use_script(o) : count_slots(o);
    if (status < 0) {
        status = use_configuration(o);
    }
    o->plan.count = o->plan.size = o->plan.workers;
    return status;
}
