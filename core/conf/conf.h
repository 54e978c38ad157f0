/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf.h - the configuration of this process: layers merged into one tree, checked against option tables.
 *
 * Layers, weakest first: defaults; SYSCONFDIR/byteps/byteps.conf; conf.d/ *.conf beside it, in order of name;
 * the file of --conf or $BYTEPS_CONF; the old DMLC_ and BYTEPS_ variables; $BYTEPS_SET (lines key=value, what
 * `byteps run` passes on); --set. Groups merge, everything else replaces. Each value knows its origin.
 *
 * A configuration is built once and then read only; reading is thread-safe.
 */
#ifndef BPS_CONF_CONF_H
#define BPS_CONF_CONF_H

#include <stdbool.h>
#include <stdio.h>

#include <byteps/plugin.h>

#include "conf/secret.h"

/* One value of the tree. Group members and list items are its children. */
struct bps_conf_node {
    const char *name;   /* key within its group; NULL for list items and the root */
    const char *text;   /* scalars: as written; NULL for groups and lists */
    const char *origin; /* "default", "/etc/byteps/byteps.conf:12", "DMLC_NUM_WORKER", "--set" */
    uint32_t kind;      /* BPS_CONF_SCALAR, _LIST or _GROUP */
    uint32_t count;     /* children */
    struct bps_conf_node **children;
};
#define BPS_CONF_SCALAR 0u
#define BPS_CONF_LIST   1u
#define BPS_CONF_GROUP  2u

/* ---- the core's own sections ---- */

#define BPS_ROLE_WORKER    0u
#define BPS_ROLE_SERVER    1u
#define BPS_ROLE_SCHEDULER 2u

#define BPS_COLOCATED_AUTO  0u
#define BPS_COLOCATED_NONE  1u
#define BPS_COLOCATED_FIRST 2u /* worker 0 */
#define BPS_COLOCATED_HOSTS 3u /* the first worker on each host that has no server */
#define BPS_COLOCATED_ALL   4u

#define BPS_CHECKSUM_NONE    0u
#define BPS_CHECKSUM_BLAKE2S 1u
#define BPS_CHECKSUM_GMAC    2u

struct bps_conf_cluster {
    uint32_t role;           /* BPS_ROLE_* */
    const char *scheduler;   /* "host:port"; "" for a job of this process alone */
    const char *ports;       /* bps_conf.ports as text */
    const char *job;         /* a word that tells jobs apart */
    const char *secret_file; /* "": none; $BYTEPS_SECRET counts more */
    uint32_t checksum;       /* of each frame: BPS_CHECKSUM_* */
    bool encrypt;            /* all that leaves a host */
    const char *alive_file;  /* whose time this process renews; "": none */
    int64_t workers;
    int64_t min_workers;         /* that must be left for the job to go on when others are lost; 0: it is not elastic */
    int64_t max_workers;         /* that an elastic job takes; 0: as many as it begins with */
    int64_t servers;             /* processes of their own */
    uint32_t colocated;          /* BPS_COLOCATED_* */
    int64_t rank;                /* wanted rank; -1: the scheduler chooses */
    int64_t local_rank;          /* -1: the scheduler counts */
    int64_t local_size;          /* -1 likewise */
    uint64_t rendezvous_timeout; /* ns */
    uint64_t peer_timeout;       /* ns without a sign of life after which a member is lost */
    uint64_t stall_warning;      /* ns a tensor waits before it is reported; 0: never */
    uint64_t stall_timeout;      /* ns a tensor waits before it fails; 0: never */
    bool failover;               /* the job goes on without a server that is lost */
    bool stay;                   /* scheduler and servers wait for a next generation when all workers have left */
};

#define BPS_ORDER_ARRIVAL 0u
#define BPS_ORDER_RANK    1u

#define BPS_HIERARCHY_AUTO 0u
#define BPS_HIERARCHY_ON   1u
#define BPS_HIERARCHY_OFF  2u

#define BPS_DEVICE_GROUPS_AUTO 0u
#define BPS_DEVICE_GROUPS_ON   1u
#define BPS_DEVICE_GROUPS_OFF  2u

struct bps_conf_worker {
    uint32_t hierarchy;     /* BPS_HIERARCHY_* */
    int64_t staleness;      /* in mode async: pushes that a worker may be behind; -1: any number */
    bool async;             /* optimizers push changes of parameters, which the servers keep */
    bool round_on_host;     /* sums of float16 and bfloat16, before they cross the network */
    uint64_t partition;     /* bytes; a multiple of 64 */
    uint64_t slice;         /* bytes; a multiple of 64, at most partition */
    uint64_t credit;        /* bytes; 0: unbounded */
    struct bps_list use;    /* names of the reducers that reach the memory of tensors, in order of preference */
    uint32_t device_groups; /* BPS_DEVICE_GROUPS_* */
    int64_t group_size;     /* steps that the devices of a group are given at once */
    int64_t threads;        /* of the pool for what computes; 0: as many as cores, at most 4 */
};

struct bps_conf_server {
    int64_t shards;      /* 0: by the number of cores */
    struct bps_list use; /* names of reducers, in order of preference */
    uint32_t order;      /* BPS_ORDER_* */
    const char *quorum;  /* contributions with which a round ends: "n", or "n-1" and so on */
    uint32_t backups;    /* that is how many less than all */
    double bandwidth;    /* of this host's link, relative to the others; 0: not told */
    bool local;          /* servers of the own host are reached through the transport between processes of a host */
};

#define BPS_NUMA_AUTO 0u
#define BPS_NUMA_ON   1u
#define BPS_NUMA_OFF  2u

struct bps_conf_affinity {
    uint32_t numa;            /* BPS_NUMA_* */
    const char *cores;        /* lists for bps_cpus_list(); "": all that the process may use */
    const char *server_cores; /* likewise; "": those of the process */
    const char *avoid;        /* one list */
    int64_t quota;            /* cores of a worker process that is bound as a whole; 0: its share */
    int64_t root_quota;       /* the same of the host's last worker; 0: as quota */
    const char *sysfs;        /* where the topology is read */
};

struct bps_conf_log {
    uint32_t level; /* BPS_LOG_* - 1: index into error|warn|info|debug|trace */
    bool hide_time;
    struct bps_list levels, calls; /* of instances of plugins: see log_of.h */
};

struct bps_conf_plugins {
    bool guard; /* blocks that they get end at pages that cannot be touched: see pool.h */
};

struct bps_conf_trace {
    const char *file; /* of the timeline; "": none */
    int64_t from, to; /* steps; to -1: the last one */
};

struct bps_port_range {
    uint32_t first, last;
};

/* The memory of a configuration, which goes with it. */
struct bps_arena {
    struct bps_arena_block *blocks;
};

/*
 * Told of all that a configuration is read from, what is stronger later: files and what they include, variables of the
 * original, "BYTEPS_SET", "--set".
 */
struct bps_conf_sources {
    void (*source)(void *arg, const char *name, bool is_file);
    void *arg;
};

struct bps_conf {
    struct bps_conf_cluster cluster;
    struct bps_conf_worker worker;
    struct bps_conf_server server;
    struct bps_conf_affinity affinity;
    struct bps_conf_log log;
    struct bps_conf_plugins plugins;
    struct bps_conf_trace trace;
    struct bps_port_range ports; /* to listen on where an address leaves that open; 0 and 0: any */
    bool has_secret;
    uint8_t secret[BPS_SECRET_BYTES]; /* of the job; zeros: it has none, and is one of this host */
    const char *launcher;             /* "torchrun": this is one of several processes of it; NULL: of none */
    struct bps_conf_node *root;       /* of everything, plugin options included: see bps_conf_find() */
    struct bps_arena arena;
    const struct bps_conf_sources *sources; /* while it is loaded; NULL: nobody wants to know */
};

/*
 * Loads, merges and checks everything except plugin options, which are checked when the plugin is opened (and
 * by `byteps conf check`). `file` NULL: $BYTEPS_CONF. `set`: n strings "key=value". The report names
 * file:line, key, the value found, what is allowed, and the nearest known key.
 */
bps_status bps_conf_load(const char *file, const char *const *set, size_t n, struct bps_conf **out,
                         struct bps_report *report);
void bps_conf_free(struct bps_conf *conf);

/* Sets a key of the section `cluster` to what was learnt later; nobody else reads the configuration meanwhile. */
bps_status bps_conf_put_cluster(struct bps_conf *conf, const char *key, const char *text, const char *origin,
                                struct bps_report *report);

/* The node of a dotted path ("transports.net.plugin", "worker.graph"), defaults included; or NULL. */
const struct bps_conf_node *bps_conf_find(const struct bps_conf *conf, const char *path);
/* A member of a group by name, or NULL. */
const struct bps_conf_node *bps_conf_member(const struct bps_conf_node *group, const char *name);

/*
 * Fills a plugin's option struct from the members of `group` (NULL: defaults only). Members named in `skip`
 * (NULL-terminated; such as "plugin", "stage", "when", "use") are not options. `path` stands for the
 * group in errors.
 */
bps_status bps_conf_options(const struct bps_conf_node *group, const char *path, const char *const *skip,
                            const struct bps_option *table, void *target, struct bps_report *report);
/* The same for who wants to hear of every problem; the report has the first one. */
struct bps_conf_listener {
    void (*problem)(void *arg, const char *text);
    void *arg;
};
bps_status bps_conf_options_all(const struct bps_conf_node *group, const char *path, const char *const *skip,
                                const struct bps_option *table, void *target, const struct bps_conf_listener *listener,
                                struct bps_report *report);

/*
 * The values that must agree on all members, one "key = value" line each, in a fixed order: core keys with
 * BPS_OPT_AGREE, and worker.graph as text. Freed by the caller; NULL: no memory.
 */
char *bps_conf_agreement(const struct bps_conf *conf);

/* Calls fn for every core key with its canonical text and origin, in the order of the tables. */
void bps_conf_each(const struct bps_conf *conf,
                   void (*fn)(void *arg, const char *key, const char *text, const char *origin,
                              const struct bps_option *option),
                   void *arg);

/* The directory of system-wide configuration, for messages and documents. */
const char *bps_conf_dir(void);

#endif
