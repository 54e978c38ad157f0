/* SPDX-License-Identifier: Apache-2.0 */
/* kept.c - what operations in flight keep alive, and who wants to know when they need it no more. */
#include "python.h"

#include <string.h>
#include <time.h>

static LIST_HEAD(, python_kept) all = LIST_HEAD_INITIALIZER(all);

void python_kept_add(struct python_kept *kept)
{
    LIST_INSERT_HEAD(&all, kept, entry);
}

void python_kept_move(struct python_kept *to, struct python_kept *from)
{
    to->id = from->id;
    memcpy(to->objects, from->objects, sizeof(to->objects));
    memset(from->objects, 0, sizeof(from->objects));
    python_kept_drop(from);
    python_kept_add(to);
}

void python_kept_drop(struct python_kept *kept)
{
    if (kept->entry.le_prev != NULL)
        LIST_REMOVE(kept, entry);
    kept->entry.le_prev = NULL;
    for (int i = 0; i < PYTHON_KEEP; i++)
        Py_CLEAR(kept->objects[i]);
}

/* Whether the library may read or write the memory that this object keeps. */
static bool in_flight(const PyObject *object)
{
    const struct python_kept *kept;

    LIST_FOREACH(kept, &all, entry) {
        bool has = kept->objects[0] == object || kept->objects[1] == object;

        if (has && (kept->id == 0 || bps_poll(kept->id) == BPS_INPROGRESS))
            return true;
    }
    return false;
}

PyObject *python_wait_memory(PyObject *module, PyObject *object)
{
    const struct timespec nap = {.tv_nsec = 1000000};

    (void)module;
    while (in_flight(object)) {
        Py_BEGIN_ALLOW_THREADS nanosleep(&nap, NULL);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() != 0) return NULL;
    }
    Py_RETURN_NONE;
}
