/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - from a status and its text to a Python exception. The classes are in byteps/_errors.py. */
#include "python.h"

#include <string.h>

PyObject *python_text(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
}

PyObject *python_raise(bps_status status, const char *text)
{
    PyObject *module = PyImport_ImportModule("byteps._errors");
    PyObject *words = python_text(text[0] != '\0' ? text : bps_strerror(status));
    PyObject *error = NULL;

    if (module != NULL && words != NULL)
        error = PyObject_CallMethod(module, "from_status", "iO", status, words);
    Py_XDECREF(words);
    Py_XDECREF(module);
    if (error == NULL)
        return NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_DECREF(error);
    return NULL;
}
