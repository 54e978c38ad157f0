/* SPDX-License-Identifier: Apache-2.0 */
/* group.c - makes and frees process groups. */
#include "python.h"

#include <byteps/groups.h>

static int read_ranks(PyObject *ranks, uint32_t *out, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        unsigned long rank = PyLong_AsUnsignedLong(PyTuple_GetItem(ranks, i));

        if (PyErr_Occurred() != NULL)
            return -1;
        out[i] = rank < UINT32_MAX ? (uint32_t)rank : UINT32_MAX;
    }
    return 0;
}

/* Makes a group; or opens that of a number, which is not negative. */
static PyObject *make(PyObject *ranks, long long number)
{
    struct bps_report report = {.text = ""};
    Py_ssize_t n = PyTuple_Check(ranks) ? PyTuple_Size(ranks) : -1;
    uint32_t *list = n >= 0 ? PyMem_Malloc((size_t)n * sizeof(*list) + 1) : NULL;
    PyObject *result = NULL;
    bps_status status;
    uint32_t id;

    if (list == NULL)
        return n < 0 ? PyErr_Format(PyExc_TypeError, "the ranks must be a tuple") : PyErr_NoMemory();
    if (read_ranks(ranks, list, n) == 0) {
        Py_BEGIN_ALLOW_THREADS status = number < 0 ? bps_group_new(list, (uint32_t)n, &id, &report)
                                                   : bps_group_open((uint32_t)number, list, (uint32_t)n, &id, &report);
        Py_END_ALLOW_THREADS result = status < 0 ? python_raise(status, report.text) : PyLong_FromUnsignedLong(id);
    }
    PyMem_Free(list);
    return result;
}

PyObject *python_group_new(PyObject *module, PyObject *ranks)
{
    (void)module;
    return make(ranks, -1);
}

PyObject *python_group_open(PyObject *module, PyObject *args)
{
    PyObject *ranks;
    unsigned int number;

    (void)module;
    return PyArg_ParseTuple(args, "IO", &number, &ranks) ? make(ranks, number) : NULL;
}

PyObject *python_group_free(PyObject *module, PyObject *group)
{
    struct bps_report report = {.text = ""};
    unsigned long id = PyLong_AsUnsignedLong(group);
    bps_status status;

    (void)module;
    if (PyErr_Occurred() != NULL)
        return NULL;
    status = bps_group_free((uint32_t)id, &report);
    if (status < 0)
        return python_raise(status, report.text);
    Py_RETURN_NONE;
}
