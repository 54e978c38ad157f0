/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.c - a stand-in for libnccl.so.2, among processes of one host and on the stand-in for the driver.
 *
 * It keeps NCCL's rules: all ranks must come and give the same operations in the same order; each needs a
 * device of its own; operations run on a stream, late; whoever waits for a rank that is lost waits until it
 * aborts. Communicators never block, and are in progress whenever they may be.
 *
 * The environment says what goes wrong, at one rank or at all:
 *   STANDIN_NCCL_INIT=CODE   how a communicator fails to come about
 *   STANDIN_NCCL_FAIL=N      the N-th operation fails
 *   STANDIN_NCCL_HANG=N      the N-th operation never ends
 *   STANDIN_NCCL_RANK=N      only at this rank
 */
#include "reducers/cuda/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "tests/gpu/standin/nccl/board.h"
#include "tests/gpu/standin/standin.h"

#define NCCL_DECLARE(member, symbol, result, parameters) STANDIN_API result symbol parameters;
NCCL_FUNCTIONS(NCCL_DECLARE)

#define NCCL_SYSTEM_ERROR     2u /* further ncclResults */
#define NCCL_INVALID_ARGUMENT 4u

enum kind { REDUCE, BROADCAST, ALL_REDUCE, CARRY };

struct ncclComm {
    struct board *board;
    char name[40];
    unsigned rank, size;
    uint64_t given, turn; /* operations; turns of the board, of the stream's thread */
    atomic_uint error;    /* an nccl_result */
    atomic_bool aborted, finalized;
    atomic_uint pending;       /* operations on streams */
    unsigned failing, hanging; /* the numbers of operations; 0: none */
};

struct operation {
    struct ncclComm *comm;
    struct board_step step;
    const unsigned char *from;
    unsigned char *to;
    uint64_t number;
    struct mail *mail; /* CARRY: messages, `step.count` of them */
};

/* The messages of the group that a thread has begun. */
static _Thread_local struct {
    bool begun;
    struct ncclComm *comm;
    struct CUstream_st *stream;
    unsigned count;
    struct mail mail[MAIL_MOST];
} gathered;

static unsigned setting(const char *name, unsigned rank)
{
    const char *text = getenv(name), *only = getenv("STANDIN_NCCL_RANK");
    bool here = only == NULL || strtoul(only, NULL, 10) == rank;
    return text != NULL && here ? (unsigned)strtoul(text, NULL, 10) : 0;
}

/* ---- words ---- */

nccl_result ncclGetVersion(int *out)
{
    *out = 22105;
    return NCCL_OK;
}

const char *ncclGetErrorString(nccl_result result)
{
    switch (result) {
    case NCCL_OK:
        return "no error";
    case NCCL_SYSTEM_ERROR:
        return "unhandled system error";
    case NCCL_INVALID_ARGUMENT:
        return "invalid argument";
    case NCCL_INVALID_USAGE:
        return "invalid usage";
    default:
        return "unknown result code";
    }
}

const char *ncclGetLastError(struct ncclComm *comm)
{
    (void)comm;
    return "stand-in";
}

/* ---- communicators ---- */

nccl_result ncclGetUniqueId(struct nccl_name *out)
{
    uint64_t random;
    memset(out, 0, sizeof *out);
    if (getrandom(&random, sizeof random, 0) != sizeof random) {
        return NCCL_SYSTEM_ERROR;
    }
    snprintf(out->bytes, sizeof out->bytes, "/standin-nccl-%016llx", (unsigned long long)random);
    return NCCL_OK;
}

nccl_result ncclCommInitRankConfig(struct ncclComm **out, int size, struct nccl_name name, int rank,
                                   struct nccl_config *config)
{
    struct CUctx_st *context;
    struct CUuuid_st device;
    *out = NULL;
    if (config->size != sizeof *config || config->magic != NCCL_CONFIG_MAGIC || config->blocking != 0 || size < 1 ||
        size > BOARD_SEATS || rank < 0 || rank >= size || cuCtxGetCurrent(&context) != CUDA_OK || context == NULL ||
        cuDeviceGetUuid(&device, context->device) != CUDA_OK) {
        return NCCL_INVALID_ARGUMENT;
    }
    struct ncclComm *comm = calloc(1, sizeof *comm);
    if (comm == NULL) {
        abort();
    }
    snprintf(comm->name, sizeof comm->name, "%.39s", name.bytes);
    comm->rank = (unsigned)rank;
    comm->size = (unsigned)size;
    comm->failing = setting("STANDIN_NCCL_FAIL", comm->rank);
    comm->hanging = setting("STANDIN_NCCL_HANG", comm->rank);
    atomic_store(&comm->error, setting("STANDIN_NCCL_INIT", comm->rank));
    comm->board = board_open(comm->name);
    if (comm->board == NULL) {
        free(comm);
        return NCCL_SYSTEM_ERROR;
    }
    *out = comm;
    if (atomic_load(&comm->error) == NCCL_OK) {
        memcpy(comm->board->seat[rank].device, device.bytes, sizeof device.bytes);
        atomic_store(&comm->board->seat[rank].here, true);
    }
    return NCCL_IN_PROGRESS;
}

nccl_result ncclCommGetAsyncError(struct ncclComm *comm, nccl_result *out)
{
    *out = atomic_load(&comm->error);
    if (*out == NCCL_OK && atomic_load(&comm->finalized)) {
        *out = board_deserted(comm->board, comm->size) ? NCCL_OK : NCCL_IN_PROGRESS;
    } else if (*out == NCCL_OK && !board_complete(comm->board, comm->size)) {
        *out = NCCL_IN_PROGRESS;
    } else if (*out == NCCL_OK && board_shares(comm->board, comm->size)) {
        *out = NCCL_INVALID_USAGE;
    }
    return NCCL_OK;
}

nccl_result ncclCommFinalize(struct ncclComm *comm)
{
    atomic_store(&comm->finalized, true);
    atomic_store(&comm->board->seat[comm->rank].left, true);
    return NCCL_IN_PROGRESS;
}

static void comm_free(struct ncclComm *comm)
{
    while (atomic_load(&comm->pending) > 0) {
        usleep(100);
    }
    board_close(comm->board, comm->name);
    free(comm);
}

nccl_result ncclCommDestroy(struct ncclComm *comm)
{
    comm_free(comm);
    return NCCL_OK;
}

nccl_result ncclCommAbort(struct ncclComm *comm)
{
    atomic_store(&comm->aborted, true);
    comm_free(comm);
    return NCCL_OK;
}

/* ---- arithmetic ---- */

#define COMBINE(type)                                                                                                  \
    static void combine_##type(void *to, const struct board *board, unsigned n, size_t count, unsigned op)             \
    {                                                                                                                  \
        for (size_t i = 0; i < count; i++) {                                                                           \
            type sum = ((const type *)(const void *)board->seat[0].data)[i];                                           \
            for (unsigned k = 1; k < n; k++) {                                                                         \
                type next = ((const type *)(const void *)board->seat[k].data)[i];                                      \
                bool higher = next > sum, picks = op == NCCL_MAX || op == NCCL_MIN;                                    \
                type picked = higher == (op == NCCL_MAX) ? next : sum;                                                 \
                sum = (type)(picks ? picked : op == NCCL_PRODUCT ? sum * next : sum + next);                           \
            }                                                                                                          \
            ((type *)to)[i] = op == NCCL_AVERAGE ? (type)(sum / (type)n) : sum;                                        \
        }                                                                                                              \
    }
COMBINE(float)
COMBINE(double)
COMBINE(int8_t)
COMBINE(uint8_t)
COMBINE(int32_t)
COMBINE(int64_t)

static const struct {
    size_t bytes;
    void (*combine)(void *to, const struct board *board, unsigned n, size_t count, unsigned op);
} types[] = {
    [NCCL_INT8] = {1, combine_int8_t},   [NCCL_UINT8] = {1, combine_uint8_t}, [NCCL_INT32] = {4, combine_int32_t},
    [NCCL_INT64] = {8, combine_int64_t}, [NCCL_FLOAT32] = {4, combine_float}, [NCCL_FLOAT64] = {8, combine_double},
    [NCCL_FLOAT16] = {2, NULL}, /* none uses NCCL's own sums of them */
};

/* ---- operations ---- */

static bool receives(const struct operation *operation)
{
    return operation->step.kind != REDUCE || operation->step.root == operation->comm->rank;
}

static void take(const struct operation *operation, size_t at, size_t bytes)
{
    const struct ncclComm *comm = operation->comm;
    const struct board_step *step = &operation->step;
    if (step->kind == BROADCAST) {
        memcpy(operation->to + at, comm->board->seat[step->root].data, bytes);
    } else {
        types[step->type].combine(operation->to + at, comm->board, comm->size, bytes / types[step->type].bytes,
                                  step->op);
    }
}

static void wait_for_the_end(struct ncclComm *comm)
{
    while (!atomic_load(&comm->aborted)) {
        usleep(100);
    }
}

static void misused(struct ncclComm *comm)
{
    atomic_store(&comm->error, NCCL_INVALID_USAGE);
    wait_for_the_end(comm);
}

static void combine_all(const struct operation *operation)
{
    struct ncclComm *comm = operation->comm;
    size_t bytes = operation->step.count * types[operation->step.type].bytes;
    for (size_t at = 0; at < bytes && !atomic_load(&comm->aborted); at += BOARD_CHUNK) {
        size_t part = bytes - at < BOARD_CHUNK ? bytes - at : BOARD_CHUNK;
        uint64_t turn = ++comm->turn;
        if (!board_begin(comm->board, comm->rank, comm->size, turn, &operation->step,
                         operation->from != NULL ? operation->from + at : NULL, part, &comm->aborted)) {
            misused(comm);
            break;
        }
        if (receives(operation)) {
            take(operation, at, part);
        }
        board_end(comm->board, comm->rank, turn);
    }
}

static void run(void *arg)
{
    struct operation *operation = arg;
    struct ncclComm *comm = operation->comm;
    if (operation->number == comm->failing) {
        atomic_store(&comm->error, NCCL_SYSTEM_ERROR);
    }
    if (operation->number == comm->failing || operation->number == comm->hanging) {
        wait_for_the_end(comm);
    }
    if (operation->step.kind != CARRY) {
        combine_all(operation);
    } else if (!mail_carry(operation->mail, (unsigned)operation->step.count, &comm->aborted)) {
        misused(comm);
    }
    atomic_fetch_sub(&comm->pending, 1);
    free(operation->mail);
    free(operation);
}

static struct operation *operation_new(struct ncclComm *comm, const struct board_step *step)
{
    struct operation *operation = calloc(1, sizeof *operation);
    if (operation == NULL) {
        abort();
    }
    *operation = (struct operation){.comm = comm, .step = *step, .number = ++comm->given};
    return operation;
}

static nccl_result launch(struct operation *operation, struct CUstream_st *stream)
{
    atomic_fetch_add(&operation->comm->pending, 1);
    return cuLaunchHostFunc(stream, run, operation) == CUDA_OK ? NCCL_OK : NCCL_SYSTEM_ERROR;
}

static nccl_result enqueue(struct ncclComm *comm, const struct board_step *step, const void *from, void *to,
                           struct CUstream_st *stream)
{
    if (step->type >= sizeof types / sizeof *types || types[step->type].bytes == 0 ||
        (types[step->type].combine == NULL && step->kind != BROADCAST)) {
        return NCCL_INVALID_ARGUMENT;
    }
    struct operation *operation = operation_new(comm, step);
    size_t bytes = step->count * types[step->type].bytes;
    bool sends = step->kind != BROADCAST || step->root == comm->rank;
    operation->from = sends ? standin_memory(from, bytes) : NULL;
    operation->to = receives(operation) ? standin_memory(to, bytes) : NULL;
    if ((sends && operation->from == NULL) || (receives(operation) && operation->to == NULL)) {
        free(operation);
        return NCCL_INVALID_ARGUMENT;
    }
    return launch(operation, stream);
}

nccl_result ncclReduce(const void *from, void *to, size_t count, unsigned type, unsigned op, int root,
                       struct ncclComm *comm, struct CUstream_st *stream)
{
    const struct board_step step = {REDUCE, type, op, (unsigned)root, count};
    return enqueue(comm, &step, from, to, stream);
}

nccl_result ncclBroadcast(const void *from, void *to, size_t count, unsigned type, int root, struct ncclComm *comm,
                          struct CUstream_st *stream)
{
    const struct board_step step = {BROADCAST, type, 0, (unsigned)root, count};
    return enqueue(comm, &step, from, to, stream);
}

nccl_result ncclAllReduce(const void *from, void *to, size_t count, unsigned type, unsigned op, struct ncclComm *comm,
                          struct CUstream_st *stream)
{
    const struct board_step step = {ALL_REDUCE, type, op, 0, count};
    return enqueue(comm, &step, from, to, stream);
}

/* ---- messages ---- */

static nccl_result add(struct ncclComm *comm, bool sends, const void *memory, size_t bytes, int peer,
                       struct CUstream_st *stream)
{
    unsigned char *place = standin_memory(memory, bytes);
    if (!gathered.begun || place == NULL || peer < 0 || (unsigned)peer >= comm->size || (unsigned)peer == comm->rank ||
        gathered.count == MAIL_MOST || (gathered.count > 0 && (gathered.comm != comm || gathered.stream != stream))) {
        return NCCL_INVALID_ARGUMENT;
    }
    unsigned from = sends ? comm->rank : (unsigned)peer, to = sends ? (unsigned)peer : comm->rank;
    gathered.comm = comm;
    gathered.stream = stream;
    gathered.mail[gathered.count++] = (struct mail){
        .box = &comm->board->box[from][to],
        .sends = sends,
        .memory = place,
        .bytes = bytes,
    };
    return NCCL_OK;
}

nccl_result ncclSend(const void *from, size_t count, unsigned type, int peer, struct ncclComm *comm,
                     struct CUstream_st *stream)
{
    return add(comm, true, from, count * types[type].bytes, peer, stream);
}

nccl_result ncclRecv(void *to, size_t count, unsigned type, int peer, struct ncclComm *comm, struct CUstream_st *stream)
{
    return add(comm, false, to, count * types[type].bytes, peer, stream);
}

nccl_result ncclGroupStart(void)
{
    gathered.begun = true;
    gathered.count = 0;
    return NCCL_OK;
}

static nccl_result launch_gathered(void)
{
    const struct board_step step = {.kind = CARRY, .count = gathered.count};
    struct operation *operation = operation_new(gathered.comm, &step);
    operation->mail = calloc(gathered.count, sizeof *operation->mail);
    if (operation->mail == NULL) {
        abort();
    }
    memcpy(operation->mail, gathered.mail, gathered.count * sizeof *operation->mail);
    return launch(operation, gathered.stream);
}

/* Communicators that do not block say so even when nothing is left to do. */
nccl_result ncclGroupEnd(void)
{
    nccl_result result = gathered.count > 0 ? launch_gathered() : NCCL_OK;
    gathered.begun = false;
    return result != NCCL_OK ? result : NCCL_IN_PROGRESS;
}
