/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c - the scheduler of a job, or a server, within a Python process. */
#include "python.h"

#define NAME "byteps.scheduler"

static struct python_texts *parse(PyObject *args)
{
    const char *conf;
    PyObject *set;

    return PyArg_ParseTuple(args, "zO", &conf, &set) ? python_texts_new(conf, set) : NULL;
}

/* The caller stops it: a capsule that is collected does not, since its process may have forked. */
PyObject *python_host_scheduler(PyObject *module, PyObject *args)
{
    struct python_texts *texts = parse(args);
    struct bps_init_options options;
    struct bps_report report = {.text = ""};
    struct bps_hosted *hosted;
    char address[300];
    bps_status status;
    PyObject *capsule;

    (void)module;
    if (texts == NULL)
        return NULL;
    options = python_texts_options(texts);
    Py_BEGIN_ALLOW_THREADS status = bps_host_scheduler(&options, &hosted, address, sizeof(address), &report);
    Py_END_ALLOW_THREADS python_texts_free(texts);
    if (status < 0)
        return python_raise(status, report.text);
    capsule = PyCapsule_New(hosted, NAME, NULL);
    if (capsule == NULL) {
        bps_stop_scheduler(hosted);
        return NULL;
    }
    return Py_BuildValue("sN", address, capsule);
}

PyObject *python_stop_scheduler(PyObject *module, PyObject *capsule)
{
    struct bps_hosted *hosted = PyCapsule_GetPointer(capsule, NAME);

    (void)module;
    if (hosted == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS bps_stop_scheduler(hosted);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static bps_status run_serve(void *arg, struct bps_report *report)
{
    struct bps_init_options options = python_texts_options(arg);

    return bps_serve(&options, report);
}

PyObject *python_serve(PyObject *module, PyObject *args)
{
    struct python_texts *texts = parse(args);

    (void)module;
    return texts == NULL ? NULL : python_blocking_call(run_serve, texts, python_texts_free);
}
