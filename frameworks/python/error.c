/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - from a status and its text to a Python exception. The classes are in byteps/_errors.py. */
#include "python.h"

PyObject *python_raise(bps_status status, const char *text)
{
    PyObject *module = PyImport_ImportModule("byteps._errors");
    PyObject *error;

    if (text[0] == '\0')
        text = bps_strerror(status);
    if (module == NULL)
        return NULL;
    error = PyObject_CallMethod(module, "from_status", "is", status, text);
    Py_DECREF(module);
    if (error == NULL)
        return NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_DECREF(error);
    return NULL;
}
