/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage_faulty.c - a stage that doubles a tensor, with one fault of those that `byteps plugin check` must find: the one
 * that -DFAULT=NAME chooses, or none. Like the reducer cuda it has a watch and a poller while it is open.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <byteps/stage.h>

enum fault {
    NONE,
    OPEN_LEAKS,
    OPEN_LEAKS_DESCRIPTOR,
    OPEN_LEAKS_THREAD,
    OPEN_LEAKS_WATCH,
    OPEN_LEAKS_POLLER,
    OPEN_LEAKS_WITHOUT_MEMORY,
    OPEN_TRUSTS_MALLOC,
    OPEN_RETURNS_ONE,
    OPEN_SAYS_NOTHING,
    OPEN_EXITS,
    OPEN_HANGS,
    OPEN_PRINTS,
    OPTION_CRASHES,
    OPTION_WITHOUT_HELP,
    SECOND_INSTANCE,
    DESCRIBE_IGNORES_ROOM,
    DESCRIBE_TWO_LINES,
    QUERY_NO_OPS,
    QUERY_UNKNOWN_TYPE,
    QUERY_EXECUTOR,
    QUERY_UNSET,
    BIND_RETURNS_SEVEN,
    BIND_LEAKS,
    RUN_BEYOND,
    RUN_BEFORE,
    RUN_READS_BEYOND,
    RUN_SHORT,
    RUN_WRITES_SRC,
    RUN_FAILS,
    RUN_NOT_IN_PLACE,
    RUN_LEAKS,
    RUN_SHARES,
    RUN_TRAPS_NAN,
    RUN_RETURNS_THREE,
    RUN_LATER_IN_POOL,
    DONE_AND_OK,
    DONE_TWICE,
    DONE_NEVER,
    DONE_POSITIVE,
    CANCEL_FORGETS,
    ROUND_NONE, /* from here on it takes whole rounds; this one has no fault */
    ROUND_FIRST_ONLY,
    ROUND_BY_ORDER,
    ROUND_LATER,
};

/* In the place of calls that a compiler might leave out. */
static volatile enum fault fault = FAULT;

static bool has(enum fault one)
{
    return fault == one;
}

static bool answers_later(void)
{
    return fault >= DONE_AND_OK && fault < ROUND_NONE;
}

struct faulty_options {
    int64_t level;
};

static const struct bps_option faulty_options[] = {
    {"level", BPS_OPT_INT, 0, offsetof(struct faulty_options, level), "1", "0..9",
     FAULT == OPTION_WITHOUT_HELP ? "" : "Nothing."},
    {0},
};

struct faulty {
    const struct bps_host *host;
    struct later *kept;
    int event;
    struct bps_watch *watch;
    struct bps_poller *poller;
};

struct later {
    struct later *next;
    struct faulty *faulty;
    const struct bps_stage_task *task;
};

static void *sleep_for_ever(void *arg)
{
    for (;;) {
        pause();
    }
    return arg;
}

static bps_status refuse(struct bps_report *report)
{
    if (has(OPEN_SAYS_NOTHING)) {
        return BPS_ERR_INVALID;
    }
    BPS_REPORT(report, "out of memory");
    return BPS_ERR_NOMEM;
}

static void on_event(void *arg, uint32_t events)
{
    (void)arg;
    (void)events;
}

static bool no_work(void *arg)
{
    (void)arg;
    return false;
}

static bool may_sleep(void *arg)
{
    (void)arg;
    return true;
}

static bool begin_events(struct faulty *faulty)
{
    const struct bps_host *host = faulty->host;
    faulty->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    faulty->watch = faulty->event >= 0 ? host->watch(host, faulty->event, on_event, NULL) : NULL;
    faulty->poller = faulty->watch != NULL ? host->poller(host, no_work, may_sleep, NULL) : NULL;
    return faulty->poller != NULL;
}

static void end_events(struct faulty *faulty)
{
    if (faulty->poller != NULL && !has(OPEN_LEAKS_POLLER)) {
        faulty->host->unpoll(faulty->host, faulty->poller);
    }
    if (faulty->watch != NULL && !has(OPEN_LEAKS_WATCH)) {
        faulty->host->unwatch(faulty->host, faulty->watch);
    }
    if (faulty->event >= 0) {
        close(faulty->event);
    }
}

static bps_status open_things(const struct faulty_options *options)
{
    pthread_t thread;
    if (has(OPEN_LEAKS)) {
        *(volatile char *)malloc(100) = 1;
    } else if (has(OPEN_LEAKS_DESCRIPTOR)) {
        return open("/dev/null", O_RDONLY) < 0;
    } else if (has(OPEN_LEAKS_THREAD)) {
        return pthread_create(&thread, NULL, sleep_for_ever, NULL);
    } else if (has(OPEN_EXITS)) {
        exit(0);
    } else if (has(OPEN_HANGS)) {
        sleep_for_ever(NULL);
    } else if (has(OPEN_PRINTS)) {
        puts("hello");
    } else if (has(OPTION_CRASHES) && options->level == 9) {
        abort();
    }
    return has(OPEN_RETURNS_ONE);
}

static unsigned instances;

static bps_status faulty_open(const struct bps_host *host, const void *options, void **instance_out,
                              struct bps_report *report)
{
    struct faulty *faulty = calloc(1, sizeof *faulty);
    if ((faulty == NULL && !has(OPEN_TRUSTS_MALLOC)) || has(OPEN_SAYS_NOTHING)) {
        return refuse(report);
    }
    faulty->host = host;
    char *more = malloc(50);
    if (more == NULL) {
        if (!has(OPEN_LEAKS_WITHOUT_MEMORY)) {
            free(faulty);
        }
        return refuse(report);
    }
    free(more);
    if (!begin_events(faulty)) {
        end_events(faulty);
        free(faulty);
        return refuse(report);
    }
    *instance_out = faulty;
    instances++;
    return open_things(options);
}

static void faulty_close(void *instance)
{
    if (has(SECOND_INSTANCE) && instances > 1) {
        abort();
    }
    instances--;
    end_events(instance);
    free(instance);
}

static void faulty_query(void *instance, struct bps_stage_attr *out)
{
    uint32_t before = out->writes;
    (void)instance;
    *out = (struct bps_stage_attr){
        .ops = has(QUERY_NO_OPS) ? 0 : BPS_OP_BIT(BPS_SUM),
        .dtypes = BPS_DTYPE_BIT(BPS_FLOAT32) | (has(QUERY_UNKNOWN_TYPE) ? 1u << 31 : 0),
        .memory = BPS_MEMORY_HOST,
        .executor = has(QUERY_EXECUTOR) ? 7
                    : answers_later()   ? BPS_EXECUTOR_IO
                                        : BPS_EXECUTOR_CPU,
        .writes = has(QUERY_UNSET) ? (before & 1) : 1,
        .takes = "plain",
        .gives = "plain",
    };
}

static bps_status faulty_bind(void *instance, const struct bps_tensor_info *tensor, void **state_out,
                              struct bps_report *report)
{
    (void)instance;
    (void)tensor;
    (void)report;
    *state_out = malloc(40);
    return has(BIND_RETURNS_SEVEN) ? 7 : BPS_OK;
}

static void faulty_unbind(void *instance, void *state)
{
    (void)instance;
    if (!has(BIND_LEAKS)) {
        free(state);
    }
}

static void double_all(float *dst, float *src, size_t count)
{
    static float shared[5000];
    if (has(RUN_SHARES)) {
        memcpy(shared, src, count * sizeof *src);
        usleep(1000); /* the others come in meanwhile, also where they share a core */
        src = shared;
    }
    for (size_t i = 0; i < count - has(RUN_SHORT); i++) {
        dst[i] = 2 * src[i] + (has(RUN_NOT_IN_PLACE) && i > 0 ? src[i - 1] : 0);
    }
}

static void run_wrongly(float *dst, float *src, size_t count)
{
    volatile float *to = dst, *from = src;
    if (has(RUN_BEYOND)) {
        to[count] = 1;
    } else if (has(RUN_BEFORE)) {
        to[-1] = 1;
    } else if (has(RUN_READS_BEYOND)) {
        to[0] = from[count];
    } else if (has(RUN_WRITES_SRC)) {
        from[0] = 1;
    } else if (has(RUN_LEAKS)) {
        *(volatile char *)malloc(100) = 1;
    }
    for (size_t i = 0; i < count && has(RUN_TRAPS_NAN); i++) {
        if (from[i] != from[i]) {
            abort();
        }
    }
}

/* ---- answers that come later ---- */

static void answer(struct later *later)
{
    struct faulty *faulty = later->faulty;
    const struct bps_stage_task *task = later->task;
    for (struct later **at = &faulty->kept; *at != NULL; at = &(*at)->next) {
        if (*at == later) {
            *at = later->next;
            break;
        }
    }
    free(later);
    task->done(task, has(DONE_POSITIVE) ? 3 : BPS_OK, NULL);
    if (has(DONE_TWICE)) {
        task->done(task, BPS_OK, NULL);
    }
}

static void on_time(void *arg)
{
    if (!has(DONE_NEVER)) {
        answer(arg);
    }
}

static bps_status run_later(struct faulty *faulty, const struct bps_stage_task *task)
{
    struct later *later = calloc(1, sizeof *later);
    if (later == NULL || has(DONE_AND_OK)) {
        free(later);
        task->done(task, BPS_OK, NULL);
        return BPS_OK;
    }
    *later = (struct later){faulty->kept, faulty, task};
    faulty->kept = later;
    faulty->host->timer(faulty->host, 1000000, 0, on_time, later);
    return BPS_INPROGRESS;
}

static void faulty_cancel(void *instance, void *state, const struct bps_stage_task *task)
{
    struct faulty *faulty = instance;
    (void)state;
    for (struct later **at = &faulty->kept; *at != NULL && has(CANCEL_FORGETS); at = &(*at)->next) {
        if ((*at)->task == task) {
            (*at)->task = NULL;
            *at = (*at)->next;
            break;
        }
    }
}

static bps_status faulty_run(void *instance, void *state, const struct bps_stage_task *task, struct bps_report *report)
{
    (void)state;
    (void)report;
    double_all(task->dst, (float *)task->src, task->count);
    run_wrongly(task->dst, (float *)task->src, task->count);
    if (has(RUN_FAILS)) {
        return BPS_ERR_FAILED;
    }
    if (has(RUN_LATER_IN_POOL)) {
        return BPS_INPROGRESS;
    }
    return has(RUN_RETURNS_THREE) ? 3 : answers_later() ? run_later(instance, task) : BPS_OK;
}

static bps_status faulty_run_all(void *instance, const struct bps_stage_task *const *task, void *const *state,
                                 size_t count, struct bps_report *report)
{
    (void)instance;
    (void)state;
    (void)report;
    for (size_t i = 0; i < (has(ROUND_FIRST_ONLY) ? 1 : count); i++) {
        float *dst = task[i]->dst;
        double_all(dst, (float *)task[i]->src, task[i]->count);
        dst[0] += has(ROUND_BY_ORDER) ? (float)i : 0;
    }
    return has(ROUND_LATER) ? BPS_INPROGRESS : BPS_OK;
}

static void faulty_describe(void *instance, char *text, size_t n)
{
    (void)instance;
    if (has(DESCRIBE_IGNORES_ROOM)) {
        strcpy(text, "doubles everything");
    } else {
        snprintf(text, n, has(DESCRIBE_TWO_LINES) ? "a\nb" : "doubles everything");
    }
}

static const struct bps_stage_ops faulty_ops = {
    .size = sizeof(struct bps_stage_ops),
    .open = faulty_open,
    .close = faulty_close,
    .query = faulty_query,
    .bind = faulty_bind,
    .unbind = faulty_unbind,
    .run = FAULT < ROUND_NONE ? faulty_run : NULL,
    .describe = faulty_describe,
    .cancel = faulty_cancel,
    .run_all = FAULT < ROUND_NONE ? NULL : faulty_run_all,
};

BPS_PLUGIN_MODULE(BPS_KIND_STAGE, "faulty", "1.0", "Apache-2.0", .summary = "doubles", .options = faulty_options,
                  .options_size = sizeof(struct faulty_options), .ops = &faulty_ops);
