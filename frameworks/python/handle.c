/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handle.c - operations in flight as Python objects.
 *
 * A handle keeps its tensors alive while the library uses their memory. A handle that is dropped too early
 * becomes an orphan: the operation goes on, its tensors stay alive, and later calls free it when it has
 * ended. So a destructor never blocks, whatever the other workers do.
 */
#include "python.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct handle {
    PyObject_HEAD struct python_kept kept;
    bool ended;
    bool waiting;      /* a thread is in bps_wait() for it */
    bps_status status; /* once ended */
    char *text;        /* of an error, or NULL */
};

struct orphan {
    struct orphan *next;
    struct python_kept kept;
};

static PyTypeObject *handle_type;
static struct orphan *orphans;

/* ---- orphans ------------------------------------------------------------------------------------------- */

/* Takes what is kept. Without memory it is never given back, which is better than memory in use. */
static void orphan_add(struct python_kept *kept)
{
    struct orphan *orphan = malloc(sizeof(*orphan));

    if (orphan == NULL) {
        memset(kept->objects, 0, sizeof(kept->objects));
        python_kept_drop(kept);
        return;
    }
    python_kept_move(&orphan->kept, kept);
    orphan->next = orphans;
    orphans = orphan;
}

void python_orphans_reap(void)
{
    struct orphan **at = &orphans;
    struct orphan *over = NULL;

    while (*at != NULL) {
        struct orphan *orphan = *at;

        if (bps_wait(orphan->kept.id, 0, NULL) == BPS_INPROGRESS) {
            at = &orphan->next;
            continue;
        }
        *at = orphan->next;
        orphan->next = over;
        over = orphan;
    }
    while (over != NULL) { /* now, as a destructor may run any code and come back here */
        struct orphan *orphan = over;

        over = orphan->next;
        python_kept_drop(&orphan->kept);
        free(orphan);
    }
}

/* The id of a dropped operation of this name, 0 for none. */
static bps_handle orphan_named(PyObject *name)
{
    for (const struct orphan *orphan = orphans; orphan != NULL; orphan = orphan->next) {
        PyObject *its = orphan->kept.objects[PYTHON_KEEP - 1];

        if (name != NULL && its != NULL && PyUnicode_Compare(its, name) == 0)
            return orphan->kept.id;
    }
    return 0;
}

bool python_orphans_have(PyObject *name)
{
    return orphan_named(name) != 0;
}

int python_orphans_wait(PyObject *name)
{
    bps_handle id;

    while ((id = orphan_named(name)) != 0) {
        struct timespec nap = {.tv_nsec = 1000000};

        if (bps_poll(id) != BPS_INPROGRESS) {
            python_orphans_reap();
            continue;
        }
        Py_BEGIN_ALLOW_THREADS nanosleep(&nap, NULL);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() != 0) return -1;
    }
    return 0;
}

/* ---- life ---------------------------------------------------------------------------------------------- */

PyObject *python_handle_new(bps_handle id, struct python_kept *kept)
{
    struct handle *self = PyObject_GC_New(struct handle, handle_type);

    kept->id = id;
    if (self == NULL) {
        orphan_add(kept);
        return NULL;
    }
    python_kept_move(&self->kept, kept);
    self->ended = false;
    self->waiting = false;
    self->status = BPS_INPROGRESS;
    self->text = NULL;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* Stores the outcome and gives the tensors back. */
static void handle_end(struct handle *self, bps_status status, const char *text)
{
    self->ended = true;
    self->status = status;
    if (status < 0)
        self->text = strdup(text);
    python_kept_drop(&self->kept);
}

/* Asks whether the operation has ended, without waiting. */
static void handle_look(struct handle *self)
{
    struct bps_report report = {.text = ""};
    bps_status status;

    if (self->ended || self->waiting || bps_poll(self->kept.id) == BPS_INPROGRESS)
        return;
    status = bps_wait(self->kept.id, 0, &report);
    if (status != BPS_INPROGRESS)
        handle_end(self, status, report.text);
}

static int handle_traverse(struct handle *self, visitproc visit, void *arg)
{
    for (int i = 0; i < PYTHON_KEEP; i++)
        Py_VISIT(self->kept.objects[i]);
    return 0;
}

/* The handle is not needed any more; its operation may still be. */
static int handle_clear(struct handle *self)
{
    handle_look(self);
    if (!self->ended) {
        orphan_add(&self->kept);
        self->ended = true;
    }
    return 0;
}

static void handle_dealloc(struct handle *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    handle_clear(self);
    free(self->text);
    PyObject_GC_Del(self);
    Py_DECREF((PyObject *)type);
}

/* ---- methods ------------------------------------------------------------------------------------------- */

static PyObject *handle_poll(struct handle *self, PyObject *none)
{
    (void)none;
    handle_look(self);
    return PyBool_FromLong(self->ended);
}

/* Sleeps without the interpreter's lock until the operation has ended, at most so long, and at most one period. */
static void handle_sleep(struct handle *self, uint64_t at_most)
{
    struct bps_report report = {.text = ""};
    struct timespec nap = {.tv_nsec = 1000000};
    uint64_t period = at_most < PYTHON_SIGNAL_PERIOD_NS ? at_most : PYTHON_SIGNAL_PERIOD_NS;
    bps_status status;

    if (self->waiting) { /* only one thread may fetch the outcome */
        Py_BEGIN_ALLOW_THREADS nanosleep(&nap, NULL);
        Py_END_ALLOW_THREADS return;
    }
    self->waiting = true;
    Py_BEGIN_ALLOW_THREADS status = bps_wait(self->kept.id, period, &report);
    Py_END_ALLOW_THREADS self->waiting = false;
    if (status != BPS_INPROGRESS)
        handle_end(self, status, report.text);
}

PyObject *python_handle_wait(PyObject *handle, PyObject *none)
{
    struct handle *self = (struct handle *)handle;

    (void)none;
    while (!self->ended) {
        handle_sleep(self, UINT64_MAX);
        if (!self->ended && PyErr_CheckSignals() != 0)
            return NULL;
    }
    if (self->status < 0)
        return python_raise(self->status, self->text != NULL ? self->text : "");
    Py_RETURN_NONE;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static PyObject *handle_wait_for(PyObject *handle, PyObject *seconds)
{
    struct handle *self = (struct handle *)handle;
    double limit = PyFloat_AsDouble(seconds);
    uint64_t now = now_ns(), end;

    if (PyErr_Occurred() != NULL)
        return NULL;
    end = now + (limit > 0 ? (uint64_t)((limit < 1e9 ? limit : 1e9) * 1e9) : 0);
    handle_look(self);
    for (; !self->ended && now < end; now = now_ns()) {
        handle_sleep(self, end - now);
        if (!self->ended && PyErr_CheckSignals() != 0)
            return NULL;
    }
    return PyBool_FromLong(self->ended);
}

static PyMethodDef methods[] = {
    {"poll", (PyCFunction)handle_poll, METH_NOARGS, "poll() -> bool\n\nWhether the operation has ended."},
    {"wait", python_handle_wait, METH_NOARGS,
     "wait()\n\nSleeps until the operation has ended; raises its failure, as often as it is asked."},
    {"wait_for", handle_wait_for, METH_O,
     "wait_for(seconds) -> bool\n\nSleeps until the operation has ended, at most for seconds; returns whether it has."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "An operation in flight. It keeps its tensors alive."},
    {Py_tp_dealloc, handle_dealloc},
    {Py_tp_traverse, handle_traverse},
    {Py_tp_clear, handle_clear},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "_bps.Handle",
    .basicsize = sizeof(struct handle),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};

int python_handle_setup(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);

    if (type == NULL)
        return -1;
    handle_type = (PyTypeObject *)type;
    Py_INCREF(type); /* one for the module, one for handle_type */
    if (PyModule_AddObject(module, "Handle", type) != 0) {
        Py_DECREF(type);
        return -1;
    }
    return 0;
}
