/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - memory of bps_alloc() as a Python object, a capsule whose destructor frees it.
 *
 * It belongs to no job: it outlives shutdown(), and at the end of the interpreter ends with the process at
 * the latest. A forked child is to keep nothing of its parent's memory and to write nothing into it, but
 * inherits objects that point there: it finds zeroed memory of its own at the same addresses.
 */
#include "python.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/queue.h>

#define NAME "byteps memory"

struct memory {
    LIST_ENTRY(memory) entry;
    void *address;
    size_t bytes;
    bool replaced; /* in a child: not of bps_alloc() any more */
};

/*
 * Guards the list. Held across nothing that waits: other libraries hold their own locks when a fork takes it.
 */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, memory) memories = LIST_HEAD_INITIALIZER(memories);

/* ---- fork ---------------------------------------------------------------------------------------------- */

static void hold(void)
{
    pthread_mutex_lock(&mutex);
}

static void release(void)
{
    pthread_mutex_unlock(&mutex);
}

static void in_child(void)
{
    struct memory *memory;

    LIST_FOREACH(memory, &memories, entry) {
        if (memory->replaced)
            continue;
        memory->replaced = true;
        bps_free(memory->address);
        mmap(memory->address, memory->bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    release();
}

/* Later than libbyteps, which first makes its own functions usable in a child. */
int python_memory_setup(void)
{
    if (pthread_atfork(hold, release, in_child) == 0)
        return 0;
    PyErr_NoMemory();
    return -1;
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static void memory_free(struct memory *memory)
{
    hold();
    LIST_REMOVE(memory, entry);
    release();
    if (memory->replaced)
        munmap(memory->address, memory->bytes);
    else
        bps_free(memory->address);
    free(memory);
}

static void destroy(PyObject *capsule)
{
    memory_free(PyCapsule_GetPointer(capsule, NAME));
}

/* Keeps the interpreter's lock, so that no other Python thread forks while the memory is on no list. */
PyObject *python_alloc(PyObject *module, PyObject *size)
{
    size_t bytes = PyLong_AsSize_t(size);
    struct memory *memory;
    PyObject *capsule;

    (void)module;
    if (bytes == (size_t)-1 && PyErr_Occurred())
        return NULL;
    memory = calloc(1, sizeof(*memory));
    if (memory == NULL)
        return PyErr_NoMemory();
    memory->bytes = bytes;
    memory->address = bps_alloc(bytes);
    if (memory->address == NULL) {
        free(memory);
        Py_RETURN_NONE;
    }
    hold();
    LIST_INSERT_HEAD(&memories, memory, entry);
    release();
    capsule = PyCapsule_New(memory, NAME, destroy);
    if (capsule == NULL) {
        memory_free(memory);
        return NULL;
    }
    return Py_BuildValue("KN", (unsigned long long)(uintptr_t)memory->address, capsule);
}
