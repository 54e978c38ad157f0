/* SPDX-License-Identifier: Apache-2.0 */
/*
 * byteps.h - the interface for applications.
 *
 * A process that calls bps_init() becomes a worker of a job. It declares tensors by name, pushes them to summation
 * servers and pulls the results back. All workers of a job push the same tensors; each round of a tensor yields the
 * same result on every worker.
 *
 * Threads: every function may be called from any thread, unless its comment states otherwise.
 * Errors: functions return a bps_status; where they take a `struct bps_report *`, they write into it in one line what
 * is wrong and what to do. The report may be NULL. Output parameters are set only on success.
 * Fork: a child made by fork() finds the library stopped (BPS_ERR_STATE); its parent is not disturbed.
 * Versions: structs that the application makes begin with their size, so that later versions can add to their end. The
 * library takes those of all versions: what an older one has not counts as 0, and of a newer one all that is unknown
 * here must be 0, else it is BPS_ERR_UNSUPPORTED.
 */
#ifndef BYTEPS_BYTEPS_H
#define BYTEPS_BYTEPS_H

#include <byteps/types.h>

#ifdef __cplusplus
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" /* a function and the struct that it takes have one name, as in C's stat() */
extern "C" {
#endif

/* ---- life of a job ------------------------------------------------------------------------------------ */

struct bps_init_options {
    size_t size;            /* sizeof(struct bps_init_options) */
    const char *conf;       /* configuration file; NULL: $BYTEPS_CONF or none */
    const char *const *set; /* nset strings "key=value", stronger than every file and variable */
    size_t nset;
};

/*
 * Joins the job that the configuration describes (byteps.conf(5)) and waits until all members are there.
 * Without any configuration it makes a job of this one process, unless torchrun, srun or mpirun has started it
 * as one of several, which is BPS_ERR_CONF. Calling it again in a running job does nothing. `options` may be
 * NULL. Errors: BPS_ERR_CONF, BPS_ERR_PLUGIN, BPS_ERR_TIMEOUT (the report lists the missing members),
 * BPS_ERR_REFUSED, BPS_ERR_IO, BPS_ERR_NOMEM.
 */
BPS_API bps_status bps_init(const struct bps_init_options *options, struct bps_report *report);

/*
 * Finishes the operations in flight, leaves the job and frees everything, declared names too. bps_init() may follow.
 * Operations that the other workers do not join within 5 s fail, and with them the job, so that nobody waits for a
 * worker that is gone. Returns BPS_ERR_STATE if there is no job; returns the loss (and still frees everything) if the
 * job had failed. A worker that hosts a server waits for the other workers to leave.
 */
BPS_API bps_status bps_shutdown(struct bps_report *report);

/*
 * Like bps_shutdown(), but remembers the declared tensors, so that the next bps_init() declares them again.
 * A scheduler without cluster.stay ends with its job: the next bps_init() is then BPS_ERR_REFUSED, unless
 * another one has been started at its address.
 */
BPS_API bps_status bps_suspend(struct bps_report *report);

/* 1: a forked child of a process in a job, where no function works: only its parent is in it; else 0. [any thread] */
BPS_API int bps_is_forked(void);

/* Each returns a number >= 0, or BPS_ERR_STATE outside a job. */
BPS_API int bps_rank(void);       /* 0 .. size-1, over all workers of the job */
BPS_API int bps_size(void);       /* number of workers */
BPS_API int bps_local_rank(void); /* 0 .. local_size-1, among the workers on this host */
BPS_API int bps_local_size(void);
BPS_API int bps_cross_rank(void);     /* 0 .. cross_size-1, by rank, among the workers with the same local rank */
BPS_API int bps_cross_size(void);     /* the number of hosts, where all have the same number of workers */
BPS_API int bps_is_homogeneous(void); /* 1: all hosts have the same number of workers; 0: they have not */
/* Workers of this host that sum among themselves. 1: shared memory, see below, is of use only to servers there. */
BPS_API int bps_group_size(void);

/*
 * A step of the training has ended: what this worker starts from now on belongs to the next one in its timeline; of no
 * effect without trace.file, and outside a job. Before the first call the step is the highest round of a named tensor.
 */
BPS_API void bps_step(void);

/* Writes the text of a configuration value ("worker.partition") into buf[n], or what fits. BPS_ERR_INVALID: no such. */
BPS_API bps_status bps_conf(const char *key, char *buf, size_t n);

BPS_API const char *bps_version(void); /* "0.1.0" */

/* ---- the other parts of a job ---------------------------------------------------------------------------
 *
 * For programs that start the processes of a job themselves, and in which `byteps scheduler` and `byteps server` would
 * be children that somebody has to look after. The options are those of bps_init(); cluster.role needs no value.
 */

struct bps_hosted;

/*
 * Runs the scheduler of a job on a thread of this process. cluster.scheduler is where it listens: "10.0.0.7:0" at a
 * free port of that address; unset: where this host alone reaches it. address[n] receives "host:port" for the other
 * parts. It is in all as `byteps scheduler`: with cluster.stay it waits for the next job when one is over. Errors:
 * BPS_ERR_CONF, BPS_ERR_PLUGIN, BPS_ERR_IO, BPS_ERR_NOMEM.
 */
BPS_API bps_status bps_host_scheduler(const struct bps_init_options *options, struct bps_hosted **out, char *address,
                                      size_t n, struct bps_report *report);
/* Ends it, and with it the job if there is one, and frees it. NULL, and in a forked child: does nothing. */
BPS_API void bps_stop_scheduler(struct bps_hosted *hosted);

/*
 * Is a server of a job; returns when that is over, or why it has failed. Errors: as for bps_init(), and BPS_ERR_LOST.
 */
BPS_API bps_status bps_serve(const struct bps_init_options *options, struct bps_report *report);

/* ---- tensors ------------------------------------------------------------------------------------------ */

/* A declared tensor of this process; 0 is never a tensor. Valid until bps_forget() or bps_shutdown(). */
typedef uint32_t bps_tensor;

#define BPS_DIMENSIONS 64u /* of a shape, at most */

struct bps_declaration {
    size_t size;          /* sizeof(struct bps_declaration) */
    const char *name;     /* unique in the job; at most 1023 bytes; copied */
    uint64_t count;       /* elements; ignored while dtype is BPS_DTYPES */
    uint32_t dtype;       /* BPS_DTYPES: not known yet, the first push_pull decides */
    uint32_t ndim;        /* dimensions of the shape; 0 with a shape: one element */
    const int64_t *shape; /* ndim extents whose product is count; copied; NULL: not given, and not compared */
    /*
     * How its sums and averages are coded on the network, if it is of a floating type: a compressor with its options,
     * as in a member of `compressors` in byteps.conf(5), "plugin=onebit; feedback=true". Copied; "": not at all; NULL:
     * as the stages compress of the configuration define.
     */
    const char *coding;
    uint32_t mode; /* enum bps_mode of types.h, the same on all workers */
};

/*
 * Declares n tensors at once, in a few round trips however many they are. Declaring a name again returns the
 * same tensor. out[n] receives the tensors; it may be NULL. It need not be called: the first push_pull of a
 * name declares it. A type, size or shape that differs from what this process declared before, or has pushed last,
 * is BPS_ERR_MISMATCH.
 */
BPS_API bps_status bps_declare(const struct bps_declaration *declarations, size_t n, bps_tensor *out,
                               struct bps_report *report);

/*
 * Forgets tensors that this process does not push any more, such as those of a model that is gone: their memory
 * here, and everywhere when all workers have forgotten them. A tensor in flight is forgotten when its operation
 * has ended; unknown names are ignored. A name that is pushed again is declared anew.
 */
BPS_API bps_status bps_forget(const char *const *names, size_t n, struct bps_report *report);

/*
 * An operation in flight; 0 is never a handle. Those that nobody has waited for when the job ends keep their
 * results until the next job has ended.
 */
typedef uint64_t bps_handle;

/*
 * Called exactly once when an operation ends, on a thread of the library or within the call that started it.
 * It must not block and must not call into Python. `text` explains an error and lives until the call returns.
 */
typedef void (*bps_done_fn)(void *arg, bps_status status, const char *text);

/*
 * push_pull: result = postscale * (op over all workers of prescale * in). Scaled integers are computed in
 * float64 and truncated, before the op and after it; what the type does not hold becomes its limit. bool has
 * no scales.
 */
struct bps_push_pull {
    size_t size;       /* sizeof(struct bps_push_pull) */
    bps_tensor tensor; /* from bps_declare(), or 0: use `name` */
    const char *name;  /* NULL with tensor 0: unnamed; its n-th call meets the n-th of the other workers */
    const void *in;    /* count elements, any alignment; not changed before the operation has ended */
    void *out;         /* count elements; may be equal to in, must not overlap it otherwise. In flight, no other
                          push_pull may read or write it: BPS_ERR_BUSY on all workers */
    uint64_t count;    /* elements; 0 is allowed */
    uint32_t ndim;     /* dimensions of the shape */
    uint32_t dtype;
    const int64_t *shape; /* as in struct bps_declaration */
    uint32_t op;
    int32_t priority; /* larger is more urgent; tensors of equal priority go in the order of their start */
    double prescale;  /* 1 for none. May differ between the workers */
    double postscale; /* 1 for none. Must be equal on all workers */
    bps_done_fn done; /* NULL: use bps_wait(). With it, the handle needs no bps_wait() */
    void *arg;
    struct bps_device device; /* of in and out; all 0: host memory */
    double learning_rate;     /* of this round, for the feedback of a coding; 0: not given. The same on all workers */
    struct bps_rows *rows;    /* NULL; or `in` has some rows of the tensor only: sparse.h */
    uint32_t group;           /* 0: all workers; or one of groups.h, without a name, and `root` counts in it. ABI 1.1 */
};

/*
 * Starts a push_pull and returns at once. The memory is the library's until the operation has ended. While a named
 * tensor is in flight, starting it again on this worker is BPS_ERR_BUSY; it is in flight until bps_wait() has returned
 * its result, or until `done` has been called. A named tensor may have another type, size or shape than the last time
 * if that is so on all workers; this costs a few round trips. BPS_ERR_MISMATCH, BPS_ERR_LOST and the like end the
 * operation, with the same text on every worker that took part.
 */
BPS_API bps_status bps_push_pull_async(const struct bps_push_pull *request, bps_handle *out, struct bps_report *report);

/*
 * Starts a push_pull and waits for it, as bps_push_pull_async() and bps_wait() do, but sooner: if nothing else is in
 * flight on this worker, the calling thread does the work of the library's own one, and no thread has to wake another.
 * `done` must be NULL. BPS_INPROGRESS: the time is over, the operation goes on, and *out is its handle for bps_wait().
 */
BPS_API bps_status bps_push_pull(const struct bps_push_pull *request, uint64_t timeout_ns, bps_handle *out,
                                 struct bps_report *report);

/* Bytes of all push_pulls that this process has started, as they lie in memory. It outlives jobs. */
BPS_API uint64_t bps_pushed_bytes(void);

/*
 * Bytes that this process has sent coded by a compressor, as a worker; *plain, unless that is NULL: what they were
 * before. It outlives jobs.
 */
BPS_API uint64_t bps_coded_bytes(uint64_t *plain);

/* How late a worker is, as known here by now; docs/running.md defines what counts. BPS_ERR_INVALID: no such rank. */
struct bps_worker_lateness {
    size_t size; /* sizeof(struct bps_worker_lateness) */
    char host[64];
    uint64_t rounds, last, host_last; /* rounds that waited for anybody; for it; for all workers of its host alike */
    double median_seconds, host_median_seconds, waited; /* waited: 0..1, of the time of the job, for it */
};
BPS_API bps_status bps_lateness(uint32_t rank, struct bps_worker_lateness *out, struct bps_report *report);

/*
 * Copies the bytes of worker `root` to all workers, exactly: NaN payloads, -0.0, integers, bool. On the root
 * `in` is sent and, if different, copied to `out`; elsewhere only `out` is used. Op and scales are ignored.
 */
BPS_API bps_status bps_broadcast_async(const struct bps_push_pull *request, uint32_t root, bps_handle *out,
                                       struct bps_report *report);

/*
 * Returns BPS_INPROGRESS while the operation runs, else its final status. Does not end the life of the
 * handle. A handle that was waited for is BPS_OK.
 */
BPS_API bps_status bps_poll(bps_handle handle);

#define BPS_FOREVER UINT64_MAX

/*
 * Sleeps until the operation has ended, at most timeout_ns nanoseconds (BPS_FOREVER: until it ends; the job's
 * own time-outs end it when a member is lost). BPS_INPROGRESS: the time is over, the operation goes on.
 * Otherwise returns the operation's status with its text and frees the handle.
 */
BPS_API bps_status bps_wait(bps_handle handle, uint64_t timeout_ns, struct bps_report *report);

/* Returns when all workers have called it. Barriers are matched in order, like unnamed tensors. */
BPS_API bps_status bps_barrier(struct bps_report *report);
BPS_API bps_status bps_barrier_async(bps_done_fn done, void *arg, bps_handle *out, struct bps_report *report);

/*
 * What coding on the network has left of a tensor (see struct bps_declaration) is kept from round to round: the error
 * that is still to be sent, and momentum. For a checkpoint it can be had as bytes. Each worker has a part of it, and
 * takes only its own one back: save and load on every worker. Where the workers of a host sum first, the one that
 * leads a partition has it; if another one leads it then, that gets it. A tensor in flight is BPS_ERR_BUSY.
 *
 * bps_save_feedback() sets *state to *bytes bytes, which the caller frees with free(); NULL and 0: nothing is kept.
 * bps_load_feedback() takes such bytes, or none, in the place of what is kept; they count from the next push_pull on,
 * if the tensor has the same coding, type and size then. BPS_ERR_INVALID: these are no such bytes.
 */
BPS_API bps_status bps_save_feedback(const char *name, void **state, size_t *bytes, struct bps_report *report);
BPS_API bps_status bps_load_feedback(const char *name, const void *state, size_t bytes, struct bps_report *report);

/* ---- shared memory ------------------------------------------------------------------------------------ */

/*
 * Tensors may lie anywhere. Workers of one host sum them fastest where they lie in memory that all of these
 * can map: then one pass reads all contributions and writes all results, and nothing is copied. Any part of
 * such memory may be a tensor.
 *
 * bps_alloc() returns zeroed memory of that kind, aligned to a page, which the caller owns until bps_free();
 * NULL: there is none; the log has why. Each call takes a descriptor, so allocate in large pieces. It may be called at
 * any time, before bps_init() as well, and outlives jobs. A forked child shares the memory: what it writes there the
 * parent sees.
 */
BPS_API void *bps_alloc(size_t bytes);
/* Frees what bps_alloc() returned; no operation in flight may use it. NULL is allowed. */
BPS_API void bps_free(void *memory);

/* A shared mapping of the application's own: address, bytes and offset are multiples of the page size. */
struct bps_memory {
    size_t size; /* sizeof(struct bps_memory) */
    void *address;
    uint64_t bytes;
    int fd;          /* a memfd with F_SEAL_SHRINK; duplicated */
    uint64_t offset; /* of the mapping in the file */
};

/*
 * Makes a mapping as good as memory of bps_alloc(). It must stay in its place until bps_unregister(), which
 * no operation in flight may outlive. BPS_ERR_INVALID: it cannot be shared safely; the report has the reason. These
 * four functions are thread-safe, but not to be called from `done`.
 */
BPS_API bps_status bps_register(const struct bps_memory *memory, struct bps_report *report);
BPS_API bps_status bps_unregister(void *address, struct bps_report *report);

#ifdef __cplusplus
}
#pragma GCC diagnostic pop
#endif
#endif
