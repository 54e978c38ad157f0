/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jax.c - push_pull and broadcast for JAX, as handlers of XLA's foreign function interface.
 *
 * Each operation of a compiled program is a pair of calls. byteps_start copies the operand, hands the copy to the
 * core and returns a ticket; byteps_finish takes the ticket and makes the result, at once or, if it is not there
 * yet, by a future. Between the two XLA computes. A start never fails: what goes wrong is told by its finish.
 *
 * The copy is what makes that safe. When any other call of a program fails, XLA leaves out the rest of it, our
 * finishes, too, and reuses the memory of their operands while the core still works on them. A finish that never
 * came is made up for by the next start of that name.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include <byteps/byteps.h>
#include <byteps/framework.h>

#include "arena.h"
#include "c_api.h"
#include "pool.h"

BPS_PLUGIN_NOTE(BPS_KIND_FRAMEWORK, "jax", PLUGIN_VERSION);
BPS_FRAMEWORK_NOTE("jax", "0.7"); /* older ones were seen to fail; _library.py says so, too */

/* ---- types and errors ---------------------------------------------------------------------------------- */

static const struct {
    int type;
    uint32_t dtype;
} types[] = {
    {XLA_FFI_DataType_F32, BPS_FLOAT32},
    {XLA_FFI_DataType_F64, BPS_FLOAT64},
    {XLA_FFI_DataType_F16, BPS_FLOAT16},
    {XLA_FFI_DataType_BF16, BPS_BFLOAT16},
    {XLA_FFI_DataType_S8, BPS_INT8},
    {XLA_FFI_DataType_S16, BPS_INT16},
    {XLA_FFI_DataType_S32, BPS_INT32},
    {XLA_FFI_DataType_S64, BPS_INT64},
    {XLA_FFI_DataType_U8, BPS_UINT8},
    {XLA_FFI_DataType_PRED, BPS_BOOL},
    {XLA_FFI_DataType_F8E4M3FN, BPS_FLOAT8_E4M3FN},
    {XLA_FFI_DataType_F8E5M2, BPS_FLOAT8_E5M2},
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

static int code_of(bps_status status)
{
    switch (status) {
    case BPS_ERR_INVALID:
    case BPS_ERR_BUSY:
        return XLA_FFI_Error_Code_INVALID_ARGUMENT;
    case BPS_ERR_CONF:
    case BPS_ERR_PLUGIN:
    case BPS_ERR_MISMATCH:
    case BPS_ERR_STATE:
        return XLA_FFI_Error_Code_FAILED_PRECONDITION;
    case BPS_ERR_NOMEM:
        return XLA_FFI_Error_Code_RESOURCE_EXHAUSTED;
    case BPS_ERR_TIMEOUT:
        return XLA_FFI_Error_Code_DEADLINE_EXCEEDED;
    case BPS_ERR_LOST:
        return XLA_FFI_Error_Code_UNAVAILABLE;
    case BPS_ERR_UNSUPPORTED:
        return XLA_FFI_Error_Code_UNIMPLEMENTED;
    default:
        return XLA_FFI_Error_Code_INTERNAL;
    }
}

static XLA_FFI_Error *error_new(const XLA_FFI_Api *xla, bps_status status, const char *text)
{
    XLA_FFI_Error_Create_Args args = {
        .struct_size = sizeof(args),
        .message = text != NULL && text[0] != '\0' ? text : bps_strerror(status),
        .errc = code_of(status),
    };

    return xla->Error_Create(&args);
}

#define NAME_IN_USE                                                                                                    \
    "the tensor \"%.100s\" is in flight already; give each operation of a program a name of its own: "                 \
    "push_pull(x, name=...)"
#define RESULT_LOST                                                                                                    \
    "a second operation of this name has begun before the result of the first was taken; give each "                   \
    "operation "                                                                                                       \
    "of a program a name of its own: push_pull(x, name=...)"

/* ---- operations in flight ------------------------------------------------------------------------------ */

/* From its start to its finish. */
struct call {
    uint64_t ticket;
    char *name;         /* NULL: another one had it in flight */
    struct block block; /* the operand, and in its place the result */
    size_t bytes;

    bool is_over;
    bps_status status;
    char *text; /* of a failure; NULL: that of the status */

    const XLA_FFI_Api *xla; /* not NULL: a finish waits for the end, by this future */
    XLA_FFI_Future *future;
    void *result;
    struct work work; /* for the pool */

    UT_hash_handle by_ticket, by_name;
};

static struct {
    pthread_mutex_t lock;
    uint64_t tickets; /* given */
    struct call *by_ticket, *by_name;
} calls = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void call_delete(struct call *call)
{
    if (call->block.memory != NULL)
        arena_give(call->block);
    free(call->text);
    free(call->name);
    free(call);
}

static void set_end(struct call *call, bps_status status, const char *text)
{
    call->status = status;
    if (status < 0 && text != NULL && text[0] != '\0')
        call->text = strdup(text);
    call->is_over = true;
}

/* With the lock. */
static void forget(struct call *call)
{
    HASH_DELETE(by_ticket, calls.by_ticket, call);
    if (call->name != NULL)
        HASH_DELETE(by_name, calls.by_name, call);
}

/* With the lock: of this name, what has ended, and whose finish has not come: it never will. */
static void forget_unfinished(const char *name)
{
    struct call *old;

    HASH_FIND(by_name, calls.by_name, name, strlen(name), old);
    if (old != NULL && old->is_over) {
        forget(old);
        call_delete(old);
    }
}

/* Gives the call its ticket. The name becomes the call's; if it is in flight the call ends with an error. */
static void remember(struct call *call, char *name)
{
    struct call *other;

    pthread_mutex_lock(&calls.lock);
    call->ticket = ++calls.tickets;
    HASH_ADD(by_ticket, calls.by_ticket, ticket, sizeof(call->ticket), call);
    forget_unfinished(name);
    HASH_FIND(by_name, calls.by_name, name, strlen(name), other);
    if (other == NULL) {
        call->name = name;
        HASH_ADD_KEYPTR(by_name, calls.by_name, call->name, strlen(call->name), call);
    }
    pthread_mutex_unlock(&calls.lock);
    if (other != NULL) {
        char text[256];

        snprintf(text, sizeof(text), NAME_IN_USE, name);
        set_end(call, BPS_ERR_BUSY, text);
        free(name);
    }
}

/* ---- the end of an operation --------------------------------------------------------------------------- */

/* Copies the result, or returns the error; the call is over, and nobody else's any more. */
static XLA_FFI_Error *take_result(struct call *call, const XLA_FFI_Api *xla, void *result)
{
    XLA_FFI_Error *error = NULL;

    if (call->status < 0)
        error = error_new(xla, call->status, call->text);
    else if (call->bytes > 0)
        memcpy(result, call->block.memory, call->bytes);
    call_delete(call);
    return error;
}

static void drop(const XLA_FFI_Api *xla, XLA_FFI_Error *error)
{
    XLA_FFI_Error_Destroy_Args args = {.struct_size = sizeof(args), .error = error};

    if (error != NULL)
        xla->Error_Destroy(&args);
}

/* On a thread of the pool, as XLA goes on in it. */
static void complete(struct work *work)
{
    struct call *call = (struct call *)(void *)((char *)work - offsetof(struct call, work));
    const XLA_FFI_Api *xla = call->xla;
    XLA_FFI_Future_SetError_Args failed = {.struct_size = sizeof(failed), .future = call->future};
    XLA_FFI_Future_SetAvailable_Args done = {.struct_size = sizeof(done), .future = call->future};

    failed.error = take_result(call, xla, call->result);
    drop(xla, failed.error != NULL ? xla->Future_SetError(&failed) : xla->Future_SetAvailable(&done));
}

/*
 * A thread of Python that still waits in XLA when the interpreter has ended must not wake: JAX would call into Python
 * there, which ends the thread in a way that C++ answers by aborting the process. So it sleeps until the process ends.
 */
static int (*python_is_initialized)(void);

/* The core's callback. */
static void end(void *arg, bps_status status, const char *text)
{
    struct call *call = arg;
    bool is_awaited;

    pthread_mutex_lock(&calls.lock);
    set_end(call, status, text);
    is_awaited = call->xla != NULL;
    if (is_awaited)
        forget(call);
    pthread_mutex_unlock(&calls.lock);
    if (is_awaited && python_is_initialized()) {
        call->work.run = complete;
        pool_run(&call->work);
    }
}

/* ---- attributes ---------------------------------------------------------------------------------------- */

static const void *attribute(const XLA_FFI_CallFrame *frame, const char *name, int type)
{
    const XLA_FFI_Attrs *attrs = &frame->attrs;
    size_t length = strlen(name);

    for (int64_t i = 0; i < attrs->size; i++) {
        if (attrs->types[i] == type && attrs->names[i]->len == length &&
            memcmp(attrs->names[i]->ptr, name, length) == 0)
            return attrs->attrs[i];
    }
    return NULL;
}

/* Numbers are 64 bits long: integers, or float64. */
static bool number(const XLA_FFI_CallFrame *frame, const char *name, int type, void *out)
{
    const XLA_FFI_Scalar *scalar = attribute(frame, name, XLA_FFI_AttrType_SCALAR);

    if (scalar == NULL || scalar->dtype != type)
        return false;
    memcpy(out, scalar->value, 8);
    return true;
}

static char *text_of(const XLA_FFI_ByteSpan *span, const char *suffix)
{
    char *text = malloc(span->len + strlen(suffix) + 1);

    if (text != NULL) {
        memcpy(text, span->ptr, span->len);
        strcpy(text + span->len, suffix);
    }
    return text;
}

/* The name, and for devices other than the first their number: each sends a tensor of its own. */
static char *name_of(const XLA_FFI_CallFrame *frame)
{
    const XLA_FFI_ByteSpan *span = attribute(frame, "name", XLA_FFI_AttrType_STRING);
    XLA_FFI_DeviceOrdinal_Get_Args device = {.struct_size = sizeof(device), .ctx = frame->ctx};
    char suffix[16] = "";

    drop(frame->api, frame->api->DeviceOrdinal_Get(&device));
    if (device.device_ordinal > 0)
        snprintf(suffix, sizeof(suffix), "@%d", (int)device.device_ordinal);
    return span == NULL ? NULL : text_of(span, suffix);
}

/* ---- handlers ------------------------------------------------------------------------------------------ */

/* XLA asks a handler what it is before its first call. */
static bool is_question(const XLA_FFI_CallFrame *frame)
{
    const XLA_FFI_Metadata_Extension *question = (const void *)frame->extension_start;

    if (question == NULL || question->extension_base.type != XLA_FFI_Extension_Metadata)
        return false;
    question->metadata->api_version.major_version = XLA_FFI_MAJOR;
    question->metadata->api_version.minor_version = XLA_FFI_MINOR;
    question->metadata->traits = 0;
    return true;
}

/* NULL if the call has these many operands and one result. */
static XLA_FFI_Error *check(const XLA_FFI_CallFrame *frame, int64_t operands)
{
    if (frame->stage != XLA_FFI_ExecutionStage_EXECUTE || frame->args.size != operands || frame->rets.size != 1)
        return error_new(frame->api, BPS_ERR_INVALID, "this is not a call of the package byteps.jax");
    return NULL;
}

static XLA_FFI_Error *bad_attributes(const XLA_FFI_CallFrame *frame)
{
    return error_new(frame->api, BPS_ERR_INVALID, "the attributes are not those of the package byteps.jax");
}

/*
 * Declares the tensor with the coding that the call has, if it has one: with each operation, for a compiled program
 * lives on when the job has ended, and runs in the next one.
 */
static bps_status declare(const XLA_FFI_CallFrame *frame, struct bps_push_pull *request, struct bps_report *report)
{
    const XLA_FFI_ByteSpan *coding = attribute(frame, "coding", XLA_FFI_AttrType_STRING);
    char *text = coding == NULL ? NULL : text_of(coding, "");
    struct bps_declaration declaration = {
        .size = sizeof(declaration),
        .name = request->name,
        .dtype = BPS_DTYPES,
        .coding = text,
    };
    bps_status status;

    if (coding == NULL)
        return BPS_OK;
    status = text == NULL ? BPS_ERR_NOMEM : bps_declare(&declaration, 1, &request->tensor, report);
    free(text);
    return status;
}

static void push(struct call *call, const XLA_FFI_CallFrame *frame, struct bps_push_pull *request, int64_t root)
{
    struct bps_report report = {.text = ""};
    bps_status status = declare(frame, request, &report);
    bps_handle handle;

    if (status == BPS_OK && root < 0)
        status = bps_push_pull_async(request, &handle, &report);
    else if (status == BPS_OK)
        status = bps_broadcast_async(request, (uint32_t)root, &handle, &report);
    if (status < 0)
        end(call, status, report.text);
}

/* Starts the operation, or ends it with the reason why it cannot be. */
static void begin(struct call *call, const XLA_FFI_CallFrame *frame, struct bps_push_pull *request, int64_t root)
{
    const XLA_FFI_Buffer *operand = frame->args.buffers[0];

    request->dtype = dtype_of(operand->dtype);
    request->ndim = (uint32_t)operand->rank;
    request->shape = operand->dims;
    request->count = 1;
    for (int64_t i = 0; i < operand->rank; i++)
        request->count *= (uint64_t)operand->dims[i];
    call->bytes = request->count * bps_dtype_size(request->dtype);
    if (request->dtype == BPS_DTYPES || operand->rank > BPS_DIMENSIONS) {
        end(call, BPS_ERR_UNSUPPORTED, "the tensor has a type that cannot be sent, or more than 64 dimensions");
        return;
    }
    call->block = arena_take(call->bytes);
    if (call->block.memory == NULL) {
        end(call, BPS_ERR_NOMEM, "out of memory for the tensors in flight");
        return;
    }
    if (call->bytes > 0)
        memcpy(call->block.memory, operand->data, call->bytes);
    request->in = request->out = call->block.memory;
    push(call, frame, request, root);
}

/* The ticket is two uint32, as JAX has no integers of 64 bits by default. */
BPS_API XLA_FFI_Error *byteps_start(XLA_FFI_CallFrame *frame);

XLA_FFI_Error *byteps_start(XLA_FFI_CallFrame *frame)
{
    struct bps_push_pull request = {.size = sizeof(request), .done = end};
    int64_t op, priority, root;
    XLA_FFI_Error *error;
    struct call *call;
    char *name;

    if (is_question(frame))
        return NULL;
    error = check(frame, 1);
    if (error != NULL)
        return error;
    if (!number(frame, "op", XLA_FFI_DataType_S64, &op) || !number(frame, "root", XLA_FFI_DataType_S64, &root) ||
        !number(frame, "priority", XLA_FFI_DataType_S64, &priority) ||
        !number(frame, "prescale", XLA_FFI_DataType_F64, &request.prescale) ||
        !number(frame, "postscale", XLA_FFI_DataType_F64, &request.postscale))
        return bad_attributes(frame);
    name = name_of(frame);
    call = calloc(1, sizeof(*call));
    if (name == NULL || call == NULL) {
        free(name);
        free(call);
        return error_new(frame->api, BPS_ERR_NOMEM, NULL);
    }
    request.op = (uint32_t)op;
    request.priority = (int32_t)priority;
    request.name = name;
    request.arg = call;
    remember(call, name);
    memcpy(((const XLA_FFI_Buffer *)frame->rets.buffers[0])->data, &call->ticket, sizeof(call->ticket));
    if (!call->is_over)
        begin(call, frame, &request, root);
    return NULL;
}

/*
 * Finds the call of a ticket. One that is over is the caller's from now on; one that still runs will complete the
 * future that the frame gets, and *waits is set.
 */
static XLA_FFI_Error *claim(XLA_FFI_CallFrame *frame, uint64_t ticket, struct call **out, bool *waits)
{
    XLA_FFI_Future_Create_Args future = {.struct_size = sizeof(future)};
    XLA_FFI_Error *error = NULL;
    struct call *call;

    pthread_mutex_lock(&calls.lock);
    HASH_FIND(by_ticket, calls.by_ticket, &ticket, sizeof(ticket), call);
    *waits = call != NULL && !call->is_over;
    if (*waits)
        error = frame->api->Future_Create(&future);
    else if (call != NULL)
        forget(call);
    if (*waits && error == NULL) {
        call->xla = frame->api;
        call->future = frame->future = future.future;
        call->result = ((const XLA_FFI_Buffer *)frame->rets.buffers[0])->data;
    }
    pthread_mutex_unlock(&calls.lock);
    *out = call;
    return error;
}

/* Its operands are the ticket, and one that only keeps it behind all starts. */
BPS_API XLA_FFI_Error *byteps_finish(XLA_FFI_CallFrame *frame);

XLA_FFI_Error *byteps_finish(XLA_FFI_CallFrame *frame)
{
    XLA_FFI_Error *error;
    struct call *call;
    uint64_t ticket;
    bool waits;

    if (is_question(frame))
        return NULL;
    error = check(frame, 2);
    if (error != NULL)
        return error;
    memcpy(&ticket, ((const XLA_FFI_Buffer *)frame->args.buffers[0])->data, sizeof(ticket));
    error = claim(frame, ticket, &call, &waits);
    if (error != NULL || waits)
        return error;
    if (call == NULL)
        return error_new(frame->api, BPS_ERR_BUSY, RESULT_LOST);
    return take_result(call, frame->api, ((const XLA_FFI_Buffer *)frame->rets.buffers[0])->data);
}

/*
 * Tells the core which JAX this is ("0.10.2"), and returns "" or why it was refused. The package byteps.jax calls
 * it when it has loaded the library.
 */
BPS_API const char *byteps_jax_attach(const char *version);

const char *byteps_jax_attach(const char *version)
{
    static char framework[64], refusal[sizeof(struct bps_report)];
    static const struct bps_binding binding = {
        .size = sizeof(binding),
        .abi = BPS_BINDING_ABI,
        .name = "jax",
        .version = PLUGIN_VERSION,
        .framework = framework,
    };
    struct bps_report report = {.text = ""};
    void *symbol = dlsym(RTLD_DEFAULT, "Py_IsInitialized");

    if (symbol == NULL)
        return "it was not loaded by Python";
    memcpy(&python_is_initialized, &symbol, sizeof(symbol));
    snprintf(framework, sizeof(framework), "JAX %s", version);
    if (bps_binding_register(&binding, &report) < 0)
        snprintf(refusal, sizeof(refusal), "%s", report.text);
    return refusal;
}
