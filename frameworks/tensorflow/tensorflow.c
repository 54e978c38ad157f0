/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensorflow.c - push_pull, broadcast, and the questions about the job as TensorFlow operations.
 *
 * tf.load_op_library() loads this file, which registers the operations in its constructor: TensorFlow looks for
 * new ones while it loads a library, so nothing else may load it before. The kernels are asynchronous. They hand
 * the tensor's memory to the core and return; the core's thread runs TensorFlow's callback. So any number of
 * operations of a graph are in flight at once, and none holds one of TensorFlow's threads. Only in eager mode, where
 * the thread sleeps until the operation has ended anyway, a push_pull does the core's work in it.
 *
 * On GPUs the same kernels are registered with their tensors in host memory: TensorFlow copies.
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

#include "tensorflow.h"

BPS_PLUGIN_NOTE(BPS_KIND_FRAMEWORK, "tensorflow", PLUGIN_VERSION);
BPS_FRAMEWORK_NOTE("tensorflow", "2.13"); /* the first with TF_NewAsyncKernelBuilder(); _library.py says so, too */

#define LIBRARY "libtensorflow_framework.so"

struct tensorflow tf;

static char refusal[512]; /* why the operations are not there; "" if they are */

/* ---- types and errors ---------------------------------------------------------------------------------- */

static const struct {
    int type;
    uint32_t dtype;
} types[] = {
    {TF_FLOAT, BPS_FLOAT32},
    {TF_DOUBLE, BPS_FLOAT64},
    {TF_HALF, BPS_FLOAT16},
    {TF_BFLOAT16, BPS_BFLOAT16},
    {TF_INT8, BPS_INT8},
    {TF_INT16, BPS_INT16},
    {TF_INT32, BPS_INT32},
    {TF_INT64, BPS_INT64},
    {TF_UINT8, BPS_UINT8},
    {TF_BOOL, BPS_BOOL},
    {TF_FLOAT8_E4M3FN, BPS_FLOAT8_E4M3FN},
    {TF_FLOAT8_E5M2, BPS_FLOAT8_E5M2},
};

uint32_t dtype_of(int type)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (types[i].type == type)
            return types[i].dtype;
    }
    return BPS_DTYPES;
}

/*
 * Where TensorFlow has an error of that meaning, else the one for what goes wrong inside. The loss of a member is
 * one of these: on TF_UNAVAILABLE and TF_ABORTED a MonitoredSession begins anew, without end.
 */
static int code_of(bps_status status)
{
    switch (status) {
    case BPS_ERR_INVALID:
    case BPS_ERR_BUSY:
        return TF_INVALID_ARGUMENT;
    case BPS_ERR_CONF:
    case BPS_ERR_PLUGIN:
    case BPS_ERR_MISMATCH:
    case BPS_ERR_STATE:
        return TF_FAILED_PRECONDITION;
    case BPS_ERR_NOMEM:
        return TF_RESOURCE_EXHAUSTED;
    case BPS_ERR_TIMEOUT:
        return TF_DEADLINE_EXCEEDED;
    case BPS_ERR_UNSUPPORTED:
        return TF_UNIMPLEMENTED;
    default:
        return TF_INTERNAL;
    }
}

/* With the core's own number as a payload, which tells apart what is one to TensorFlow; _failures.py reads it. */
void set_status(TF_Status *out, bps_status status, const char *text)
{
    char number[16];

    snprintf(number, sizeof(number), "%d", (int)status);
    tf.TF_SetStatus(out, code_of(status), text != NULL && text[0] != '\0' ? text : bps_strerror(status));
    tf.TF_SetPayload(out, "byteps", number);
}

/* ---- TensorFlow's callback ----------------------------------------------------------------------------- */

/*
 * TF_RunAsyncOpKernelDoneCallback() takes a pointer to a std::function<void()> on the stack of the function that
 * calls the kernel; it is gone when the kernel returns. So it is moved to a place of our own, as the move
 * constructor of libstdc++ does: four words are copied, and the source is left empty. attach() has made sure
 * that TensorFlow uses libstdc++.
 */
struct callback {
    void *object[2];
    bool (*manager)(void *to, const void *from, int operation);
    void (*invoker)(const void *object);
};
#define MANAGER_DESTROY 3

/* Whether this is such a function: its words must point to code that the process has loaded. */
static bool callback_is_valid(const struct callback *callback)
{
    static atomic_bool seen; /* all callbacks are of one layout */
    Dl_info info;

    if (atomic_load_explicit(&seen, memory_order_relaxed))
        return true;
    if (callback->manager == NULL || callback->invoker == NULL ||
        dladdr(*(void *const *)(const void *)&callback->manager, &info) == 0 ||
        dladdr(*(void *const *)(const void *)&callback->invoker, &info) == 0)
        return false;
    atomic_store_explicit(&seen, true, memory_order_relaxed);
    return true;
}

static void callback_move(struct callback *to, TF_AsyncOpKernelDoneCallback *from)
{
    struct callback *source = (void *)from;

    *to = *source;
    source->manager = NULL;
    source->invoker = NULL;
}

static void callback_run(struct callback *callback)
{
    tf.TF_RunAsyncOpKernelDoneCallback((void *)callback);
    callback->manager(callback->object, callback->object, MANAGER_DESTROY);
}

/* ---- kernels ------------------------------------------------------------------------------------------- */

/* What the attributes of a node say. */
struct kernel {
    char *name; /* of the tensor; "": unnamed */
    bool is_broadcast;
    bool has_rows; /* its inputs and outputs are those of rows.c */
    bool waits;    /* TensorFlow's thread waits for the end, in eager mode: then it can do the core's work meanwhile */
    uint32_t op, root;
    int32_t priority;
    double prescale, postscale;
    char *coding;  /* of the tensor, for its declaration; NULL: it is not declared */
    bool has_rate; /* its second input is the learning rate */
};

/* An operation in flight. */
struct call {
    TF_OpKernelContext *context;
    TF_Tensor *in; /* NULL: the result comes into its place */
    TF_Tensor *out;
    struct rows *rows; /* NULL: of a dense tensor */
    struct callback done;
};

static void kernel_delete(void *arg)
{
    struct kernel *kernel = arg;

    if (kernel != NULL) {
        free(kernel->name);
        free(kernel->coding);
    }
    free(kernel);
}

static int64_t int_attribute(TF_OpKernelConstruction *construction, const char *name, TF_Status *status)
{
    int64_t value = 0;

    if (tf.TF_GetCode(status) == TF_OK)
        tf.TF_OpKernelConstruction_GetAttrInt64(construction, name, &value, status);
    return value;
}

/* As an attribute a double is the integer of its bits: TensorFlow's own "float" has 32. */
static double double_attribute(TF_OpKernelConstruction *construction, const char *name, TF_Status *status)
{
    int64_t bits = int_attribute(construction, name, status);
    double value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static char *text_attribute(TF_OpKernelConstruction *construction, const char *name, TF_Status *status)
{
    int32_t items, bytes = 0;
    char *text;

    if (tf.TF_GetCode(status) == TF_OK)
        tf.TF_OpKernelConstruction_GetAttrSize(construction, name, &items, &bytes, status);
    if (tf.TF_GetCode(status) != TF_OK)
        return NULL;
    text = calloc(1, (size_t)bytes + 1);
    if (text == NULL)
        set_status(status, BPS_ERR_NOMEM, "out of memory for the attributes of an operation");
    else if (bytes > 0)
        tf.TF_OpKernelConstruction_GetAttrString(construction, name, text, (size_t)bytes, status);
    return text;
}

static void read_attributes(struct kernel *kernel, TF_OpKernelConstruction *construction, TF_Status *status)
{
    kernel->name = text_attribute(construction, "tensor_name", status);
    kernel->priority = (int32_t)int_attribute(construction, "priority", status);
    kernel->prescale = kernel->postscale = 1;
    if (kernel->is_broadcast) {
        kernel->root = (uint32_t)int_attribute(construction, "root_rank", status);
    } else {
        kernel->op = (uint32_t)int_attribute(construction, "op", status);
        kernel->waits = int_attribute(construction, "waits", status) != 0;
        kernel->prescale = double_attribute(construction, "prescale_bits", status);
        kernel->postscale = double_attribute(construction, "postscale_bits", status);
        if (kernel->has_rows)
            return;
        kernel->has_rate = int_attribute(construction, "rates", status) != 0;
        if (int_attribute(construction, "declares", status) != 0)
            kernel->coding = text_attribute(construction, "coding", status);
    }
}

static void *kernel_create(TF_OpKernelConstruction *construction, bool is_broadcast, bool has_rows)
{
    TF_Status *status = tf.TF_NewStatus();
    struct kernel *kernel = calloc(1, sizeof(*kernel));

    if (kernel == NULL) {
        set_status(status, BPS_ERR_NOMEM, NULL);
    } else {
        kernel->is_broadcast = is_broadcast;
        kernel->has_rows = has_rows;
        read_attributes(kernel, construction, status);
    }
    if (tf.TF_GetCode(status) != TF_OK) {
        tf.TF_OpKernelConstruction_Failure(construction, status);
        kernel_delete(kernel);
        kernel = NULL;
    }
    tf.TF_DeleteStatus(status);
    return kernel;
}

static void *push_pull_create(TF_OpKernelConstruction *construction)
{
    return kernel_create(construction, false, false);
}

static void *broadcast_create(TF_OpKernelConstruction *construction)
{
    return kernel_create(construction, true, false);
}

static void *rows_create(TF_OpKernelConstruction *construction)
{
    return kernel_create(construction, false, true);
}

/* The operation has ended: on the core's thread, or in a call that could not start it. */
static void finish(void *arg, bps_status status, const char *text)
{
    struct call *call = arg;
    struct callback done = call->done;
    TF_Status *result = tf.TF_NewStatus();

    if (status < 0)
        set_status(result, status, text);
    else if (call->rows != NULL)
        rows_give(call->rows, call->context, result);
    if (tf.TF_GetCode(result) != TF_OK)
        tf.TF_OpKernelContext_Failure(call->context, result);
    tf.TF_DeleteStatus(result);
    rows_delete(call->rows);
    if (call->in != NULL)
        tf.TF_DeleteTensor(call->in);
    if (call->out != NULL)
        tf.TF_DeleteTensor(call->out);
    free(call);
    callback_run(&done);
}

/* Fills in what the request says of the tensor; shape has room for BPS_DIMENSIONS. */
static bool describe(const TF_Tensor *tensor, struct bps_push_pull *request, int64_t *shape, TF_Status *status)
{
    int ndim = tf.TF_NumDims(tensor);

    request->dtype = dtype_of(tf.TF_TensorType(tensor));
    if (request->dtype == BPS_DTYPES || ndim < 0 || (unsigned)ndim > BPS_DIMENSIONS) {
        tf.TF_SetStatus(status, TF_INVALID_ARGUMENT,
                        "the tensor has a type that cannot be sent, or more than 64 dimensions");
        return false;
    }
    for (int i = 0; i < ndim; i++)
        shape[i] = tf.TF_Dim(tensor, i);
    request->shape = shape;
    request->ndim = (uint32_t)ndim;
    request->count = (uint64_t)tf.TF_TensorElementCount(tensor);
    request->in = tf.TF_TensorData(tensor);
    return true;
}

/*
 * Takes the input and makes the output, in the memory of the input if nothing else uses that. Our own reference
 * is such a use; so it is given up before, and taken again where the memory is another one.
 */
static void take_tensors(struct call *call, struct bps_push_pull *request, int64_t *shape, TF_Status *status)
{
    static const int candidate = 0;
    TF_Tensor *in;
    bool described;
    int forwarded;

    tf.TF_GetInput(call->context, 0, &in, status);
    if (tf.TF_GetCode(status) != TF_OK)
        return;
    described = describe(in, request, shape, status);
    tf.TF_DeleteTensor(in);
    if (!described)
        return;
    call->out = tf.TF_ForwardInputOrAllocateOutput(call->context, &candidate, 1, 0, shape, (int)request->ndim,
                                                   &forwarded, status);
    if (tf.TF_GetCode(status) != TF_OK)
        return;
    request->out = tf.TF_TensorData(call->out);
    if (request->out != request->in)
        tf.TF_GetInput(call->context, 0, &call->in, status);
}

/* What feedback of a coding is scaled by; 0 if it is not told. */
static double learning_rate(const struct kernel *kernel, TF_OpKernelContext *context, TF_Status *status)
{
    double rate = 0;
    TF_Tensor *in;

    if (!kernel->has_rate || tf.TF_GetCode(status) != TF_OK)
        return 0;
    tf.TF_GetInput(context, 1, &in, status);
    if (tf.TF_GetCode(status) != TF_OK)
        return 0;
    memcpy(&rate, tf.TF_TensorData(in), sizeof(rate));
    tf.TF_DeleteTensor(in);
    return rate;
}

/* With each operation, for a graph lives on when the job has ended, and runs in the next one. */
static bps_status declare(const struct kernel *kernel, bps_tensor *out, struct bps_report *report)
{
    struct bps_declaration declaration = {
        .size = sizeof(declaration),
        .name = kernel->name,
        .dtype = BPS_DTYPES,
        .coding = kernel->coding,
    };

    return kernel->coding == NULL ? BPS_OK : bps_declare(&declaration, 1, out, report);
}

static bps_status begin(const struct kernel *kernel, struct bps_push_pull *request, struct bps_report *report)
{
    bps_handle handle;
    bps_status status = declare(kernel, &request->tensor, report);

    if (status < 0)
        return status;
    if (kernel->is_broadcast)
        return bps_broadcast_async(request, kernel->root, &handle, report);
    return kernel->waits ? bps_push_pull(request, BPS_FOREVER, NULL, report)
                         : bps_push_pull_async(request, &handle, report);
}

/* Once the operation has begun it may be over, and with it the step, the graph and the kernel. */
static void start(const struct kernel *kernel, struct call *call)
{
    bool waits = kernel->waits;
    TF_Status *status = tf.TF_NewStatus();
    struct bps_report report = {.text = ""};
    int64_t shape[BPS_DIMENSIONS];
    struct bps_push_pull request = {
        .size = sizeof(request),
        .name = kernel->name[0] != '\0' ? kernel->name : NULL,
        .op = kernel->op,
        .priority = kernel->priority,
        .prescale = kernel->prescale,
        .postscale = kernel->postscale,
        .done = waits ? NULL : finish,
        .arg = call,
    };
    bps_status result;

    if (kernel->has_rows)
        call->rows = rows_take(call->context, &request, shape, status);
    else
        take_tensors(call, &request, shape, status);
    request.learning_rate = learning_rate(kernel, call->context, status);
    if (tf.TF_GetCode(status) != TF_OK) {
        tf.TF_OpKernelContext_Failure(call->context, status);
        finish(call, BPS_OK, NULL);
    } else {
        result = begin(kernel, &request, &report);
        if (result < 0 || waits)
            finish(call, result, report.text);
    }
    tf.TF_DeleteStatus(status);
}

static void compute(void *kernel, TF_OpKernelContext *context, TF_AsyncOpKernelDoneCallback *done)
{
    struct call *call = calloc(1, sizeof(*call));
    const char *problem = "out of memory";

    if (call != NULL && !callback_is_valid((const void *)done)) {
        problem = "this build of TensorFlow calls kernels in a way that BytePS does not know";
        free(call);
        call = NULL;
    }
    if (call == NULL) {
        TF_Status *status = tf.TF_NewStatus();

        tf.TF_SetStatus(status, TF_INTERNAL, problem);
        tf.TF_OpKernelContext_Failure(context, status);
        tf.TF_DeleteStatus(status);
        tf.TF_RunAsyncOpKernelDoneCallback(done);
        return;
    }
    call->context = context;
    callback_move(&call->done, done);
    start(kernel, call);
}

/* ---- questions about the job --------------------------------------------------------------------------- */

static void answer(TF_OpKernelContext *context, int value)
{
    TF_Status *status = tf.TF_NewStatus();
    int32_t number = (int32_t)value;
    TF_Tensor *out = NULL;

    if (value < 0)
        set_status(status, value, "BytePS has not been initialized; use bps.init().");
    else
        out = tf.TF_AllocateOutput(context, 0, TF_INT32, NULL, 0, sizeof(number), status);
    if (tf.TF_GetCode(status) != TF_OK)
        tf.TF_OpKernelContext_Failure(context, status);
    else
        memcpy(tf.TF_TensorData(out), &number, sizeof(number));
    if (out != NULL)
        tf.TF_DeleteTensor(out);
    tf.TF_DeleteStatus(status);
}

#define QUESTION(name)                                                                                                 \
    static void compute_##name(void *kernel, TF_OpKernelContext *context)                                              \
    {                                                                                                                  \
        (void)kernel;                                                                                                  \
        answer(context, bps_##name());                                                                                 \
    }
QUESTION(rank)
QUESTION(size)
QUESTION(local_rank)
QUESTION(local_size)

static const struct {
    const char *op;
    TF_Compute compute;
} questions[] = {
    {"BytepsRank", compute_rank},
    {"BytepsSize", compute_size},
    {"BytepsLocalRank", compute_local_rank},
    {"BytepsLocalSize", compute_local_size},
};
#define QUESTIONS (sizeof(questions) / sizeof(questions[0]))

/* ---- registration -------------------------------------------------------------------------------------- */

static void shape_of_input(TF_ShapeInferenceContext *context, TF_Status *status)
{
    TF_ShapeHandle *shape = tf.TF_NewShapeHandle();

    tf.TF_ShapeInferenceContextGetInput(context, 0, shape, status);
    if (tf.TF_GetCode(status) == TF_OK)
        tf.TF_ShapeInferenceContextSetOutput(context, 0, shape, status);
    tf.TF_DeleteShapeHandle(shape);
}

static void shape_of_rows(TF_ShapeInferenceContext *context, TF_Status *status)
{
    tf.TF_ShapeInferenceContextSetUnknownShape(context, status);
}

static void shape_of_number(TF_ShapeInferenceContext *context, TF_Status *status)
{
    TF_ShapeHandle *shape = tf.TF_ShapeInferenceContextScalar(context);

    tf.TF_ShapeInferenceContextSetOutput(context, 0, shape, status);
    tf.TF_DeleteShapeHandle(shape);
}

/* Stateful: neither merged with an equal one, nor left out, nor computed once for all steps. */
static TF_OpDefinitionBuilder *new_op(const char *name, TF_InferShape infer)
{
    TF_OpDefinitionBuilder *builder = tf.TF_NewOpDefinitionBuilder(name);

    tf.TF_OpDefinitionBuilderSetIsStateful(builder, true);
    tf.TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, infer);
    return builder;
}

/* It takes all types, and the kernel refuses some: a list of them could not name those with an underscore. */
static void add_tensor_attributes(TF_OpDefinitionBuilder *builder)
{
    tf.TF_OpDefinitionBuilderAddAttr(builder, "T: type");
    tf.TF_OpDefinitionBuilderAddAttr(builder, "tensor_name: string = ''");
    tf.TF_OpDefinitionBuilderAddAttr(builder, "priority: int = 0");
}

/* An operation on a dense tensor. */
static TF_OpDefinitionBuilder *new_tensor_op(const char *name)
{
    TF_OpDefinitionBuilder *builder = new_op(name, shape_of_input);

    add_tensor_attributes(builder);
    tf.TF_OpDefinitionBuilderAddInput(builder, "tensor: T");
    tf.TF_OpDefinitionBuilderAddOutput(builder, "result: T");
    return builder;
}

static void add_push_pull_attributes(TF_OpDefinitionBuilder *builder)
{
    tf.TF_OpDefinitionBuilderAddAttr(builder, "op: int");
    tf.TF_OpDefinitionBuilderAddAttr(builder, "waits: int = 0");
    tf.TF_OpDefinitionBuilderAddAttr(builder, "prescale_bits: int");
    tf.TF_OpDefinitionBuilderAddAttr(builder, "postscale_bits: int");
}

/* push_pull of rows of a table, of which `rows` says how many the whole one has. */
static TF_OpDefinitionBuilder *new_rows_op(void)
{
    TF_OpDefinitionBuilder *builder = new_op("BytepsPushPullRows", shape_of_rows);

    add_tensor_attributes(builder);
    add_push_pull_attributes(builder);
    tf.TF_OpDefinitionBuilderAddInput(builder, "indices: int64");
    tf.TF_OpDefinitionBuilderAddInput(builder, "values: T");
    tf.TF_OpDefinitionBuilderAddInput(builder, "rows: int64");
    tf.TF_OpDefinitionBuilderAddOutput(builder, "result_indices: int64");
    tf.TF_OpDefinitionBuilderAddOutput(builder, "result_values: T");
    return builder;
}

static void define_ops(TF_Status *status)
{
    TF_OpDefinitionBuilder *builder = new_tensor_op("BytepsPushPull");

    add_push_pull_attributes(builder);
    tf.TF_OpDefinitionBuilderAddAttr(builder, "rates: int >= 0");
    tf.TF_OpDefinitionBuilderAddInput(builder, "learning_rate: rates * double"); /* one or none */
    tf.TF_OpDefinitionBuilderAddAttr(builder, "declares: int = 0");
    tf.TF_OpDefinitionBuilderAddAttr(builder, "coding: string = ''");
    tf.TF_RegisterOpDefinition(builder, status);
    if (tf.TF_GetCode(status) != TF_OK)
        return;
    tf.TF_RegisterOpDefinition(new_rows_op(), status);
    if (tf.TF_GetCode(status) != TF_OK)
        return;
    builder = new_tensor_op("BytepsBroadcast");
    tf.TF_OpDefinitionBuilderAddAttr(builder, "root_rank: int");
    tf.TF_RegisterOpDefinition(builder, status);
    for (size_t i = 0; i < QUESTIONS && tf.TF_GetCode(status) == TF_OK; i++) {
        builder = new_op(questions[i].op, shape_of_number);
        tf.TF_OpDefinitionBuilderAddOutput(builder, "result: int32");
        tf.TF_RegisterOpDefinition(builder, status);
    }
}

static void define_kernels(const char *device, TF_Status *status)
{
    static const struct {
        const char *op;
        TF_CreateKernel create;
        const char *arguments[6]; /* inputs and outputs */
    } ops[] = {
        {"BytepsPushPull", push_pull_create, {"tensor", "learning_rate", "result"}},
        {"BytepsPushPullRows", rows_create, {"indices", "values", "rows", "result_indices", "result_values"}},
        {"BytepsBroadcast", broadcast_create, {"tensor", "result"}},
    };
    TF_KernelBuilder *builder;

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]) && tf.TF_GetCode(status) == TF_OK; i++) {
        builder = tf.TF_NewAsyncKernelBuilder(ops[i].op, device, ops[i].create, compute, kernel_delete);
        for (const char *const *argument = ops[i].arguments; *argument != NULL; argument++)
            tf.TF_KernelBuilder_HostMemory(builder, *argument);
        tf.TF_RegisterKernelBuilder(ops[i].op, builder, status);
    }
    for (size_t i = 0; i < QUESTIONS && tf.TF_GetCode(status) == TF_OK; i++) {
        builder = tf.TF_NewKernelBuilder(questions[i].op, device, NULL, questions[i].compute, NULL);
        tf.TF_KernelBuilder_HostMemory(builder, "result");
        tf.TF_RegisterKernelBuilder(questions[i].op, builder, status);
    }
}

static void define(void)
{
    TF_Status *status = tf.TF_NewStatus();

    define_ops(status);
    define_kernels("CPU", status);
    define_kernels("GPU", status);
    if (tf.TF_GetCode(status) != TF_OK)
        snprintf(refusal, sizeof(refusal), "TensorFlow refuses the operations of BytePS: %s", tf.TF_Message(status));
    tf.TF_DeleteStatus(status);
}

/* ---- TensorFlow in this process ------------------------------------------------------------------------ */

/* Whether a library is linked to libstdc++, whose std::function callback_move() knows. */
static bool needs_libstdcxx(const struct dl_phdr_info *info)
{
    const ElfW(Dyn) *dynamic = NULL;
    const char *strings = NULL;

    for (ElfW(Half) i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr); /* NOLINT */
    }
    for (const ElfW(Dyn) *entry = dynamic; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB)
            strings = (const void *)entry->d_un.d_ptr; /* NOLINT: the loader has made it an address */
    }
    for (const ElfW(Dyn) *entry = dynamic; strings != NULL && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_NEEDED && strcmp(strings + entry->d_un.d_val, "libstdc++.so.6") == 0)
            return true;
    }
    return false;
}

struct search {
    char path[4096];
    bool libstdcxx;
};

static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct search *found = arg;

    (void)size;
    if (strstr(info->dlpi_name, "/" LIBRARY) == NULL)
        return 0;
    snprintf(found->path, sizeof(found->path), "%s", info->dlpi_name);
    found->libstdcxx = needs_libstdcxx(info);
    return 1;
}

/* The library is there, but not in the global scope: all symbols come from its own handle. */
static bool find_symbols(const char *path)
{
    static const struct {
        const char *name;
        size_t offset;
    } symbols[] = {
#define ROW(result, name, parameters) {#name, offsetof(__typeof__(tf), name)},
        TENSORFLOW_SYMBOLS(ROW)
#undef ROW
    };
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);

    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *address = library == NULL ? NULL : dlsym(library, symbols[i].name);

        if (address == NULL) {
            snprintf(refusal, sizeof(refusal), "its library %.300s has no function %s", path, symbols[i].name);
            return false;
        }
        memcpy((char *)&tf + symbols[i].offset, &address, sizeof(address));
    }
    return true;
}

__attribute__((constructor)) static void attach(void)
{
    struct search found = {.path = ""};

    if (dl_iterate_phdr(look_at, &found) == 0)
        snprintf(refusal, sizeof(refusal), "it was loaded without TensorFlow; tf.load_op_library() loads it");
    else if (!found.libstdcxx)
        snprintf(refusal, sizeof(refusal), "its library %.300s is not linked to libstdc++.so.6", found.path);
    else if (find_symbols(found.path))
        define();
}

/*
 * Tells the core which TensorFlow this is ("2.21.0"), and returns "" or why the operations cannot be used. The
 * package byteps.tensorflow calls it when it has loaded the library.
 */
BPS_API const char *byteps_tensorflow_attach(const char *version);

const char *byteps_tensorflow_attach(const char *version)
{
    static char framework[64];
    static const struct bps_binding binding = {
        .size = sizeof(binding),
        .abi = BPS_BINDING_ABI,
        .name = "tensorflow",
        .version = PLUGIN_VERSION,
        .framework = framework,
    };
    struct bps_report report = {.text = ""};

    if (refusal[0] != '\0')
        return refusal;
    snprintf(framework, sizeof(framework), "TensorFlow %s", version);
    if (bps_binding_register(&binding, &report) < 0)
        snprintf(refusal, sizeof(refusal), "%s", report.text);
    return refusal;
}
