/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c - from a Python object to the memory of its elements.
 *
 * PyTorch's tensors give their memory through a table of C functions in their type, without any allocation.
 * All others make a capsule with __dlpack__(). The capsule is kept and never marked as used: its own
 * destructor then gives the tensor back.
 */
#include "python.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "dlpack.h"

/* ---- element types ------------------------------------------------------------------------------------- */

static const struct {
    uint8_t code, bits;
    uint32_t dtype;
} types[] = {
    {DLPACK_FLOAT, 32, BPS_FLOAT32},
    {DLPACK_FLOAT, 64, BPS_FLOAT64},
    {DLPACK_FLOAT, 16, BPS_FLOAT16},
    {DLPACK_BFLOAT, 16, BPS_BFLOAT16},
    {DLPACK_INT, 8, BPS_INT8},
    {DLPACK_INT, 16, BPS_INT16},
    {DLPACK_INT, 32, BPS_INT32},
    {DLPACK_INT, 64, BPS_INT64},
    {DLPACK_UINT, 8, BPS_UINT8},
    {DLPACK_BOOL, 8, BPS_BOOL},
    {DLPACK_E4M3FN, 8, BPS_FLOAT8_E4M3FN},
    {DLPACK_E5M2, 8, BPS_FLOAT8_E5M2},
};

/* Returns BPS_DTYPES with an exception set if the type cannot be sent. */
static uint32_t dtype_of(struct dlpack_type type, const char *role)
{
    static const char *const words[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
    const char *word = type.code < sizeof(words) / sizeof(words[0]) ? words[type.code] : "special type of ";

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (type.lanes == 1 && types[i].code == type.code && types[i].bits == type.bits)
            return types[i].dtype;
    }
    PyErr_Format(PyExc_TypeError,
                 "%s has elements of type %s%d; supported are float16, bfloat16, float32, float64, "
                 "float8_e4m3fn, float8_e5m2, int8, int16, int32, int64, uint8 and bool",
                 role, word, (int)type.bits);
    return BPS_DTYPES;
}

/* ---- a DLPack tensor ----------------------------------------------------------------------------------- */

/* What has not told its stream works on the default one, says DLPack; 1 is CUDA's name for that. */
#define CUDA_DEFAULT_STREAM ((void *)1)

static int read_device(const struct dlpack_tensor *tensor, const char *role, struct bps_device *out)
{
    static const char *const names[] = {
        [4] = "an OpenCL", [7] = "a Vulkan", [8] = "a Metal", [10] = "a ROCm", [14] = "a oneAPI"};
    int32_t type = tensor->device_type;
    const char *name = NULL;

    if (type == DLPACK_CPU || type == DLPACK_CUDA_HOST || type == DLPACK_ROCM_HOST)
        return 0;
    if (type == DLPACK_CUDA) {
        *out = (struct bps_device){BPS_DEVICE_CUDA, tensor->device_id, CUDA_DEFAULT_STREAM};
        return 0;
    }
    if (type >= 0 && (size_t)type < sizeof(names) / sizeof(names[0]))
        name = names[type];
    PyErr_Format(PyExc_ValueError,
                 "%s is on %s device (number %d); byteps takes CPU and CUDA memory: move it there first", role,
                 name != NULL ? name : "another", (int)tensor->device_id);
    return -1;
}

/* The number of elements of a row-major tensor without gaps. */
static int count_elements(const struct dlpack_tensor *tensor, const char *role, uint64_t *out)
{
    uint64_t count = 1;
    bool dense = true;

    for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
        int64_t extent = tensor->shape[i];

        if (tensor->strides != NULL && extent != 1 && tensor->strides[i] != (int64_t)count)
            dense = false;
        if (extent < 0 || __builtin_mul_overflow(count, (uint64_t)extent, &count)) {
            PyErr_Format(PyExc_ValueError, "%s has an impossible shape", role);
            return -1;
        }
        if (count == 0)
            break;
    }
    if (!dense && count != 0) {
        PyErr_Format(PyExc_ValueError, "%s is not contiguous in memory; make a contiguous copy of it first", role);
        return -1;
    }
    *out = count;
    return 0;
}

static int read_tensor(const struct dlpack_tensor *tensor, const char *role, struct python_view *out)
{
    if (read_device(tensor, role, &out->device) != 0)
        return -1;
    out->dtype = dtype_of(tensor->type, role);
    if (out->dtype == BPS_DTYPES || count_elements(tensor, role, &out->count) != 0)
        return -1;
    if (tensor->ndim > (int32_t)BPS_DIMENSIONS) {
        PyErr_Format(PyExc_ValueError, "%s has %d dimensions; at most %u are possible", role, (int)tensor->ndim,
                     BPS_DIMENSIONS);
        return -1;
    }
    out->data = (char *)tensor->data + tensor->byte_offset;
    out->ndim = (uint32_t)tensor->ndim;
    out->shape = tensor->ndim > 0 ? tensor->shape : out->extents; /* DLPack allows NULL for a scalar */
    return 0;
}

/* ---- the exchange table -------------------------------------------------------------------------------- */

/* The tables of the types seen so far (NULL: it has none). The types are kept, so that no address returns. */
static struct {
    PyTypeObject *type;
    const struct dlpack_exchange *table;
} known[16];
static size_t nknown;

static const struct dlpack_exchange *find_exchange(PyTypeObject *type)
{
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    const struct dlpack_exchange *table = NULL;

    if (capsule != NULL)
        table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    PyErr_Clear();
    Py_XDECREF(capsule); /* the framework keeps the table for the life of the process */
    while (table != NULL && table->version.major != DLPACK_MAJOR)
        table = table->previous;
    return table != NULL && table->borrow != NULL ? table : NULL;
}

static const struct dlpack_exchange *exchange_of(PyTypeObject *type)
{
    const struct dlpack_exchange *table;

    for (size_t i = 0; i < nknown; i++) {
        if (known[i].type == type)
            return known[i].table;
    }
    table = find_exchange(type);
    if (nknown < sizeof(known) / sizeof(known[0])) {
        Py_INCREF((PyObject *)type);
        known[nknown].type = type;
        known[nknown++].table = table;
    }
    return table;
}

/* ---- the capsule --------------------------------------------------------------------------------------- */

/* What every call of __dlpack__() needs, made once and kept. */
static struct {
    PyObject *name, *none, *keywords;
} call;

static int prepare_call(void)
{
    if (call.keywords != NULL)
        return 0;
    call.name = PyUnicode_InternFromString("__dlpack__");
    call.none = PyTuple_New(0);
    call.keywords = Py_BuildValue("{s:(ii)}", "max_version", 1, 1);
    return call.name == NULL || call.none == NULL || call.keywords == NULL ? -1 : 0;
}

/* tensor.__dlpack__(max_version=(1, 1)), and without the argument if it is not known. */
static PyObject *make_capsule(PyObject *tensor, const char *role)
{
    PyObject *method, *capsule;

    if (prepare_call() != 0)
        return NULL;
    method = PyObject_GetAttr(tensor, call.name);
    if (method == NULL) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError, "%s must be an array or tensor with __dlpack__, not %S", role,
                         (PyObject *)Py_TYPE(tensor));
        }
        return NULL;
    }
    capsule = PyObject_Call(method, call.none, call.keywords);
    if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        capsule = PyObject_Call(method, call.none, NULL);
    }
    Py_DECREF(method);
    return capsule;
}

static int read_capsule(PyObject *capsule, const char *role, struct python_view *out)
{
    struct dlpack_managed_versioned *versioned;
    struct dlpack_managed *plain;

    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (versioned->version.major != DLPACK_MAJOR) {
            PyErr_Format(PyExc_BufferError, "%s uses DLPack %u.%u; supported is version %u", role,
                         versioned->version.major, versioned->version.minor, DLPACK_MAJOR);
            return -1;
        }
        out->read_only = (versioned->flags & DLPACK_READ_ONLY) != 0;
        return read_tensor(&versioned->tensor, role, out);
    }
    if (!PyCapsule_IsValid(capsule, "dltensor")) {
        PyErr_Format(PyExc_TypeError, "%s: its __dlpack__() did not return a DLPack capsule", role);
        return -1;
    }
    plain = PyCapsule_GetPointer(capsule, "dltensor");
    return read_tensor(&plain->tensor, role, out);
}

/* ---- plain memory -------------------------------------------------------------------------------------- */

/* Reads a tuple of the extents, and counts the elements. */
static int read_shape(PyObject *shape, const char *role, struct python_view *out)
{
    Py_ssize_t ndim = PyTuple_Size(shape);

    if (ndim > (Py_ssize_t)BPS_DIMENSIONS) {
        PyErr_Format(PyExc_ValueError, "%s has %zd dimensions; at most %u are possible", role, ndim, BPS_DIMENSIONS);
        return -1;
    }
    out->count = 1;
    out->ndim = (uint32_t)ndim;
    out->shape = out->extents;
    for (Py_ssize_t i = 0; i < ndim; i++) {
        out->extents[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        if (PyErr_Occurred() != NULL)
            return -1;
        out->count *= (uint64_t)out->extents[i]; /* the library compares them */
    }
    return 0;
}

/* (address, shape, dtype, keep[, device, stream]): from a framework that has no C functions. */
static int read_tuple(PyObject *tuple, const char *role, struct python_view *out)
{
    unsigned long long address, stream = 0;
    PyObject *shape;
    int device = -1;

    if (!PyArg_ParseTuple(tuple, "KO!IO|iK", &address, &PyTuple_Type, &shape, &out->dtype, &out->keep, &device,
                          &stream)) {
        out->keep = NULL;
        return -1;
    }
    Py_INCREF(out->keep);
    if (read_shape(shape, role, out) != 0)
        return -1;
    if (bps_dtype_size(out->dtype) == 0) {
        PyErr_Format(PyExc_TypeError, "%s has the unknown element type number %u", role, out->dtype);
        return -1;
    }
    if (device >= 0)
        out->device = (struct bps_device){BPS_DEVICE_CUDA, device, (void *)(uintptr_t)stream};
    out->data = (void *)(uintptr_t)address;
    return 0;
}

/* ---- all of them --------------------------------------------------------------------------------------- */

static int read_borrowed(const struct dlpack_exchange *exchange, PyObject *tensor, PyObject *keep, const char *role,
                         struct python_view *out)
{
    struct dlpack_tensor borrowed;
    int result = exchange->borrow(tensor, &borrowed);

    Py_INCREF(keep);
    out->keep = keep;
    if (result == 0)
        result = read_tensor(&borrowed, role, out);
    if (result == 0 && out->device.type != BPS_DEVICE_HOST && exchange->stream != NULL)
        result = exchange->stream(borrowed.device_type, borrowed.device_id, &out->device.stream);
    return result;
}

int python_view_get(PyObject *tensor, const char *role, struct python_view *out)
{
    const struct dlpack_exchange *exchange;
    PyObject *keep = tensor;
    bool is_tuple = PyTuple_Check(tensor);
    int result;

    memset(out, 0, offsetof(struct python_view, extents));
    if (is_tuple && PyTuple_Size(tensor) == 2) {
        keep = PyTuple_GetItem(tensor, 1);
        tensor = PyTuple_GetItem(tensor, 0);
        is_tuple = false;
    }
    exchange = is_tuple ? NULL : exchange_of(Py_TYPE(tensor));
    if (exchange != NULL) {
        result = read_borrowed(exchange, tensor, keep, role, out);
    } else if (is_tuple) {
        result = read_tuple(tensor, role, out);
    } else {
        out->keep = make_capsule(tensor, role);
        result = out->keep == NULL ? -1 : read_capsule(out->keep, role, out);
    }
    if (result != 0)
        Py_CLEAR(out->keep);
    return result;
}
