/* SPDX-License-Identifier: Apache-2.0 */
/* schema.c - the tables of the core's own keys. Messages, samples and documents come from here. */
#include "conf/schema.h"

static const struct bps_option cluster_table[] = {
    {"role", BPS_OPT_CHOICE, 0, offsetof(struct bps_conf_cluster, role), "worker", "worker|server|scheduler",
     "What this process is; byteps run sets it."},
    {"scheduler", BPS_OPT_STRING, 0, offsetof(struct bps_conf_cluster, scheduler), "", NULL,
     "Address of the scheduler, HOST:PORT; empty for a job of this process alone."},
    {"ports", BPS_OPT_STRING, 0, offsetof(struct bps_conf_cluster, ports), "", NULL,
     "Ports to listen on, FIRST-LAST or a single one: shards take the first that is free, and so does a scheduler "
     "whose "
     "address has port 0; empty: any."},
    {"job", BPS_OPT_STRING, BPS_OPT_AGREE, offsetof(struct bps_conf_cluster, job), "default", NULL,
     "Name of the job: members of different jobs refuse each other."},
    {"secret_file", BPS_OPT_STRING, 0, offsetof(struct bps_conf_cluster, secret_file), "", NULL,
     "A file with the secret of the job, which only its owner may read; $BYTEPS_SECRET takes precedence. Only "
     "processes "
     "that know it may join. byteps run makes one for each job; without any, all members must be on one host."},
    {"checksum", BPS_OPT_CHOICE, BPS_OPT_AGREE, offsetof(struct bps_conf_cluster, checksum), "none",
     "none|blake2s|gmac",
     "All that travels between members has a checksum, and what does not match it is not used: blake2s finds what has "
     "changed on its way by chance; gmac, which is faster, also what somebody without the secret has changed."},
    {"encrypt", BPS_OPT_BOOL, BPS_OPT_AGREE, offsetof(struct bps_conf_cluster, encrypt), "false", NULL,
     "All that travels between members is encrypted and authenticated (AES-256-GCM, with keys that come from the "
     "secret of the job, which all must be given), but for shared memory within a host; what has changed on its way is "
     "not used."},
    {"alive_file", BPS_OPT_STRING, 0, offsetof(struct bps_conf_cluster, alive_file), "", NULL,
     "A file whose time this process renews each second while it is in a job or waits for one, for probes such as "
     "those "
     "of Kubernetes; empty: none."},
    {"workers", BPS_OPT_INT, BPS_OPT_AGREE, offsetof(struct bps_conf_cluster, workers), "1", "1..32768",
     "Number of workers, which are the training processes."},
    {"min_workers", BPS_OPT_INT, BPS_OPT_AGREE, offsetof(struct bps_conf_cluster, min_workers), "0", "0..32768",
     "The job goes on without workers that are lost, or have left, as long as this many are left or come: what is in "
     "flight fails, and the others reform (an elastic job; each worker sums by itself, as with worker.hierarchy = "
     "\"off\"); 0: the job ends."},
    {"max_workers", BPS_OPT_INT, BPS_OPT_AGREE, offsetof(struct bps_conf_cluster, max_workers), "0", "0..32768",
     "How many workers an elastic job has at most: more than cluster.workers may come later; 0: none."},
    {"servers", BPS_OPT_INT, BPS_OPT_AGREE, offsetof(struct bps_conf_cluster, servers), "0", "0..16384",
     "Number of server processes; workers may host servers as well, see colocated."},
    {"colocated", BPS_OPT_CHOICE, BPS_OPT_AGREE, offsetof(struct bps_conf_cluster, colocated), "auto",
     "auto|none|first|hosts|all",
     "Which workers host a server: none, the first, the first on each host without a server, or all; auto: "
     "as many as relieve the network."},
    {"rank", BPS_OPT_INT, 0, offsetof(struct bps_conf_cluster, rank), "-1", "-1..32767",
     "The rank that this process wants; -1: the scheduler chooses."},
    {"local_rank", BPS_OPT_INT, 0, offsetof(struct bps_conf_cluster, local_rank), "-1", "-1..32767",
     "Its rank among the workers on its host; -1: the scheduler counts."},
    {"local_size", BPS_OPT_INT, 0, offsetof(struct bps_conf_cluster, local_size), "-1", "-1..32768",
     "Number of workers on its host; -1: the scheduler counts."},
    {"rendezvous_timeout", BPS_OPT_TIME, 0, offsetof(struct bps_conf_cluster, rendezvous_timeout), "2 min", "1 s..24 h",
     "How long a process waits until all members of the job are there."},
    {"peer_timeout", BPS_OPT_TIME, 0, offsetof(struct bps_conf_cluster, peer_timeout), "20 s", "1 s..1 h",
     "A member that sends no heartbeat for this long is lost, as is one with a thread that is stuck for as long."},
    {"stall_warning", BPS_OPT_TIME, 0, offsetof(struct bps_conf_cluster, stall_warning), "60 s", "0 s..168 h",
     "A tensor that waits this long, or a call into a plugin that lasts so long, is reported; 0: never."},
    {"stall_timeout", BPS_OPT_TIME, 0, offsetof(struct bps_conf_cluster, stall_timeout), "30 min", "0 s..168 h",
     "A tensor that waits this long fails, a call into a plugin that lasts so long ends its process; 0: never."},
    {"failover", BPS_OPT_BOOL, BPS_OPT_AGREE, offsetof(struct bps_conf_cluster, failover), "true", NULL,
     "The job goes on without a server that is lost, as long as another one is left: its share goes to these, and "
     "workers keep a copy of the last result of what it sums; false: the job ends."},
    {"stay", BPS_OPT_BOOL, 0, offsetof(struct bps_conf_cluster, stay), "false", NULL,
     "Scheduler and servers wait for the next generation when all workers have left."},
    {0},
};

static const struct bps_option worker_table[] = {
    {"partition", BPS_OPT_SIZE, BPS_OPT_AGREE, offsetof(struct bps_conf_worker, partition), "4 MiB", "64..1 GiB",
     "Tensors are cut where the shares of the servers end, and into partitions of at most this size, a multiple of "
     "64; those that are coded, into partitions of this size only."},
    {"slice", BPS_OPT_SIZE, BPS_OPT_AGREE, offsetof(struct bps_conf_worker, slice), "48 KiB", "64..1 GiB",
     "Partitions are sent and summed in slices of at most this size, a multiple of 64."},
    {"credit", BPS_OPT_SIZE, 0, offsetof(struct bps_conf_worker, credit), "192 KiB", "0..1 TiB",
     "Maximum unacknowledged bytes per shard, averaged over the shards in proportion to what each sums; the "
     "window adapts to the round-trip time, and more urgent data may exceed it; 0: no limit."},
    {"hierarchy", BPS_OPT_CHOICE, BPS_OPT_AGREE, offsetof(struct bps_conf_worker, hierarchy), "auto", "auto|on|off",
     "Workers of one host sum among themselves first, in the stages local_reduce and local_broadcast: auto "
     "where a host has several of them and the transport between them works; on: an error where it does not; "
     "off: never."},
    {"round_on_host", BPS_OPT_BOOL, BPS_OPT_AGREE, offsetof(struct bps_conf_worker, round_on_host), "true", NULL,
     "In a job of several hosts one sum per host of float16 and bfloat16 crosses the network, too, and is "
     "rounded for it; false: each worker's tensor does, and the result is rounded once."},
    {"async", BPS_OPT_BOOL, BPS_OPT_AGREE, offsetof(struct bps_conf_worker, async), "false", NULL,
     "Asynchronous training: optimizers push by what a step has changed the parameters, the servers add that to "
     "the parameters that they keep, and no worker waits for the others."},
    {"staleness", BPS_OPT_INT, BPS_OPT_AGREE, offsetof(struct bps_conf_worker, staleness), "-1", "-1..1000000",
     "Of tensors in mode async, as in asynchronous training: a worker waits for workers that are more than this many "
     "pushes behind; 0: all push equally often; -1: it never waits."},
    {"use", BPS_OPT_LIST, 0, offsetof(struct bps_conf_worker, use), "sum", NULL,
     "The reducer that reaches the memory of tensors, a name in reducers, or several in order of preference: "
     "cuda for tensors on GPUs; sum knows host memory only."},
    {"device_groups", BPS_OPT_CHOICE, BPS_OPT_AGREE, offsetof(struct bps_conf_worker, device_groups), "auto",
     "auto|on|off",
     "Tensors on the devices of one host are summed among these, by NCCL: auto where each worker has its "
     "own device and it works; on: an error where it does not; off: always through the host."},
    {"group_size", BPS_OPT_INT, 0, offsetof(struct bps_conf_worker, group_size), "4", "1..64",
     "Partitions that the devices of a host are given at once to sum or to hand out."},
    {"threads", BPS_OPT_INT, 0, offsetof(struct bps_conf_worker, threads), "0", "0..256",
     "Threads for the stages that need the CPU, and for large slices that are coded, unless there is only one; "
     "0: as many as cores, at most 4, and none for slices where a worker of this host has one core."},
    {0},
};

static const struct bps_option server_table[] = {
    {"shards", BPS_OPT_INT, 0, offsetof(struct bps_conf_server, shards), "0", "0..256",
     "Threads of a server, each with its own tensors; 0: half the cores, on loopback at least two."},
    {"use", BPS_OPT_LIST, 0, offsetof(struct bps_conf_server, use), "sum", NULL,
     "The reducer that sums, a name in reducers, or several: what one has no sum of, the next one sums."},
    {"order", BPS_OPT_CHOICE, BPS_OPT_AGREE, offsetof(struct bps_conf_server, order), "arrival", "arrival|rank",
     "In which order contributions are summed; rank gives the same bits in every run."},
    {"quorum", BPS_OPT_STRING, BPS_OPT_AGREE, offsetof(struct bps_conf_server, quorum), "n", NULL,
     "With how many contributions push_pulls of named tensors end: n, all workers; n-1, without the slowest "
     "one, whose contribution is dropped; n-2 and so on. One is always needed."},
    {"bandwidth", BPS_OPT_DOUBLE, 0, offsetof(struct bps_conf_server, bandwidth), "0", "0..1000",
     "Bandwidth of this host's link, relative to other hosts, of which those without it have 1; its servers get a "
     "share of the bytes to match. 0 everywhere: it is found out."},
    {"local", BPS_OPT_BOOL, 0, offsetof(struct bps_conf_server, local), "true", NULL,
     "Workers reach the servers of their own host through the transport between processes of a host, where "
     "that works; false: through the network's, as all others."},
    {0},
};

static const struct bps_option affinity_table[] = {
    {"numa", BPS_OPT_CHOICE, 0, offsetof(struct bps_conf_affinity, numa), "auto", "auto|on|off",
     "Where a machine has several NUMA nodes: auto binds the library's own threads and their memory to "
     "nodes; on makes byteps run and byteps launch bind each worker process as well; off leaves everything "
     "to the kernel."},
    {"cores", BPS_OPT_STRING, 0, offsetof(struct bps_conf_affinity, cores), "", NULL,
     "Cores for workers, such as 0-3,8; several lists, separated by colons, are for the workers of a host in "
     "turn; empty: all that the process may use."},
    {"server_cores", BPS_OPT_STRING, 0, offsetof(struct bps_conf_affinity, server_cores), "", NULL,
     "Cores for the shards of a server; several lists, separated by colons, are for shards in turn; empty: "
     "all that the process may use."},
    {"avoid", BPS_OPT_STRING, 0, offsetof(struct bps_conf_affinity, avoid), "", NULL,
     "Cores that are not used, such as 0,1."},
    {"quota", BPS_OPT_INT, 0, offsetof(struct bps_conf_affinity, quota), "0", "0..8192",
     "Cores of each worker process that is bound by node; 0: an equal share of its node."},
    {"root_quota", BPS_OPT_INT, 0, offsetof(struct bps_conf_affinity, root_quota), "0", "0..8192",
     "The same for the last worker of a host; 0: as quota."},
    {"sysfs", BPS_OPT_STRING, 0, offsetof(struct bps_conf_affinity, sysfs), "/sys", NULL,
     "Directory in which the machine is described; another one of the name sys, such as a copy, serves to "
     "see what would be done on another machine."},
    {0},
};

static const struct bps_option log_table[] = {
    {"level", BPS_OPT_CHOICE, 0, offsetof(struct bps_conf_log, level), "warn", "error|warn|info|debug|trace",
     "The least important messages that are written."},
    {"hide_time", BPS_OPT_BOOL, 0, offsetof(struct bps_conf_log, hide_time), "false", NULL,
     "Leaves the time out of messages."},
    {"levels", BPS_OPT_LIST, 0, offsetof(struct bps_conf_log, levels), "", NULL,
     "Levels of single plugins, as [ \"net=debug\", \"worker.graph[0]=trace\" ]: an instance by its name or its place "
     "in this file, or all instances of a plugin by its name."},
    {"calls", BPS_OPT_LIST, 0, offsetof(struct bps_conf_log, calls), "", NULL,
     "Plugins, named likewise, of which each callback is a line at level info: its tensor, the time in it, and the "
     "status that it returned."},
    {0},
};

static const struct bps_option plugins_table[] = {
    {"guard", BPS_OPT_BOOL, 0, offsetof(struct bps_conf_plugins, guard), "false", NULL,
     "Blocks of memory that plugins get of the core end at pages that cannot be touched: one byte too far ends the "
     "process, with a message that names the callback. Slow; to find faults of plugins."},
    {0},
};

static const struct bps_option trace_table[] = {
    {"file", BPS_OPT_STRING, 0, offsetof(struct bps_conf_trace, file), "", NULL,
     "Each process writes a timeline of what it does with tensors, for Perfetto and `byteps trace`: with trace.json, "
     "worker 3 writes trace.worker-3.json; empty: none."},
    {"from", BPS_OPT_INT, 0, offsetof(struct bps_conf_trace, from), "0", "0..2147483647",
     "The first step of the training that the timeline has, counted from 0."},
    {"to", BPS_OPT_INT, 0, offsetof(struct bps_conf_trace, to), "-1", "-1..2147483647",
     "The last one, after which the timeline is written; -1: the last one of the job."},
    {0},
};

const struct bps_section bps_sections[] = {
    {"cluster", "Who is in the job and how its members meet.", cluster_table, offsetof(struct bps_conf, cluster)},
    {"worker", "How workers cut, order and send tensors.", worker_table, offsetof(struct bps_conf, worker)},
    {"server", "How servers sum.", server_table, offsetof(struct bps_conf, server)},
    {"affinity", "Which cores and which memory threads use.", affinity_table, offsetof(struct bps_conf, affinity)},
    {"log", "What is written to standard error.", log_table, offsetof(struct bps_conf, log)},
    {"plugins", "What holds for all plugins.", plugins_table, offsetof(struct bps_conf, plugins)},
    {"trace", "The timeline of a job.", trace_table, offsetof(struct bps_conf, trace)},
    {0},
};

const struct bps_instance_map bps_instance_maps[] = {
    {"transports",
     "Ways to the other members: plugins of kind transport.",
     BPS_KIND_TRANSPORT,
     {{"net", "tcp"}, {"local", "ipc"}}},
    {"reducers",
     "The arithmetic of sums: plugins of kind reducer.",
     BPS_KIND_REDUCER,
     {{"sum", "cpu"}, {"cuda", "cuda"}}},
    {"compressors", "Codings of tensors on their way: plugins of kind compressor.", BPS_KIND_COMPRESSOR, {{0}}},
    {"frameworks", "Options of framework bindings.", BPS_KIND_FRAMEWORK, {{0}}},
    {0},
};
