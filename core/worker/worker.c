/* SPDX-License-Identifier: Apache-2.0 */
/* worker.c - the life of a worker: joining, failing, leaving, and the core thread. */
#include "worker/worker.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/thread.h"
#include "coded/coded.h"
#include "device/copy.h"
#include "device_group/devices.h"
#include "flow/thread_pool.h"
#include "node/timeline.h"
#include "node/transport.h"
#include "plugin/memory.h"
#include "plugin/use.h"
#include "worker/local_transport.h"
#include "worker/meet.h"
#include "worker/metrics.h"

#define LOG "worker"

/*
 * How long a worker that leaves waits for its operations; then it gives up, so that the others do not wait.
 */
#define DRAIN_LIMIT (5 * BPS_S)
#define MIN_PERIOD  (10 * BPS_MS)

/* ---- failing ---- */

static void abort_operation(struct bps_worker *worker, struct bps_operation *operation)
{
    bps_operation_error(operation, worker->failure, worker->failure_text);
    if (bps_has_begun(operation)) {
        bps_tasks_abort(operation);
    } else if (operation->phase != BPS_PHASE_DEVICE) { /* ends when the device lets go of it */
        bps_operation_end(operation);
    }
}

static void worker_end(struct bps_worker *worker)
{
    bps_assert(worker->phase != BPS_WORKER_ENDED);
    worker->phase = BPS_WORKER_ENDED;
    bps_transport_log_bytes(worker->local_transport);
    bps_transport_log_bytes(worker->net);
    sem_post(&worker->ended);
}

static void check_drained(struct bps_worker *worker);

/* The others must not wait for us, even if the process lives on. */
static void worker_on_failed(struct bps_worker *worker)
{
    bps_assert(worker->failure != BPS_OK && worker->failure_text != NULL);
    struct bps_operation *operation, *next;
    if (worker->phase != BPS_WORKER_JOINING) {
        bps_error(LOG, "%s", worker->failure_text);
    }
    if (worker->view != NULL && worker->member != NULL) {
        bps_member_leave(worker->member, worker->failure_text);
    }
    bps_remotes_drop(worker); /* from here on nothing of the operations' memory is used */
    bps_local_drop(worker->local);
    bps_state_abandon(worker, worker->failure, worker->failure_text);
    for (operation = TAILQ_FIRST(&worker->operations); operation != NULL; operation = next) {
        next = TAILQ_NEXT(operation, entry);
        abort_operation(worker, operation);
    }
    if (worker->phase == BPS_WORKER_JOINING) {
        worker->join_status = worker->failure;
        sem_post(&worker->joined);
    } else if (worker->phase == BPS_WORKER_LEAVING) {
        worker_end(worker);
    }
    check_drained(worker);
}

/* ---- its place on the machine ---- */

/* On the core thread. */
static void bind_threads(struct bps_worker *worker)
{
    bps_pinning_apply(&worker->pinning, &worker->pin, "worker");
    bps_thread_pool_bind(worker);
}

/* ---- links ---- */

static void check_joined(struct bps_worker *worker)
{
    uint32_t links = bps_local_links(worker->local) + bps_remotes_links(worker);
    if (worker->dialled && worker->opened_links == links && worker->phase == BPS_WORKER_JOINING) {
        worker->phase = BPS_WORKER_RUNNING;
        bps_remotes_log(worker);
        bps_direct_joined(worker);
        sem_post(&worker->joined);
    }
}

static void on_link_opened(struct bps_worker *worker)
{
    bps_check(bps_worker_check(worker));
    worker->open_links++;
    worker->opened_links++;
    bps_move_resume(worker);
    check_joined(worker);
}

static void on_link_closed(struct bps_worker *worker, bps_status status, const char *why)
{
    if (why != NULL && worker->phase != BPS_WORKER_LEAVING) {
        bps_worker_suspect(worker, status, why);
    }
    worker->open_links -= worker->open_links > 0;
    if (worker->phase == BPS_WORKER_LEAVING && worker->open_links == 0 && !worker->reforms) {
        bps_member_leave(worker->member, NULL);
    }
}

/* ---- membership ---- */

static bps_status worker_on_assigned(void *owner, uint32_t rank, bool serve, const char *host,
                                     struct bps_writer *endpoints, struct bps_report *report)
{
    struct bps_worker *worker = owner;
    char identity[32];
    bps_status status = BPS_OK;
    worker->job.rank = rank;
    bps_pinning_address(&worker->pinning, host);
    snprintf(identity, sizeof identity, "worker/%u", rank);
    bps_log_set_identity(identity);
    if (serve && worker->server == NULL) { /* another scheduler may ask again */
        status = bps_server_new(worker->conf, &worker->pinning, host, &worker->server, report);
    }
    if (serve && status == BPS_OK) {
        bps_server_endpoints(worker->server, endpoints);
    }
    return status;
}

/* Where this worker is among the others. */
static void find_place(struct bps_worker *worker, const struct bps_book *book)
{
    const struct bps_book_member *own = &book->member[worker->job.rank];
    worker->job.size = book->workers;
    worker->job.local_rank = own->local_rank;
    worker->job.local_size = own->local_size;
    worker->job.group = own->group;
    worker->job.homogeneous = 1;
    worker->job.apart = true;
    for (uint32_t rank = 0; rank < book->workers; rank++) {
        bool across = book->member[rank].local_rank == own->local_rank;
        worker->job.cross_size += across;
        worker->job.cross_rank += across && rank < worker->job.rank;
        worker->job.apart &= book->member[rank].group == rank;
        worker->job.homogeneous &= book->member[rank].local_size == own->local_size;
    }
}

/* For its links; memory that is shared with a peer is a file, too. */
static bps_status expect_files(const struct bps_worker *worker, const struct bps_book *book, struct bps_report *report)
{
    uint32_t of_shards = BPS_LANES_TIMES * book->shards, of_peers = bps_book_group_size(book, worker->job.rank);
    return bps_files_expect(of_shards + 2ul * of_peers, report);
}

/* What begins from now on does so under this view; what has begun goes on. */
static void turn_to(struct bps_worker *worker, struct bps_view *view)
{
    struct bps_report report = {""};
    bps_status status = worker->server != NULL ? bps_server_serve(worker->server, view) : BPS_OK;
    pthread_mutex_lock(&worker->late_lock); /* threads of the application read the book under it */
    bps_view_put(worker->view);
    worker->view = bps_view_get(view);
    pthread_mutex_unlock(&worker->late_lock);
    bool more = worker->shards != NULL && view->book.shards > worker->shards->remotes;
    if (status == BPS_OK && worker->failure == BPS_OK && more) {
        status = expect_files(worker, &view->book, &report);
        status = status == BPS_OK ? bps_remotes_grow(worker, &report) : status;
        bps_direct_joined(worker);
    }
    if (status != BPS_OK) {
        bps_worker_fail(worker, status, report.text[0] != '\0' ? report.text : bps_strerror(status));
        return;
    }
    bps_remotes_inherit(worker);
    bps_move_resume(worker); /* what it has waited for may be lost */
    check_joined(worker);
}

static void worker_on_joined(void *owner, struct bps_view *view)
{
    struct bps_worker *worker = owner;
    const struct bps_book *book = &view->book;
    struct bps_report report = {""};
    if (worker->view != NULL && worker->job.epoch == book->epoch) {
        turn_to(worker, view);
        return;
    }
    if (worker->view != NULL || worker->job.rank >= book->workers) {
        bps_worker_fail(worker, BPS_ERR_PROTOCOL, "the scheduler changed the membership of a running job");
        return;
    }
    worker->view = bps_view_get(view);
    worker->first_view = bps_view_get(view);
    worker->job.epoch = book->epoch;
    worker->before = (int32_t)worker->job.rank;
    bps_timeline_join(book, worker->job.rank);
    find_place(worker, book);
    bps_status status =
        bps_pinning_worker(&worker->pinning, worker->job.local_rank, worker->job.local_size, &worker->pin, &report);
    if (status == BPS_OK) {
        bind_threads(worker);
    }
    if (status == BPS_OK) {
        status = expect_files(worker, book, &report);
    }
    if (status == BPS_OK && worker->server != NULL) {
        status = bps_server_serve(worker->server, view);
    }
    if (status == BPS_OK) {
        bool has_peers = worker->local != NULL && bps_book_group_size(book, worker->job.rank) > 1;
        worker->hooks = has_peers ? &bps_local_hooks : NULL;
        status = bps_local_connect(worker->local, &report);
    }
    if (status == BPS_OK) {
        status = bps_remotes_connect(worker, &report);
        status = status == BPS_OK ? bps_coded_open(worker) : status;
    }
    if (status != BPS_OK) {
        bps_worker_fail(worker, status, report.text[0] != '\0' ? report.text : bps_strerror(status));
        return;
    }
    worker->dialled = true;
    check_joined(worker);
}

static void worker_on_unreachable(void *owner)
{
    (void)owner;
    bps_meet_again();
}

static void worker_on_lost(void *owner, bps_status status, const char *text)
{
    bps_worker_fail(owner, status, text);
}

static void worker_on_ended(void *owner)
{
    struct bps_worker *worker = owner;
    if (worker->phase == BPS_WORKER_LEAVING) {
        worker_end(worker);
    } else {
        bps_worker_fail(worker, BPS_ERR_LOST, "the scheduler ended the job");
    }
}

static uint32_t worker_on_delivered(void *owner, struct bps_writer *w, bool *even)
{
    const struct bps_worker *worker = owner;
    *even = bps_remotes_even(worker);
    uint32_t n = bps_remotes_delivered(worker, w);
    return n + (worker->server != NULL ? bps_server_delivered(worker->server, w) : 0);
}

static void worker_on_lateness(void *owner, struct bps_lateness *into)
{
    bps_metrics_seen(owner, into);
}

static bps_status on_late(void *owner, struct bps_reader *message)
{
    return bps_metrics_told(owner, message);
}

static bps_status on_newcomers(void *owner, struct bps_reader *message)
{
    struct bps_worker *worker = owner;
    atomic_store(&worker->newcomers, bps_get_u32(message));
    return bps_reader_done(message) ? BPS_OK : BPS_ERR_PROTOCOL;
}

static const struct bps_member_events member_events = {
    .assigned = worker_on_assigned,
    .joined = worker_on_joined,
    .declared = bps_declare_reply,
    .changed = bps_change_answer,
    .move = bps_move_begin,
    .moved = bps_move_end,
    .known = bps_known_tell,
    .returned = bps_known_returned,
    .delivered = worker_on_delivered,
    .lateness = worker_on_lateness,
    .late = on_late,
    .newcomers = on_newcomers,
    .unreachable = worker_on_unreachable,
    .lost = worker_on_lost,
    .ended = worker_on_ended,
};

/* ---- leaving ---- */

/* Goes on leaving if it has waited for its last operation. */
static void check_drained(struct bps_worker *worker)
{
    if (worker->phase != BPS_WORKER_DRAINING || !TAILQ_EMPTY(&worker->operations)) {
        return;
    }
    bps_loop_cancel(worker->loop, worker->drain);
    worker->drain = NULL;
    if (worker->failure != BPS_OK || bps_worker_alone(worker)) {
        worker_end(worker);
    } else if (worker->reforms) { /* its links stay: others may need results that it has */
        worker->phase = BPS_WORKER_LEAVING;
        bps_state_abandon(worker, BPS_ERR_STATE, "the worker is shutting down");
        bps_member_leave(worker->member, NULL);
    } else {
        worker->phase = BPS_WORKER_LEAVING;
        if (worker->open_links == 0) {
            bps_member_leave(worker->member, NULL);
        }
        bps_local_leave(worker->local); /* first: the shards may have to hear of rounds that fail now */
        bps_state_abandon(worker, BPS_ERR_STATE, "the worker is shutting down");
        bps_remotes_leave(worker);
    }
}

/* Operations that the others have not joined would keep everybody waiting: the job ends instead. */
static void on_drain_limit(void *arg)
{
    struct bps_worker *worker = arg;
    const struct bps_operation *operation = TAILQ_FIRST(&worker->operations);
    char text[300];
    worker->drain = NULL;
    snprintf(text, sizeof text, "it shut down while tensor '%.200s' was in flight",
             bps_container(operation, struct bps_tensor_entry, operation)->named.name);
    if (!bps_worker_alone(worker)) {
        bps_member_leave(worker->member, text); /* the scheduler's answer fails this worker, too */
    }
}

/* Between two looks at what this worker waits for. */
static uint64_t clock_period(const struct bps_conf_cluster *cluster)
{
    uint64_t limit = BPS_S / 2;
    const uint64_t all[] = {cluster->stall_warning, cluster->stall_timeout, cluster->rendezvous_timeout};
    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        limit = all[i] > 0 && all[i] / 8 < limit ? all[i] / 8 : limit;
    }
    return limit > MIN_PERIOD ? limit : MIN_PERIOD;
}

/* Links that do not come about, though their transport says nothing. Whoever dials knows more, and gets the time. */
static void check_joining(struct bps_worker *worker, uint64_t passed)
{
    uint64_t limit = worker->conf->cluster.rendezvous_timeout;
    uint32_t near = bps_local_links(worker->local), far = bps_remotes_links(worker);
    char text[400];
    worker->joining += passed;
    if (worker->joining < limit + limit / 4 + 2 * BPS_S) {
        return;
    }
    snprintf(text, sizeof text,
             "the job is complete, but of this worker's connections, %u to shards by transport %s and %u to workers of "
             "this host by transport %s, only %u were established in %.0f s (cluster.rendezvous_timeout: %.0f s)",
             far, worker->net->loaded->plugin->name, near,
             worker->local_transport != NULL ? worker->local_transport->loaded->plugin->name : "none",
             worker->opened_links, (double)worker->joining / 1e9, (double)limit / 1e9);
    bps_worker_fail(worker, BPS_ERR_TIMEOUT, text);
}

/* Time in which we were stopped does not count. */
static void on_clock(void *arg)
{
    struct bps_worker *worker = arg;
    uint64_t period = clock_period(&worker->conf->cluster);
    if (worker->phase == BPS_WORKER_JOINING && worker->view != NULL && worker->failure == BPS_OK) {
        check_joining(worker, period);
    }
    bps_overdue_look(worker, period);
}

/* A thread of this worker, or of the server in it, does not come back. */
static void worker_on_stuck(void *arg, const char *text)
{
    bps_worker_fail(arg, BPS_ERR_TIMEOUT, text);
}

static void on_operation_ended(struct bps_worker *worker)
{
    if (worker->view != NULL && worker->view->before != NULL) {
        bps_remotes_retire(worker);
    }
    bps_remotes_settle(worker);
    bps_rounds_look(worker);
    check_drained(worker);
}

static const struct bps_life life = {
    .failed = worker_on_failed,
    .link_opened = on_link_opened,
    .link_closed = on_link_closed,
    .operation_ended = on_operation_ended,
};

static void worker_leave(struct bps_post *post)
{
    struct bps_worker *worker = bps_container(post, struct bps_worker, leave_post);
    worker->phase = BPS_WORKER_DRAINING;
    if (worker->reforms) { /* what is in flight ends when all others say so */
        bps_remotes_announce_leave(worker);
        bps_member_reform(worker->member);
    } else if (!TAILQ_EMPTY(&worker->operations)) {
        bps_rounds_look(worker);
        worker->drain = bps_loop_timer(worker->loop, DRAIN_LIMIT, 0, on_drain_limit, worker);
    }
    check_drained(worker);
}

/* ---- life ---- */

static void *worker_run(void *arg)
{
    struct bps_worker *worker = arg;
    if (bps_worker_alone(worker)) {
        bind_threads(worker);
    }
    bps_loop_run(worker->loop);
    return NULL;
}

static bps_status worker_start_thread(struct bps_worker *worker, struct bps_report *report)
{
    bps_status status = bps_thread_start(&worker->thread, "bps-worker", worker_run, worker, report);
    worker->running = status == BPS_OK;
    if (worker->running) {
        bps_memory_run(worker->loop);
    }
    return status;
}

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0 && errno == EINTR) {
    }
}

void bps_worker_free(struct bps_worker *worker)
{
    if (worker->running) {
        bps_memory_halt();
        bps_loop_stop(worker->loop);
        pthread_join(worker->thread, NULL);
    }
    if (worker->loop != NULL) {
        bps_remotes_drop(worker);
        bps_local_transport_close(worker);
        bps_thread_pool_free(worker);
        bps_rounds_close(worker);
        bps_member_free(worker->member);
        bps_server_free(worker->server);
        if (worker->records) {
            bps_trace_close();
        }
        bps_loop_cancel(worker->loop, worker->grace);
        bps_loop_cancel(worker->loop, worker->drain);
        bps_loop_cancel(worker->loop, worker->clock);
    }
    HASH_CLEAR(by_id, worker->ids);
    bps_writer_fini(&worker->forgotten);
    free(worker->told.round);
    bps_names_fini(&worker->names);
    bps_view_put(worker->first_view);
    bps_view_put(worker->view);
    bps_process_groups_fini(&worker->process_groups);
    bps_coded_close(worker);
    bps_remotes_free(worker);
    bps_graph_free(worker->graph);
    bps_instance_close(worker->reducer);
    bps_memory_close(worker->net);
    bps_copy_close(worker); /* last of those that know of memory: it gives back the staging memory */
    bps_guard_end(&worker->guard);
    bps_loop_free(worker->loop);
    sem_destroy(&worker->joined);
    sem_destroy(&worker->ended);
    bps_lateness_fini(&worker->late);
    for (uint32_t kind = 0; kind < BPS_UNNAMED_KINDS; kind++) {
        bps_sequence_fini(&worker->over[kind]);
    }
    pthread_mutex_destroy(&worker->late_lock);
    free(worker->failure_text);
    bps_pin_fini(&worker->pin);
    bps_pinning_fini(&worker->pinning);
    bps_pool_fini(&worker->blocks);
    free(worker);
}

/* A job of this process alone: no network, only the arithmetic of scales. */
static bps_status open_alone(struct bps_worker *worker, struct bps_report *report)
{
    worker->job.size = worker->job.local_size = worker->job.cross_size = worker->job.homogeneous = 1;
    worker->phase = BPS_WORKER_RUNNING;
    sem_post(&worker->joined);
    bps_log_set_identity("worker/0");
    bps_timeline_join(NULL, 0);
    bps_status status =
        bps_pinning_worker(&worker->pinning, worker->job.local_rank, worker->job.local_size, &worker->pin, report);
    if (status == BPS_OK) {
        status = bps_reducer_open(worker->conf, worker->loop, &worker->reducer, report);
    }
    return status;
}

static const struct bps_step_ops *const push_pull_steps[] = {
    &bps_own_block, &bps_group_alone, &bps_push_value, &bps_push_value_rows,
    &bps_push_rows, &bps_push_coded,  &bps_push_plain, NULL};

const struct bps_step_ops *const *bps_worker_steps(enum bps_node_kind kind, bool alone)
{
    const struct bps_step_ops *const *const steps[BPS_NODE_KINDS] = {
        [BPS_NODE_PLUGIN] = bps_plugin_steps,
        [BPS_NODE_PLUGIN_ROUND] = bps_plugin_round_steps,
        [BPS_NODE_LOCAL_REDUCE] = bps_local_reduce_steps,
        [BPS_NODE_PUSH_PULL] = alone ? bps_alone_steps : push_pull_steps,
        [BPS_NODE_LOCAL_BROADCAST] = bps_local_broadcast_steps,
        [BPS_NODE_COPY_TO_HOST] = bps_copy_to_host_steps,
        [BPS_NODE_COPY_TO_DEVICE] = bps_copy_to_device_steps,
        [BPS_NODE_REDUCE_ON_DEVICE] = bps_reduce_on_device_steps,
        [BPS_NODE_DEVICE_REDUCE] = bps_device_reduce_steps,
        [BPS_NODE_DEVICE_BROADCAST] = bps_device_broadcast_steps,
    };
    return steps[kind];
}

static void choose_steps(struct bps_worker *worker)
{
    bool alone = worker->conf->cluster.scheduler[0] == '\0';
    for (uint32_t kind = 0; kind < BPS_NODE_KINDS; kind++) {
        worker->steps[kind] = bps_worker_steps(kind, alone);
    }
    worker->device_group = &bps_device_group;
    worker->memory_ops = &bps_device_memory;
}

static bps_status worker_open_parts(struct bps_worker *worker, struct bps_report *report)
{
    const struct bps_conf_cluster *cluster = &worker->conf->cluster;
    bps_status status = bps_pinning_init(&worker->pinning, worker->conf, report);
    choose_steps(worker);
    if (status == BPS_OK) {
        status = bps_timeline_open(worker->conf, report);
        worker->records = status == BPS_OK;
    }
    if (status == BPS_OK) {
        worker->loop = bps_loop_new();
        status = worker->loop == NULL
                     ? BPS_ERR_IO
                     : bps_guard_begin(&worker->guard, worker->conf, worker->loop, worker_on_stuck, worker, report);
    }
    if (status == BPS_OK) {
        bps_flow_init(worker);
        status = bps_graph_new(worker->conf, worker->loop, &worker->graph, report);
        worker->names.graph = worker->graph;
    }
    if (status == BPS_OK) {
        bps_loop_spin(worker->loop, BPS_LOOP_SPIN);
        uint64_t period = clock_period(cluster);
        worker->clock = bps_loop_timer(worker->loop, period, period, on_clock, worker);
        status = worker->clock == NULL ? BPS_ERR_NOMEM : BPS_OK;
    }
    if (status == BPS_OK) {
        status = bps_rounds_open(worker);
    }
    if (status == BPS_OK && bps_graph_needs_threads(worker->graph)) {
        status = bps_thread_pool_need(worker, report);
    }
    if (status == BPS_OK) {
        status = bps_copy_open(worker, report);
    }
    if (status == BPS_OK && cluster->scheduler[0] == '\0') {
        status = open_alone(worker, report);
    } else if (status == BPS_OK) {
        status = bps_transport_open(worker->conf, worker->loop, &worker->net, report);
        if (status == BPS_OK) {
            const struct bps_transport_ops *net = worker->net->ops;
            const struct bps_memory_user user = {worker->net, net->attach, net->detach};
            status = bps_memory_join(&user, report);
        }
        if (status == BPS_OK) {
            status = bps_local_transport_open(worker, report);
        }
        if (status == BPS_OK) {
            status = bps_member_new(worker->conf, worker->loop, worker->net, bps_local_address(worker->local),
                                    worker->before, &member_events, worker, &worker->member, report);
        }
    }
    return status == BPS_OK ? worker_start_thread(worker, report) : status;
}

bps_status bps_worker_new(const struct bps_conf *conf, int32_t *rank, struct bps_worker **out,
                          struct bps_report *report)
{
    struct bps_worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL) {
        return BPS_ERR_NOMEM;
    }
    worker->conf = conf;
    worker->partition = conf->worker.partition;
    worker->slice = conf->worker.slice;
    TAILQ_INIT(&worker->undeclared);
    TAILQ_INIT(&worker->asked);
    TAILQ_INIT(&worker->operations);
    worker->life = &life;
    worker->before = *rank;
    worker->leave_post.fn = worker_leave;
    sem_init(&worker->joined, 0, 0);
    sem_init(&worker->ended, 0, 0);
    pthread_mutex_init(&worker->late_lock, NULL);
    bps_process_groups_init(&worker->process_groups);
    bps_status status = bps_names_init(&worker->names, &bps_tensor_ops);
    worker->names.partition = worker->partition;
    if (status == BPS_OK) {
        status = worker_open_parts(worker, report);
    }
    if (status == BPS_OK) {
        wait_for(&worker->joined);
        status = worker->join_status;
        if (status != BPS_OK) {
            BPS_REPORT(report, "%s", worker->failure_text);
        }
    }
    *rank = worker->before;
    if (status != BPS_OK) {
        bps_worker_free(worker);
        return status;
    }
    *out = worker;
    return BPS_OK;
}

bps_status bps_worker_leave(struct bps_worker *worker, bool reform, struct bps_report *report)
{
    worker->reforms = reform; /* before it is posted */
    atomic_store(&worker->closing, true);
    bps_loop_post(worker->loop, &worker->leave_post);
    wait_for(&worker->ended);
    if (worker->failure != BPS_OK) {
        BPS_REPORT(report, "%s", worker->failure_text);
    }
    return worker->failure;
}
