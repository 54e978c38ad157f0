/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - rows that a push_pull brings, and the result, as a Python object. */
#include "python.h"

struct rows {
    PyObject_HEAD struct bps_rows rows;
    PyObject *keep; /* keeps the memory of the indices; owned */
};

static PyTypeObject *rows_type;

struct bps_rows *python_rows_of(PyObject *object)
{
    return &((struct rows *)object)->rows;
}

PyObject *python_rows_new(PyObject *indices)
{
    struct python_view view = {.data = NULL};
    struct rows *self;

    if (python_view_get(indices, "the indices", &view) != 0) {
        Py_XDECREF(view.keep);
        return NULL;
    }
    if (view.dtype != BPS_INT64 || view.ndim != 1 || view.device.type != BPS_DEVICE_HOST) {
        PyErr_SetString(PyExc_TypeError, "the indices must be int64, of one dimension, in the memory of the host");
        Py_XDECREF(view.keep);
        return NULL;
    }
    self = PyObject_New(struct rows, rows_type);
    if (self == NULL) {
        Py_XDECREF(view.keep);
        return NULL;
    }
    self->rows = (struct bps_rows){.size = sizeof self->rows, .count = view.count, .index = view.data};
    self->keep = view.keep;
    return (PyObject *)self;
}

static void rows_dealloc(PyObject *object)
{
    struct rows *self = (struct rows *)object;
    PyTypeObject *type = Py_TYPE(object);

    bps_rows_free(&self->rows);
    Py_XDECREF(self->keep);
    PyObject_Free(object);
    Py_DECREF((PyObject *)type);
}

/* Where the library has put it; the memory lives as long as the object. */
static PyObject *rows_result(PyObject *object, PyObject *none)
{
    const struct bps_rows *rows = python_rows_of(object);

    (void)none;
    return Py_BuildValue("KKK", (unsigned long long)rows->out_count, (unsigned long long)(uintptr_t)rows->out_index,
                         (unsigned long long)(uintptr_t)rows->out);
}

static PyMethodDef methods[] = {
    {"result", rows_result, METH_NOARGS,
     "result() -> (count, address, address)\n\nHow many rows, and where their indices and elements are."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Rows that a push_pull brings, and then those of its result."},
    {Py_tp_dealloc, rows_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "_bps.Rows",
    .basicsize = sizeof(struct rows),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int python_rows_setup(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);

    if (type == NULL)
        return -1;
    rows_type = (PyTypeObject *)type;
    Py_INCREF(type); /* one for the module, one for rows_type */
    if (PyModule_AddObject(module, "Rows", type) != 0) {
        Py_DECREF(type);
        return -1;
    }
    return 0;
}
