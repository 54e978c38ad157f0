/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mxnet.c - push_pull and broadcast as operations of MXNet's engine.
 *
 * The engine knows which arrays an operation reads and changes, and runs it when what comes before has ended. Then
 * the operation hands the arrays' memory to the core and returns; the core's thread tells the engine of its end. So
 * any number of operations is in flight at once, and none holds one of the engine's threads.
 *
 * The package byteps.mxnet loads this file, and it finds the functions of MXNet in the process.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <byteps/byteps.h>
#include <byteps/framework.h>

#include "c_api.h"

BPS_PLUGIN_NOTE(BPS_KIND_FRAMEWORK, "mxnet", PLUGIN_VERSION);
BPS_FRAMEWORK_NOTE("mxnet", "1.9"); /* the first whose engine takes a function with arrays and an error */

#define LIBRARY "libmxnet.so"

static struct {
#define FIELD(result, name, parameters) result(*name) parameters;
    MXNET_SYMBOLS(FIELD) CXX_SYMBOLS(FIELD)
#undef FIELD
} mx;

static const struct {
    int type;
    uint32_t dtype;
} types[] = {
    {TYPE_FLOAT32, BPS_FLOAT32},   {TYPE_FLOAT64, BPS_FLOAT64}, {TYPE_FLOAT16, BPS_FLOAT16},
    {TYPE_BFLOAT16, BPS_BFLOAT16}, {TYPE_INT8, BPS_INT8},       {TYPE_INT16, BPS_INT16},
    {TYPE_INT32, BPS_INT32},       {TYPE_INT64, BPS_INT64},     {TYPE_UINT8, BPS_UINT8},
    {TYPE_BOOL, BPS_BOOL},
};

/* BPS_DTYPES if it cannot be sent. */
static uint32_t dtype_of(int type)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (types[i].type == type)
            return types[i].dtype;
    }
    return BPS_DTYPES;
}

/* ---- operations ---------------------------------------------------------------------------------------- */

/* An operation of the engine, from its push to its end. */
struct operation {
    NDArrayHandle array; /* our own reference */
    char *name;
    bool is_pushed, is_begun;
    uint32_t dtype, ndim;
    int64_t shape[BPS_DIMENSIONS];
    int64_t root; /* -1: a push_pull */
    uint32_t op;
    int32_t priority;
    double prescale, postscale, learning_rate;
    struct on_complete done;
};

/* Operations of this process. What never begins, since its array has an error, counts as begun when it has ended. */
static atomic_long pushed, begun, ended;

/* The engine calls it when it needs the operation no more, which was not even run if the array has an error. */
static void operation_delete(void *arg)
{
    struct operation *operation = arg;

    if (operation->is_pushed) {
        if (!operation->is_begun)
            atomic_fetch_add(&begun, 1);
        atomic_fetch_add(&ended, 1);
    }
    if (operation->array != NULL)
        mx.MXNDArrayFree(operation->array);
    free(operation->name);
    free(operation);
}

/* The arrays that the operation has changed get the error; who waits for them raises it. */
static void fail(const struct on_complete *done, const char *text)
{
    void *error[2]; /* a std::runtime_error: its table of functions, and its text */

    mx._ZNSt13runtime_errorC1EPKc(error, text);
    done->callback(done->engine, done->param, error);
    mx._ZNSt13runtime_errorD1Ev(error);
}

/* MXNet in Python makes an exception of this name of a text that begins with it: _failures.py. */
static const char *kind_of(bps_status status)
{
    return status == BPS_ERR_LOST         ? "byteps.LostError: "
           : status == BPS_ERR_MEMBERSHIP ? "byteps.MembershipError: "
                                          : "";
}

/* The core's callback. */
static void end(void *arg, bps_status status, const char *text)
{
    struct on_complete done = ((struct operation *)arg)->done;
    char line[sizeof(((struct bps_report *)NULL)->text) + 32];

    if (status < 0) {
        text = text != NULL && text[0] != '\0' ? text : bps_strerror(status);
        snprintf(line, sizeof(line), "%s%s", kind_of(status), text);
        fail(&done, line);
    } else {
        done.callback(done.engine, done.param, NULL);
    }
}

/*
 * Called by the engine when the array is ours. Only now it has memory for certain. Once the operation has begun, it
 * may be over.
 */
static void begin(struct operation *operation)
{
    struct bps_report report = {.text = ""};
    struct bps_push_pull request = {
        .size = sizeof(request),
        .name = operation->name,
        .count = 1,
        .ndim = operation->ndim,
        .dtype = operation->dtype,
        .shape = operation->shape,
        .op = operation->op,
        .priority = operation->priority,
        .prescale = operation->prescale,
        .postscale = operation->postscale,
        .learning_rate = operation->learning_rate,
        .done = end,
        .arg = operation,
    };
    bps_handle handle;
    bps_status status;
    void *data;

    if (mx.MXNDArrayGetData(operation->array, &data) != 0) {
        end(operation, BPS_ERR_INVALID, mx.MXGetLastError());
        return;
    }
    for (uint32_t i = 0; i < request.ndim; i++)
        request.count *= (uint64_t)request.shape[i];
    request.in = request.out = data;
    status = operation->root < 0 ? bps_push_pull_async(&request, &handle, &report)
                                 : bps_broadcast_async(&request, (uint32_t)operation->root, &handle, &report);
    if (status < 0)
        end(operation, status, report.text);
}

static void run(void *engine, void *on_complete, void *param)
{
    struct operation *operation = param;

    (void)engine;
    operation->done = *(const struct on_complete *)on_complete;
    operation->is_begun = true;
    begin(operation);
    atomic_fetch_add(&begun, 1);
}

/* Asks the array what it is; NULL, or why it cannot be sent. */
static const char *describe(NDArrayHandle array, struct operation *out)
{
    int type, storage, device, number, ndim;
    const int64_t *shape;

    if (mx.MXNDArrayGetDType(array, &type) != 0 || mx.MXNDArrayGetStorageType(array, &storage) != 0 ||
        mx.MXNDArrayGetContext(array, &device, &number) != 0 || mx.MXNDArrayGetShapeEx64(array, &ndim, &shape) != 0)
        return mx.MXGetLastError();
    if (storage != STORAGE_DENSE)
        return "the array is sparse; give its dense form, array.tostype('default')";
    if (device == DEVICE_GPU)
        return "the array is on a GPU; give a copy, array.as_in_context(mxnet.cpu())";
    out->dtype = dtype_of(type);
    if (out->dtype == BPS_DTYPES)
        return "the array has a type that cannot be sent; supported are float16, bfloat16, float32, float64, "
               "int8, int16, int32, int64, uint8 and bool";
    if (ndim < 0 || (unsigned)ndim > BPS_DIMENSIONS)
        return "the shape of the array is not known, or has more than 64 dimensions";
    out->ndim = (uint32_t)ndim;
    memcpy(out->shape, shape, (size_t)ndim * sizeof(*shape));
    return NULL;
}

static struct operation *operation_new(NDArrayHandle array, const char *name)
{
    struct operation *operation = calloc(1, sizeof(*operation));

    if (operation == NULL)
        return NULL;
    operation->name = strdup(name);
    if (operation->name == NULL || mx.MXShallowCopyNDArray(array, &operation->array) != 0) {
        operation_delete(operation);
        return NULL;
    }
    return operation;
}

/*
 * Pushes a push_pull, or a broadcast if root is not negative, of an array in the host's memory, in its place. The
 * name is copied. Returns NULL, or what is wrong; the text lives until the next call of the thread.
 */
BPS_API const char *byteps_mxnet_push(NDArrayHandle array, const char *name, int64_t root, uint32_t op,
                                      int32_t priority, double prescale, double postscale, double learning_rate);

const char *byteps_mxnet_push(NDArrayHandle array, const char *name, int64_t root, uint32_t op, int32_t priority,
                              double prescale, double postscale, double learning_rate)
{
    static const int property = FN_CPU_PRIORITIZED;
    struct context cpu = {1, 0};
    struct operation *operation = operation_new(array, name);
    const char *problem;

    if (operation == NULL)
        return "out of memory";
    problem = describe(array, operation);
    if (problem != NULL) {
        operation_delete(operation);
        return problem;
    }
    operation->root = root;
    operation->op = op;
    operation->priority = priority;
    operation->prescale = prescale;
    operation->postscale = postscale;
    operation->learning_rate = learning_rate;
    operation->is_pushed = true;
    atomic_fetch_add(&pushed, 1);
    if (mx.MXEnginePushAsyncND(run, operation, operation_delete, &cpu, NULL, 0, &operation->array, 1, &property,
                               priority, root < 0 ? "BytepsPushPull" : "BytepsBroadcast", false) != 0)
        return mx.MXGetLastError();
    return NULL;
}

/* How many operations have not ended yet, or, with in_queue, have not even begun. */
BPS_API long byteps_mxnet_pending(int in_queue);

long byteps_mxnet_pending(int in_queue)
{
    long done = atomic_load(in_queue ? &begun : &ended);

    return atomic_load(&pushed) - done;
}

/* ---- MXNet in this process ----------------------------------------------------------------------------- */

static char refusal[512];

static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    if (strstr(info->dlpi_name, "/" LIBRARY) == NULL)
        return 0;
    snprintf(arg, 4096, "%s", info->dlpi_name);
    return 1;
}

/* libmxnet.so is not in the global scope: all symbols come from its own handle, and from what it is linked to. */
static bool find_symbols(const char *path)
{
    static const struct {
        const char *name;
        size_t offset;
    } symbols[] = {
#define ROW(result, name, parameters) {#name, offsetof(__typeof__(mx), name)},
        MXNET_SYMBOLS(ROW) CXX_SYMBOLS(ROW)
#undef ROW
    };
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);

    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *address = library == NULL ? NULL : dlsym(library, symbols[i].name);

        if (address == NULL) {
            snprintf(refusal, sizeof(refusal), "its library %.300s has no function %s", path, symbols[i].name);
            return false;
        }
        memcpy((char *)&mx + symbols[i].offset, &address, sizeof(address));
    }
    return true;
}

/*
 * Finds MXNet in the process, tells the core which one it is ("1.9.1"), and returns "" or why it cannot be used. The
 * package byteps.mxnet calls it when it has loaded the library.
 */
BPS_API const char *byteps_mxnet_attach(const char *version);

const char *byteps_mxnet_attach(const char *version)
{
    static char framework[64], path[4096];
    static const struct bps_binding binding = {
        .size = sizeof(binding),
        .abi = BPS_BINDING_ABI,
        .name = "mxnet",
        .version = PLUGIN_VERSION,
        .framework = framework,
    };
    struct bps_report report = {.text = ""};

    if (dl_iterate_phdr(look_at, path) == 0)
        return "its library " LIBRARY " is not loaded";
    if (!find_symbols(path))
        return refusal;
    snprintf(framework, sizeof(framework), "MXNet %s", version);
    if (bps_binding_register(&binding, &report) < 0)
        snprintf(refusal, sizeof(refusal), "%s", report.text);
    return refusal;
}
