/* SPDX-License-Identifier: Apache-2.0 */
/* together.c - what values demand of each other, and the defaults that depend on other values. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpus.h"
#include "base/log_of.h"
#include "conf/layer.h"
#include "conf/option.h"
#include "conf/validate.h"
#include "conf/value.h"

#define GRAIN   64u /* bytes: partitions and slices begin at multiples of it */
#define JOB_MAX 63u

/* Notes a problem of the value at a path: "ORIGIN: PATH = VALUE: why". */
__attribute__((format(printf, 3, 4))) static void problem_at(struct bps_check *check, const char *path,
                                                             const char *format, ...)
{
    const struct bps_conf_node *node = bps_conf_find(check->conf, path);
    char why[500];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    if (node == NULL) {
        bps_check_problem(check, "default", "%s: %s", path, why);
    } else {
        bps_check_problem(check, node->origin, "%s: %s", bps_node_subject(path, "", node).text, why);
    }
}

static bool together_is_default(const struct bps_check *check, const char *path)
{
    const struct bps_conf_node *node = bps_conf_find(check->conf, path);
    return node == NULL || strcmp(node->origin, "default") == 0;
}

/* Puts a derived default into the tree, so that the tree and the structs agree. */
static void put_default(struct bps_check *check, const char *path, const char *value)
{
    if (bps_layer_scalar(check->conf, path, value, "default", check->report) != BPS_OK) {
        check->status = BPS_ERR_NOMEM;
    }
}

/* ---- sizes ---- */

static void check_grain(struct bps_check *check, const char *path, uint64_t bytes)
{
    if (bytes % GRAIN != 0) {
        problem_at(check, path, "not a multiple of %u bytes; the nearest are %" PRIu64 " and %" PRIu64, GRAIN,
                   bytes / GRAIN * GRAIN, (bytes / GRAIN + 1) * GRAIN);
    }
}

static void check_sizes(struct bps_check *check)
{
    struct bps_conf_worker *worker = &check->conf->worker;
    char partition[32];
    bps_format_size(worker->partition, partition, sizeof partition);
    check_grain(check, "worker.partition", worker->partition);
    if (worker->slice > worker->partition && together_is_default(check, "worker.slice")) {
        worker->slice = worker->partition;
        put_default(check, "worker.slice", partition);
        return;
    }
    check_grain(check, "worker.slice", worker->slice);
    if (worker->slice > worker->partition) {
        problem_at(check, "worker.slice", "larger than worker.partition, which is %s; expected %u..%s", partition,
                   GRAIN, partition);
    }
}

/* ---- logging ---- */

static void check_levels(struct bps_check *check)
{
    const struct bps_list *levels = &check->conf->log.levels;
    size_t length;
    for (uint32_t i = 0; i < levels->count; i++) {
        if (bps_log_of_parse(levels->items[i], &length) == 0) {
            problem_at(check, "log.levels",
                       "'%.80s' is not NAME=LEVEL; expected an instance or a plugin and error, warn, info, debug or "
                       "trace, such as net=debug",
                       levels->items[i]);
        }
    }
}

/* ---- members ---- */

static void check_elastic(struct bps_check *check)
{
    const struct bps_conf *conf = check->conf;
    const struct bps_conf_cluster *c = &conf->cluster;
    if (c->min_workers > c->workers) {
        problem_at(check, "cluster.min_workers", "more than cluster.workers, which is %" PRId64, c->workers);
    }
    if (c->max_workers > 0 && c->min_workers == 0) {
        problem_at(check, "cluster.max_workers", "only for elastic jobs, those with cluster.min_workers");
    } else if (c->max_workers > 0 && c->max_workers < c->workers) {
        problem_at(check, "cluster.max_workers", "less than cluster.workers, which is %" PRId64, c->workers);
    }
    if (c->min_workers > 0 && conf->worker.hierarchy == BPS_HIERARCHY_ON) {
        problem_at(check, "worker.hierarchy",
                   "workers of an elastic job (cluster.min_workers) sum one by one: expected auto or off");
    }
}

static void check_ranks(struct bps_check *check)
{
    const struct bps_conf_cluster *cluster = &check->conf->cluster;
    bool server = cluster->role == BPS_ROLE_SERVER;
    int64_t workers = cluster->max_workers > cluster->workers ? cluster->max_workers : cluster->workers;
    int64_t members = server ? cluster->servers : workers;
    if (cluster->role != BPS_ROLE_SCHEDULER && cluster->rank >= members) {
        problem_at(check, "cluster.rank", "out of range; expected -1..%" PRId64 ", because cluster.%s = %" PRId64,
                   members - 1, server ? "servers" : "workers", members);
    }
    if (cluster->local_size == 0) {
        problem_at(check, "cluster.local_size", "out of range; expected -1 or 1..32768");
    }
    if (cluster->local_size > 0 && cluster->local_rank >= cluster->local_size) {
        problem_at(check, "cluster.local_rank",
                   "out of range; expected -1..%" PRId64 ", because cluster.local_size = %" PRId64,
                   cluster->local_size - 1, cluster->local_size);
    }
}

/* Somebody must sum. */
static void check_colocated(struct bps_check *check)
{
    const struct bps_conf_cluster *cluster = &check->conf->cluster;
    bool alone = cluster->workers == 1 && cluster->scheduler[0] == '\0';
    if (cluster->colocated == BPS_COLOCATED_NONE && cluster->servers == 0 && !alone && !check->request->incomplete) {
        problem_at(check, "cluster.colocated",
                   "the job would have no server, because cluster.servers = 0; expected auto, first, "
                   "hosts or all");
    }
}

static void check_job(struct bps_check *check)
{
    const char *job = check->conf->cluster.job;
    size_t n = strspn(job, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    if (n == 0 || n > JOB_MAX || job[n] != '\0') {
        problem_at(check, "cluster.job", "not a word; expected 1..%u letters, digits, '.', '_' or '-'", JOB_MAX);
    }
}

/* ---- the scheduler's address ---- */

/* "HOST:PORT" or "[HOST]:PORT". Only the scheduler itself may leave the choice of the port to the system. */
static const char *address_fault(const char *address, bool any_port)
{
    const char *colon = strrchr(address, ':');
    int64_t port;
    if (colon == NULL || colon == address || strpbrk(address, " \t/") != NULL) {
        return "not an address";
    }
    if (address[0] == '[' ? colon[-1] != ']' : memchr(address, ':', (size_t)(colon - address)) != NULL) {
        return "not an address, as an IPv6 host stands in brackets";
    }
    if (strspn(colon + 1, "0123456789") != strlen(colon + 1) || bps_parse_int(colon + 1, &port) != BPS_OK ||
        port > 65535 || (port == 0 && !any_port)) {
        return "not a port";
    }
    return NULL;
}

static void check_scheduler(struct bps_check *check)
{
    struct bps_conf_cluster *cluster = &check->conf->cluster;
    bool alone = cluster->role == BPS_ROLE_WORKER && cluster->workers == 1 && cluster->servers == 0;
    bool meets = check->conf->launcher != NULL;
    if (cluster->scheduler[0] != '\0') {
        const char *fault = address_fault(cluster->scheduler, cluster->role == BPS_ROLE_SCHEDULER);
        if (fault != NULL) {
            problem_at(check, "cluster.scheduler",
                       "%s; expected HOST:PORT, such as \"10.0.0.1:9000\" or \"[fd00::1]:9000\"", fault);
        }
        return;
    }
    if (alone || meets || check->request->incomplete) {
        return;
    }
    const char *path = cluster->role != BPS_ROLE_WORKER ? "cluster.role"
                       : cluster->workers > 1           ? "cluster.workers"
                                                        : "cluster.servers";
    problem_at(check, path,
               "the address of the scheduler is not set; start the job with byteps run, or set cluster.scheduler = "
               "\"HOST:PORT\"");
}

/* ---- a quorum ---- */

static void check_quorum(struct bps_check *check)
{
    const char *text = check->conf->server.quorum;
    char backups[5] = "0";
    int end = 0;
    bool less = sscanf(text, "n-%4[0-9]%n", backups, &end) == 1 && text[end] == '\0';
    if (!less && strcmp(text, "n") != 0) {
        problem_at(check, "server.quorum", "not a number of workers; expected \"n\", or less such as \"n-1\"");
    }
    check->conf->server.backups = (uint32_t)strtoul(backups, NULL, 10);
}

/* ---- ports ---- */

/* Reads a number of 1..65535; returns what follows it, or NULL. */
static const char *read_port(const char *text, uint32_t *out)
{
    size_t digits = strspn(text, "0123456789");
    *out = digits > 0 && digits <= 5 ? (uint32_t)strtoul(text, NULL, 10) : 0;
    return *out >= 1 && *out <= 65535 ? text + digits : NULL;
}

static void check_ports(struct bps_check *check)
{
    struct bps_port_range *ports = &check->conf->ports;
    const char *text = check->conf->cluster.ports;
    if (*text == '\0') {
        return;
    }
    const char *rest = read_port(text, &ports->first);
    ports->last = ports->first;
    if (rest != NULL && *rest == '-') {
        rest = read_port(rest + 1, &ports->last);
    }
    if (rest == NULL || *rest != '\0' || ports->first > ports->last) {
        problem_at(check, "cluster.ports", "not ports; expected one of 1..65535, or several such as \"7000-7100\"");
    }
}

/* ---- the secret ---- */

static void check_secret(struct bps_check *check)
{
    struct bps_conf *conf = check->conf;
    const char *text = getenv(BPS_SECRET_VARIABLE), *path = conf->cluster.secret_file;
    struct bps_report why = {""};
    if (text != NULL && text[0] != '\0') {
        if (bps_secret_of_text(text, strlen(text), conf->secret, &why) != BPS_OK) {
            bps_check_problem(check, BPS_SECRET_VARIABLE, "%.400s", why.text);
        }
    } else if (path[0] != '\0') {
        if (bps_secret_of_file(path, conf->secret, &why) != BPS_OK) {
            problem_at(check, "cluster.secret_file", "%.400s", why.text);
        }
    } else {
        return;
    }
    conf->has_secret = true;
}

static void check_encrypt(struct bps_check *check)
{
    const struct bps_conf_cluster *cluster = &check->conf->cluster;
    if (cluster->encrypt && cluster->checksum != BPS_CHECKSUM_NONE) {
        problem_at(check, "cluster.checksum",
                   "redundant, because cluster.encrypt = true already authenticates each frame; expected none");
    }
}

/* ---- cores ---- */

/* Only the notation: which cores there are is known where they are used. */
static void check_lists(struct bps_check *check, const char *path, const char *text, bool several)
{
    hwloc_cpuset_t cpus = hwloc_bitmap_alloc();
    struct bps_report why = {""};
    unsigned n = bps_cpus_lists(text);
    if (n > 1 && !several) {
        problem_at(check, path, "several lists; expected one, such as \"0-3,8\"");
        n = 0;
    }
    for (unsigned i = 0; cpus != NULL && i < n; i++) {
        if (bps_cpus_list(text, i, cpus, &why) != BPS_OK) {
            problem_at(check, path, "%.400s", why.text);
            break;
        }
    }
    hwloc_bitmap_free(cpus);
}

static void check_cores(struct bps_check *check)
{
    const struct bps_conf_affinity *affinity = &check->conf->affinity;
    check_lists(check, "affinity.cores", affinity->cores, true);
    check_lists(check, "affinity.server_cores", affinity->server_cores, true);
    check_lists(check, "affinity.avoid", affinity->avoid, false);
}

/* A scheduler without an address chooses one on this machine. */
static bps_status default_address(struct bps_check *check)
{
    struct bps_conf_cluster *cluster = &check->conf->cluster;
    if (cluster->role != BPS_ROLE_SCHEDULER || cluster->scheduler[0] != '\0') {
        return BPS_OK;
    }
    static const char address[] = "127.0.0.1:0";
    const struct bps_option *row = bps_option_find(bps_sections[0].table, "scheduler");
    put_default(check, "cluster.scheduler", address);
    return bps_option_parse(row, address, cluster, check->report);
}

void bps_check_together(struct bps_check *check)
{
    typedef void (*check_fn)(struct bps_check *check);
    static const check_fn checks[] = {check_sizes,     check_levels, check_ranks,     check_elastic,
                                      check_colocated, check_job,    check_scheduler, check_quorum,
                                      check_ports,     check_secret, check_encrypt,   check_cores};
    bps_status status = default_address(check);
    if (status != BPS_OK) {
        check->status = status;
    }
    bps_check_launcher(check);
    for (size_t i = 0; i < sizeof checks / sizeof *checks && !bps_check_is_over(check); i++) {
        checks[i](check);
    }
}
