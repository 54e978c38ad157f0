/* SPDX-License-Identifier: Apache-2.0 */
/* operation.c - starts push_pull, broadcast and barrier on Python's tensors; a push_pull may wait as well. */
#include "python.h"

#include <stdio.h>
#include <string.h>

#include <byteps/groups.h>

/* What an operation needs until it ends. */
struct operation {
    struct bps_push_pull request;
    bool is_broadcast;
    bool waits; /* for its end, so that the library may do its work in this thread */
    uint32_t root;
    struct python_view in; /* its shape is the request's */
    struct python_kept kept;
};

/* Whether the two share memory without being the same. */
static bool overlap(const struct python_view *a, const struct python_view *b)
{
    uint64_t bytes = a->count * bps_dtype_size(a->dtype);
    uintptr_t from = (uintptr_t)a->data, to = (uintptr_t)b->data;

    return from != to && from < to + bytes && to < from + bytes;
}

/* Both tensors must be there, of equal size and type; the result must be writable. out None: in place. */
static int operation_tensors(struct operation *operation, PyObject *in, PyObject *out)
{
    bool in_place = out == Py_None;
    const struct python_view *from = &operation->in, *to = from;
    struct python_view result;

    if (python_view_get(in, "the tensor", &operation->in) != 0)
        return -1;
    operation->kept.objects[0] = from->keep;
    if (!in_place) {
        if (python_view_get(out, "the result", &result) != 0)
            return -1;
        operation->kept.objects[1] = result.keep;
        to = &result;
    }
    if (to->read_only) {
        PyErr_Format(PyExc_ValueError, "%s is read-only", in_place ? "the tensor" : "the result");
        return -1;
    }
    if (to->dtype != from->dtype || to->count != from->count) {
        PyErr_Format(PyExc_ValueError, "the tensor has %llu elements of type %s, the result %llu of type %s",
                     (unsigned long long)from->count, bps_dtype_name(from->dtype), (unsigned long long)to->count,
                     bps_dtype_name(to->dtype));
        return -1;
    }
    if (to->device.type != from->device.type || to->device.index != from->device.index) {
        PyErr_SetString(PyExc_ValueError, "the tensor and the result are on different devices");
        return -1;
    }
    if (overlap(from, to)) {
        PyErr_SetString(PyExc_ValueError, "the tensor and the result share a part of their memory");
        return -1;
    }
    operation->request.in = from->data;
    operation->request.out = to->data;
    operation->request.count = from->count;
    operation->request.dtype = from->dtype;
    operation->request.device = from->device;
    operation->request.ndim = from->ndim;
    operation->request.shape = from->shape;
    return 0;
}

static int operation_name(struct operation *operation, PyObject *name, PyObject **bytes)
{
    char *text;

    *bytes = NULL;
    if (name == Py_None)
        return 0;
    if (!PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "the name of a tensor must be a str, not %S", (PyObject *)Py_TYPE(name));
        return -1;
    }
    *bytes = PyUnicode_AsUTF8String(name);
    if (*bytes == NULL || PyBytes_AsStringAndSize(*bytes, &text, NULL) != 0)
        return -1;
    Py_INCREF(name);
    operation->kept.objects[PYTHON_KEEP - 1] = name;
    operation->request.name = text;
    return 0;
}

static bps_status operation_begin(const struct operation *operation, bps_handle *out, struct bps_report *report)
{
    bps_status status;

    if (operation->is_broadcast)
        return bps_broadcast_async(&operation->request, operation->root, out, report);
    if (!operation->waits)
        return bps_push_pull_async(&operation->request, out, report);
    Py_BEGIN_ALLOW_THREADS status = bps_push_pull(&operation->request, PYTHON_SIGNAL_PERIOD_NS, out, report);
    Py_END_ALLOW_THREADS return status;
}

/* The rest of a wait that has taken a whole period. */
static PyObject *operation_wait(struct operation *operation, bps_handle id)
{
    PyObject *handle = python_handle_new(id, &operation->kept);
    PyObject *result;

    if (handle == NULL || PyErr_CheckSignals() != 0) {
        Py_XDECREF(handle);
        return NULL;
    }
    result = python_handle_wait(handle, NULL);
    Py_DECREF(handle);
    return result;
}

/*
 * The name is in flight. If only because its last handle was dropped, a call that waits for the other workers
 * anyway waits for that, too. Returns -1 with an exception if the name stays busy.
 */
static int operation_make_room(const struct operation *operation, const char *text)
{
    PyObject *name = operation->kept.objects[PYTHON_KEEP - 1];

    if (!python_orphans_have(name)) {
        python_raise(BPS_ERR_BUSY, text);
        return -1;
    }
    if (!operation->waits) {
        struct bps_report report;

        snprintf(report.text, sizeof(report.text),
                 "%s. Its handle was dropped; keep handles, and wait for them before a name is used again", text);
        python_raise(BPS_ERR_BUSY, report.text);
        return -1;
    }
    return python_orphans_wait(name);
}

/* Starts it. */
static PyObject *operation_start(struct operation *operation)
{
    struct bps_report report = {.text = ""};
    bps_status status;
    bps_handle id;

    python_orphans_reap();
    python_kept_add(&operation->kept);
    status = operation_begin(operation, &id, &report);
    if (status == BPS_ERR_BUSY) {
        if (operation_make_room(operation, report.text) != 0)
            return NULL;
        status = operation_begin(operation, &id, &report);
    }
    if (status < 0)
        return python_raise(status, report.text);
    if (!operation->waits)
        return python_handle_new(id, &operation->kept);
    if (status == BPS_INPROGRESS)
        return operation_wait(operation, id);
    Py_RETURN_NONE;
}

static PyObject *operation_run(struct operation *operation, PyObject *in, PyObject *out, PyObject *name)
{
    PyObject *bytes, *result = NULL;

    operation->request.size = sizeof(operation->request);
    if (operation_name(operation, name, &bytes) == 0 && operation_tensors(operation, in, out) == 0)
        result = operation_start(operation);
    Py_XDECREF(bytes);
    python_kept_drop(&operation->kept);
    return result;
}

static PyObject *push_pull(PyObject *args, bool waits)
{
    struct operation operation = {.waits = waits};
    struct bps_push_pull *request = &operation.request;
    PyObject *in, *out, *name;

    if (!PyArg_ParseTuple(args, "OOOIidd|dI", &in, &out, &name, &request->op, &request->priority, &request->prescale,
                          &request->postscale, &request->learning_rate, &request->group))
        return NULL;
    return operation_run(&operation, in, out, name);
}

PyObject *python_push_pull(PyObject *module, PyObject *args)
{
    (void)module;
    return push_pull(args, false);
}

PyObject *python_push_pull_wait(PyObject *module, PyObject *args)
{
    (void)module;
    return push_pull(args, true);
}

/* The table's shape is that of its values, but for the number of rows. */
static int operation_rows(struct operation *operation, PyObject *indices, PyObject *values, long long rows)
{
    struct bps_push_pull *request = &operation->request;
    struct python_view *view = &operation->in;
    PyObject *brought;
    uint64_t row = 1;

    if (python_view_get(values, "the values", view) != 0)
        return -1;
    operation->kept.objects[0] = view->keep;
    for (uint32_t i = 1; i < view->ndim; i++)
        row *= (uint64_t)view->shape[i];
    if (view->ndim == 0 || rows <= 0 || row == 0 || (uint64_t)rows > UINT64_MAX / row) {
        PyErr_SetString(PyExc_ValueError, "the values must have a dimension of rows, and rows be above 0");
        return -1;
    }
    brought = python_rows_new(indices);
    if (brought == NULL)
        return -1;
    operation->kept.objects[1] = brought;
    request->rows = python_rows_of(brought);
    if (request->rows->count != (uint64_t)view->shape[0]) {
        PyErr_Format(PyExc_ValueError, "there are %llu indices, and values of %lld rows",
                     (unsigned long long)request->rows->count, (long long)view->shape[0]);
        return -1;
    }
    memmove(view->extents, view->shape, view->ndim * sizeof(view->extents[0]));
    view->extents[0] = rows;
    request->in = view->data;
    request->count = (uint64_t)rows * row;
    request->dtype = view->dtype;
    request->device = view->device;
    request->ndim = view->ndim;
    request->shape = view->extents;
    return 0;
}

PyObject *python_push_pull_rows(PyObject *module, PyObject *args)
{
    struct operation operation = {.request = {.size = sizeof(operation.request)}};
    struct bps_push_pull *request = &operation.request;
    PyObject *indices, *values, *name, *bytes = NULL, *brought = NULL, *handle = NULL, *result = NULL;
    long long rows;

    (void)module;
    if (!PyArg_ParseTuple(args, "OOLOIidd", &indices, &values, &rows, &name, &request->op, &request->priority,
                          &request->prescale, &request->postscale))
        return NULL;
    if (operation_name(&operation, name, &bytes) == 0 && operation_rows(&operation, indices, values, rows) == 0) {
        brought = operation.kept.objects[1];
        Py_INCREF(brought);
        handle = operation_start(&operation);
    }
    if (handle != NULL)
        result = PyTuple_Pack(2, handle, brought);
    Py_XDECREF(handle);
    Py_XDECREF(brought);
    Py_XDECREF(bytes);
    python_kept_drop(&operation.kept);
    return result;
}

PyObject *python_broadcast(PyObject *module, PyObject *args)
{
    struct operation operation = {.is_broadcast = true, .request = {.prescale = 1, .postscale = 1}};
    PyObject *in, *out, *name;

    (void)module;
    if (!PyArg_ParseTuple(args, "OOOIi|I", &in, &out, &name, &operation.root, &operation.request.priority,
                          &operation.request.group))
        return NULL;
    return operation_run(&operation, in, out, name);
}

PyObject *python_barrier(PyObject *module, PyObject *args)
{
    struct python_kept nothing = {.id = 0};
    struct bps_report report = {.text = ""};
    uint32_t group = 0;
    bps_status status;
    bps_handle id;

    (void)module;
    if (!PyArg_ParseTuple(args, "|I", &group))
        return NULL;
    status = bps_group_barrier_async(group, NULL, NULL, &id, &report);
    return status < 0 ? python_raise(status, report.text) : python_handle_new(id, &nothing);
}
