/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environment.c - the variables of the original BytePS, by one table.
 *
 * What is set to the empty string counts as not set.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/report.h"
#include "conf/layer.h"
#include "conf/option.h"
#include "conf/source.h"
#include "conf/value.h"

#define MEMBERS_RANGE "1..65536"
#define INDEX_RANGE   "0..65535"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A variable that is set, on the way to the text of its key. */
struct conversion {
    const char *name, *value;
    char text[512]; /* left empty, it leaves the key alone */
    struct bps_report *report;
};

static bps_status environment_refuse(const struct conversion *c, const char *why)
{
    return bps_fail(c->report, BPS_ERR_CONF, "%s = %s: %s", c->name, bps_shown(c->value).text, why);
}

__attribute__((format(printf, 2, 3))) static bps_status convert_to(struct conversion *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->text, sizeof c->text, format, args);
    va_end(args);
    return BPS_OK;
}

/* A whole number within a range. */
static bps_status parse_number(const struct conversion *c, const char *range, int64_t *out)
{
    const struct bps_option row = {.name = c->name, .type = BPS_OPT_INT, .range = range};
    struct bps_report why;
    return bps_option_parse(&row, c->value, out, &why) == BPS_OK ? BPS_OK : environment_refuse(c, why.text);
}

/* The same of another variable; *out stays if that is not set. */
static bps_status read_number(const struct conversion *c, const char *name, const char *range, int64_t *out)
{
    const struct conversion other = {.name = name, .value = bps_variable(name), .report = c->report};
    return other.value == NULL ? BPS_OK : parse_number(&other, range, out);
}

/* ---- conversions ---- */

/* Pairs of words without regard to case: what the value may be and what it means. The last word is NULL. */
static bps_status convert_word(struct conversion *c, const char *const (*words)[2], const char *otherwise)
{
    for (; (*words)[0] != NULL; words++) {
        if (strcasecmp(c->value, (*words)[0]) == 0) {
            return convert_to(c, "%s", (*words)[1]);
        }
    }
    return environment_refuse(c, otherwise);
}

static bps_status convert_role(struct conversion *c)
{
    static const char *const roles[][2] = {
        {"worker", "worker"}, {"server", "server"}, {"scheduler", "scheduler"}, {NULL, NULL}};
    return convert_word(c, roles, "not a role; expected worker, server or scheduler");
}

static bps_status convert_level(struct conversion *c)
{
    static const char *const levels[][2] = {
        {"trace", "trace"}, {"debug", "debug"}, {"info", "info"},   {"warning", "warn"},
        {"warn", "warn"},   {"error", "error"}, {"fatal", "error"}, {NULL, NULL},
    };
    return convert_word(c, levels, "not a level; expected TRACE, DEBUG, INFO, WARNING, ERROR or FATAL");
}

/* The original counts machines, each with the same number of processes. */
static bps_status convert_workers(struct conversion *c)
{
    int64_t machines = 1, each = 1;
    bps_status status = read_number(c, c->name, MEMBERS_RANGE, &machines);
    if (status == BPS_OK) {
        status = read_number(c, "BYTEPS_LOCAL_SIZE", MEMBERS_RANGE, &each);
    }
    return status == BPS_OK ? convert_to(c, "%" PRId64, machines * each) : status;
}

/* The rank of a worker: its machine's number and its place there, which must be known if there are more. */
static bps_status convert_rank(struct conversion *c)
{
    const char *role = bps_variable("DMLC_ROLE");
    if (role != NULL && strcasecmp(role, "worker") != 0) {
        return BPS_OK;
    }
    int64_t machine = 0, each = 1, local = 0;
    bps_status status = read_number(c, c->name, INDEX_RANGE, &machine);
    if (status == BPS_OK) {
        status = read_number(c, "BYTEPS_LOCAL_SIZE", MEMBERS_RANGE, &each);
    }
    if (status == BPS_OK) {
        status = read_number(c, "BYTEPS_LOCAL_RANK", INDEX_RANGE, &local);
    }
    bool known = each == 1 || bps_variable("BYTEPS_LOCAL_RANK") != NULL;
    return status == BPS_OK && known ? convert_to(c, "%" PRId64, machine * each + local) : status;
}

/* Called for the host and for the port; both must be there. */
static bps_status convert_scheduler(struct conversion *c)
{
    const char *host = bps_variable("DMLC_PS_ROOT_URI");
    int64_t port = -1;
    bps_status status = read_number(c, "DMLC_PS_ROOT_PORT", INDEX_RANGE, &port);
    if (status != BPS_OK) {
        return status;
    }
    if (host == NULL || port < 0) {
        return bps_fail(c->report, BPS_ERR_CONF,
                        "%s = %s: %s is not set; expected both, the host and the port of the scheduler", c->name,
                        bps_shown(c->value).text, host == NULL ? "DMLC_PS_ROOT_URI" : "DMLC_PS_ROOT_PORT");
    }
    bool bare6 = host[0] != '[' && strchr(host, ':') != NULL;
    return convert_to(c, "%s%s%s:%" PRId64, bare6 ? "[" : "", host, bare6 ? "]" : "", port);
}

static bps_status convert_partition(struct conversion *c)
{
    int64_t bytes = 0;
    bps_status status = parse_number(c, "1..1073741824", &bytes);
    return status == BPS_OK ? convert_to(c, "%" PRId64, (bytes + 63) / 64 * 64) : status;
}

static bool wants_rdma(void)
{
    const char *value = bps_variable("DMLC_ENABLE_RDMA");
    bool wanted = false;
    return value != NULL && (strcasecmp(value, "ibverbs") == 0 || (bps_parse_bool(value, &wanted) == BPS_OK && wanted));
}

/* The original has several transports; of those, two are here: TCP and RDMA by verbs. */
static bps_status convert_transport(struct conversion *c)
{
    bool known;
    if (!wants_rdma() && strcasecmp(c->value, "zmq") != 0 && bps_parse_bool(c->value, &known) != BPS_OK) {
        return environment_refuse(c, "not a supported transport; expected 1 or ibverbs for RDMA, or 0");
    }
    return convert_to(c, "%s", wants_rdma() ? "verbs" : "");
}

/* The transport over RDMA goes by addresses, not by interfaces. */
static bps_status convert_interface(struct conversion *c)
{
    return convert_to(c, "%s", wants_rdma() ? "" : c->value);
}

/* An address of an interface of this host, IPv4 first. */
static bool find_address(const char *interface, char *text, size_t n)
{
    static const int families[] = {AF_INET, AF_INET6};
    struct ifaddrs *all;
    bool found = false;
    if (getifaddrs(&all) != 0) {
        return false;
    }
    for (size_t i = 0; i < COUNT(families) && !found; i++) {
        for (struct ifaddrs *at = all; at != NULL && !found; at = at->ifa_next) {
            if (at->ifa_addr != NULL && at->ifa_addr->sa_family == families[i] &&
                strcmp(at->ifa_name, interface) == 0) {
                const void *v4 = &((struct sockaddr_in *)(void *)at->ifa_addr)->sin_addr;
                const void *v6 = &((struct sockaddr_in6 *)(void *)at->ifa_addr)->sin6_addr;
                found = inet_ntop(families[i], i == 0 ? v4 : v6, text, (socklen_t)n) != NULL;
            }
        }
    }
    freeifaddrs(all);
    return found;
}

static bps_status convert_address(struct conversion *c)
{
    bool needed = wants_rdma() && bps_variable("DMLC_NODE_HOST") == NULL;
    if (needed && !find_address(c->value, c->text, sizeof c->text)) {
        return environment_refuse(c,
                                  "no network interface of this host with an address; expected one, or DMLC_NODE_HOST");
    }
    return BPS_OK;
}

/* The original binds for 1 and does not for anything else. */
static bps_status convert_numa(struct conversion *c)
{
    return convert_to(c, "%s", strcmp(c->value, "1") == 0 ? "on" : "off");
}

/* The original's default is -1, for none. */
static bps_status convert_blacklist(struct conversion *c)
{
    return convert_to(c, "%s", strcmp(c->value, "-1") == 0 ? "" : c->value);
}

/* A key that the variable gives this text if it says yes. */
static bps_status convert_switch(struct conversion *c, const char *text, const char *after)
{
    bool on = false;
    bps_status status = bps_parse_bool(c->value, &on);
    return status != BPS_OK ? environment_refuse(c, "expected 0 or 1")
           : on             ? convert_to(c, "%s%s", text, after)
                            : BPS_OK;
}

/* In the original's folder; which of its steps, unless other variables say so. */
static bps_status convert_trace(struct conversion *c)
{
    const char *folder = bps_variable("BYTEPS_TRACE_DIR");
    return convert_switch(c, folder != NULL ? folder : "./trace", "/");
}

static bps_status convert_trace_from(struct conversion *c)
{
    return convert_switch(c, "10", "");
}

static bps_status convert_trace_to(struct conversion *c)
{
    return convert_switch(c, "20", "");
}

/* What would train with other results than the program expects must not be passed over in silence. */
static bps_status refuse_missing(struct conversion *c, const char *what)
{
    bool wanted = strcasecmp(c->value, "none") != 0;
    if (!wanted || (bps_parse_bool(c->value, &wanted) == BPS_OK && !wanted)) {
        return BPS_OK;
    }
    return bps_fail(c->report, BPS_ERR_CONF,
                    "%s = %s: there is no %s yet, and training without it gives other results; unset the variable "
                    "to train without it",
                    c->name, bps_shown(c->value).text, what);
}

/* ---- the variables ---- */

struct variable {
    const char *name;
    const char *key;                             /* NULL: there is none, see missing */
    bps_status (*convert)(struct conversion *c); /* NULL: the value is the text */
    int64_t most;        /* the limit of a key that merely tunes: what is beyond it is taken as this; 0: none */
    const char *missing; /* what the variable asks for and is not here */
};

#define BY_VARIABLE "compression by a variable (byteps.conf and the dictionary of an optimizer have it)"

/* Later rows are stronger. */
static const struct variable variables[] = {
    {"DMLC_ROLE", "cluster.role", .convert = convert_role},
    {"DMLC_NUM_WORKER", "cluster.workers", .convert = convert_workers},
    {"DMLC_NUM_SERVER", .key = "cluster.servers"},
    {"DMLC_WORKER_ID", "cluster.rank", .convert = convert_rank},
    {"BYTEPS_GLOBAL_RANK", .key = "cluster.rank"},
    {"BYTEPS_LOCAL_RANK", .key = "cluster.local_rank"},
    {"BYTEPS_LOCAL_SIZE", .key = "cluster.local_size"},
    {"DMLC_PS_ROOT_PORT", "cluster.scheduler", .convert = convert_scheduler},
    {"DMLC_PS_ROOT_URI", "cluster.scheduler", .convert = convert_scheduler},
    {"BYTEPS_JOB_ID", .key = "cluster.job"},
    {"DMLC_ENABLE_RDMA", "transports.net.plugin", .convert = convert_transport},
    {"DMLC_INTERFACE", "transports.net.interface", .convert = convert_interface},
    {"DMLC_INTERFACE", "transports.net.host", .convert = convert_address},
    {"DMLC_NODE_HOST", .key = "transports.net.host"},
    {"BYTEPS_PARTITION_BYTES", "worker.partition", .convert = convert_partition, .most = 1 << 30},
    {"BYTEPS_NCCL_GROUP_SIZE", "worker.group_size", .most = 64},
    {"BYTEPS_SERVER_ENGINE_THREAD", "server.shards", .most = 256},
    {"BYTEPS_NUMA_ON", "affinity.numa", .convert = convert_numa},
    {"BYTEPS_VISIBLE_CPU_CORES", .key = "affinity.cores"},
    {"BYTEPS_CPU_BLACKLIST", "affinity.avoid", .convert = convert_blacklist},
    {"BYTEPS_NUMA_DEFAULT_QUOTA", "affinity.quota", .most = 8192},
    {"BYTEPS_NUMA_ROOT_QUOTA", "affinity.root_quota", .most = 8192},
    {"BYTEPS_LOG_LEVEL", "log.level", .convert = convert_level},
    {"BYTEPS_LOG_HIDE_TIME", .key = "log.hide_time"},
    {"BYTEPS_TRACE_ON", "trace.file", .convert = convert_trace},
    {"BYTEPS_TRACE_ON", "trace.from", .convert = convert_trace_from},
    {"BYTEPS_TRACE_ON", "trace.to", .convert = convert_trace_to},
    {"BYTEPS_TRACE_START_STEP", .key = "trace.from"},
    {"BYTEPS_TRACE_END_STEP", .key = "trace.to"},
    {"BYTESCHEDULER_TIMELINE", .key = "trace.file"},
    {"BYTEPS_ENABLE_ASYNC", .key = "worker.async"},
    {"BYTEPS_STALENESS", .key = "worker.staleness"},
    {"BYTEPS_INTRA_COMPRESSOR", .missing = BY_VARIABLE},
    {"BYTEPS_INTER_COMPRESSOR", .missing = BY_VARIABLE},
};
#define NVARIABLES (sizeof variables / sizeof *variables)

/* Read elsewhere. A '*' stands for any ending. */
static const char *const own[] = {
    "BYTEPS_FORCE_DISTRIBUTED", "BYTEPS_CONF",        "BYTEPS_SET",          "BYTEPS_PLUGIN_PATH",
    "BYTEPS_MODEL_PATH",        "BYTEPS_SCRIPT_PATH", "BYTEPS_PROGRAM",      "BYTEPS_MIN_COMPRESS_BYTES",
    BPS_SECRET_VARIABLE,        "BYTEPS_OUTER*",      "BYTEPS_MEETING_FILE", "BYTEPS_RESTART_COUNT",
    "BYTEPS_TRACE_DIR"};

/* Known from the original and its branches, without effect here. A '*' stands for any ending. */
/* clang-format off */
static const char *const idle[] = {
    "DMLC_PORT", "DMLC_NUM_PORTS", "DMLC_RANK", "DMLC_ENABLE_UCX", "DMLC_GROUP_SIZE",
    "DMLC_LOCAL", "DMLC_USE_KUBERNETES", "DMLC_LOCKLESS_QUEUE", "DMLC_POLLING_IN_NANOSECOND",
    "DMLC_NUM_CPU_DEV", "DMLC_NUM_GPU_DEV", "PS_VERBOSE", "PS_HEARTBEAT_INTERVAL",
    "PS_HEARTBEAT_TIMEOUT", "PS_RESEND", "PS_RESEND_TIMEOUT", "PS_DROP_MSG", "PS_KEY_LOG",
    "ENABLE_PROFILING", "PROFILE_PATH",
    "BYTEPS_SCHEDULING_CREDIT", "BYTEPS_KEY_HASH_FN", "BYTEPS_BUILT_IN_HASH_COEF",
    "BYTEPS_ENABLE_MIXED_MODE", "BYTEPS_MIXED_MODE_BOUND", "BYTEPS_ORDERED_HOSTS",
    "BYTEPS_THREADPOOL_SIZE", "BYTEPS_PCIE_SWITCH_SIZE", "BYTEPS_REDUCE_ROOTS",
    "BYTEPS_NCCL_NUM_RINGS", "BYTEPS_OMP_THREAD_PER_GPU", "BYTEPS_SOCKET_PATH",
    "BYTEPS_TELEMETRY_ON", "BYTEPS_DEBUG_SAMPLE_TENSOR", "BYTEPS_SERVER_ENGINE_BLOCKING",
    "BYTEPS_SERVER_ENABLE_SCHEDULE", "BYTEPS_SERVER_DEBUG", "BYTEPS_SERVER_DEBUG_KEY",
    "BYTEPS_ENABLE_IPC", "BYTEPS_IPC_COPY_NUM_THREADS", "BYTEPS_IPC_ENABLE_ASYNC_COPY",
    "BYTEPS_PRINT_RDMA_LOG", "BYTEPS_RDMA_MAX_CONCURR_WR", "BYTEPS_RDMA_START_DEPTH",
    "BYTEPS_RDMA_RX_DEPTH", "BYTEPS_ADDRESS_POOL_SIZE", "BYTEPS_ZMQ_MAX_SOCKET", "BYTEPS_ZMQ_NTHREADS",
    "BYTEPS_UCX_ERRH_ENABLE", "BYTEPS_UCX_RECONNECT_TMO", "BYTEPS_UCX_SHORT_THRESH",
    "BYTEPS_UCX_FORCE_REQ_ORDER", "BYTEPS_UCX_QUEUE_SENDS", "PSLITE_UCX_*", "BYTEPS_MULTITHREADED_CPU",
    "BYTEPS_ENABLE_GDB", "BYTEPS_NCCL_HOME",
    "BYTEPS_NCCL_INCLUDE", "BYTEPS_NCCL_LIB", "BYTEPS_NCCL_LINK", "BYTEPS_CUDA_HOME",
    "BYTEPS_CUDA_INCLUDE", "BYTEPS_CUDA_LIB", "BYTEPS_WITH_*", "BYTEPS_WITHOUT_*", "BYTEPS_UCX_HOME",
    "BYTEPS_UCX_PREFIX", "BYTEPS_UCX_TARBALL_PATH", "BYTEPS_USE_MPI", "BYTEPS_MPICXX_SHOW",
    "BYTEPS_NODE_ID", "BYTESCHEDULER_*", "BYTEPS_CPU_ONLY", "BYTEPS_ENABLE_XLA", "BYTEPS_SYNC_BN_GLOBAL",
    "BYTEPS_SKIP_SYNC_BN",
    "BYTEPS_COMPRESSOR_ERROR_FEEDBACK", "BYTEPS_COMPRESSOR_K", "BYTEPS_UUID", "BYTEPS_ABORT_ON_TIMEOUT",
    "BYTEPS_ENABLE_ERR_HANDLING", "BYTEPS_MONITOR_INTERVAL", "BYTEPS_LOG_FILE", "BYTEPS_LOG_UNBUFFERED",
    "BYTEPS_TELEMETRY_CAPACITY", "BYTEPS_TELEMETRY_INTERVAL",
    "BYTEPS_PIPESGD_WARMUP_ITER", "BYTEPS_FORCE_JOINT_MODE", "BYTEPS_JOINT_MODE",
    "BYTEPS_DISABLE_COMPRESS", "BYTEPS_DISABLE_CPU_ALLREDUCE", "BYTEPS_DISABLE_GPU_ALLREDUCE",
    "BYTEPS_DISABLE_GPU_ALLGATHER", "BYTEPS_DISABLE_P2P", "BYTEPS_DISABLE_P2P_ACK",
    "BYTEPS_DISABLE_SEND_RECV", "BYTEPS_ALLTOALL_*", "BYTEPS_BUCKET_SIZE_BYTES",
    "BYTEPS_P2P_PARTITION_BYTES", "BYTEPS_PIN_MEMORY", "BYTEPS_PIN_MEMORY_CPU",
    "BYTEPS_SERVER_DIRECT_RESPONSE", "BYTEPS_SERVER_LOCAL_ROOT", "BYTEPS_WORKER_LOCAL_ROOT",
    "BYTEPS_USE_GDR_*", "BYTEPS_GDR_*", "BYTEPS_NUM_NODES", "BYTEPS_NUMA_ID",
    "BYTEPS_ENCODING_SCHEME_VERSION", "BYTEPS_TF_GRADIENT_FUSION", "BYTEPS_USE_NVTX",
    "BYTEPS_VISIBLE_DEVICE", "BYTEPS_CUDA_REDUCER_NUM_BLOCK", "BYTEPS_CUDA_REDUCER_NUM_THREAD",
};
/* clang-format on */

/* What happens instead of what some of them ask for. */
static const struct {
    const char *name, *instead;
} replaced[] = {
    {"BYTEPS_PCIE_SWITCH_SIZE",
     ": the devices of a host are one group, in which NCCL detects PCIe switches and NVLink"},
    {"BYTEPS_REDUCE_ROOTS", ": each worker of a host leads its share of the partitions"},
};

static bool is_beyond(const struct variable *row, const char *value)
{
    int64_t number;
    return row->most != 0 && value[strspn(value, "0123456789")] == '\0' &&
           (bps_parse_int(value, &number) != BPS_OK || number > row->most);
}

/* ---- the layer ---- */

static bps_status layer_variable(struct bps_conf *conf, const struct variable *row, struct bps_report *report)
{
    const char *value = bps_variable(row->name);
    struct conversion c = {.name = row->name, .value = value, .report = report};
    char limit[24];
    if (value == NULL) {
        return BPS_OK;
    }
    if (row->missing != NULL) {
        return refuse_missing(&c, row->missing);
    }
    if (is_beyond(row, value)) {
        snprintf(limit, sizeof limit, "%" PRId64, row->most);
        c.value = limit;
    }
    if (row->convert != NULL) {
        bps_status status = row->convert(&c);
        if (status != BPS_OK || c.text[0] == '\0') {
            return status;
        }
        c.value = c.text;
    }
    bps_source_tell(conf->sources, row->name, false);
    return bps_layer_scalar(conf, row->key, c.value, row->name, report);
}

bps_status bps_layer_environment(struct bps_conf *conf, struct bps_report *report)
{
    for (size_t i = 0; i < NVARIABLES; i++) {
        bps_status status = layer_variable(conf, &variables[i], report);
        if (status != BPS_OK) {
            return status;
        }
    }
    return BPS_OK;
}

/* ---- notes ---- */

static bool matches(const char *pattern, const char *name)
{
    size_t n = strlen(pattern);
    return pattern[n - 1] == '*' ? strncmp(pattern, name, n - 1) == 0 : strcmp(pattern, name) == 0;
}

static bool environment_is_among(const char *const *patterns, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (matches(patterns[i], name)) {
            return true;
        }
    }
    return false;
}

/* Every known name without a '*'. */
static size_t known_names(const char *known[NVARIABLES + COUNT(own) + COUNT(idle)])
{
    size_t n = 0;
    for (size_t i = 0; i < NVARIABLES; i++) {
        known[n++] = variables[i].name;
    }
    for (size_t i = 0; i < COUNT(own); i++) {
        if (strchr(own[i], '*') == NULL) {
            known[n++] = own[i];
        }
    }
    for (size_t i = 0; i < COUNT(idle); i++) {
        if (strchr(idle[i], '*') == NULL) {
            known[n++] = idle[i];
        }
    }
    return n;
}

static const char *after_prefix(const char *name)
{
    const char *bar = strchr(name, '_');
    return bar == NULL ? name : bar + 1;
}

/* Prefixes are not compared: they would make any two names look alike. */
static void note_unknown(const char *name, void (*fn)(void *arg, const char *text), void *arg)
{
    const char *known[NVARIABLES + COUNT(own) + COUNT(idle)], *rests[COUNT(known)];
    size_t n = known_names(known);
    for (size_t i = 0; i < n; i++) {
        rests[i] = after_prefix(known[i]);
    }
    const char *nearest = bps_nearest(after_prefix(name), rests, n);
    char text[512];
    snprintf(text, sizeof text, "%.200s is set, but is not a known variable", name);
    for (size_t i = 0; nearest != NULL && i < n; i++) {
        if (rests[i] == nearest) {
            snprintf(text, sizeof text, "%.200s is set, but is not a known variable; did you mean %s?", name, known[i]);
            break;
        }
    }
    fn(arg, text);
}

static const char *instead_of(const char *name)
{
    for (size_t i = 0; i < COUNT(replaced); i++) {
        if (strcmp(replaced[i].name, name) == 0) {
            return replaced[i].instead;
        }
    }
    return "";
}

static void note_limit(const struct variable *row, void (*fn)(void *arg, const char *text), void *arg)
{
    const char *value = bps_variable(row->name);
    if (value != NULL && is_beyond(row, value)) {
        char text[512];
        snprintf(text, sizeof text, "%s = %s exceeds the limit and is taken as %" PRId64, row->name,
                 bps_shown(value).text, row->most);
        fn(arg, text);
    }
}

static void note_variable(const char *name, void (*fn)(void *arg, const char *text), void *arg)
{
    for (size_t i = 0; i < NVARIABLES; i++) {
        if (strcmp(variables[i].name, name) == 0) {
            note_limit(&variables[i], fn, arg);
            return;
        }
    }
    if (environment_is_among(own, COUNT(own), name)) {
        return;
    }
    if (environment_is_among(idle, COUNT(idle), name)) {
        char text[512];
        snprintf(text, sizeof text, "%.200s is set, but has no effect%s", name, instead_of(name));
        fn(arg, text);
    } else if (strncmp(name, "DMLC_", 5) == 0 || strncmp(name, "BYTEPS_", 7) == 0) {
        note_unknown(name, fn, arg);
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void bps_environment_notes(void (*fn)(void *arg, const char *text), void *arg)
{
    size_t n = 0;
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        n++;
    }
    char **sorted = malloc((n + 1) * sizeof *sorted);
    if (sorted == NULL) {
        return;
    }
    memcpy(sorted, environ, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_text);
    for (size_t i = 0; i < n; i++) {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(sorted[i], "="), sorted[i]);
        note_variable(name, fn, arg);
    }
    free(sorted);
}
