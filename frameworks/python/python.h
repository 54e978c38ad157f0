/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python.h - what the files of the CPython extension share.
 *
 * The extension is an application of libbyteps: it turns Python objects into memory, starts operations on
 * it and lets Python threads wait for them. Nothing here ever runs on a thread of the library: completion
 * is asked for, never delivered, so that the interpreter's lock is none of the library's business.
 * All state is guarded by the interpreter's lock.
 */
#ifndef BYTEPS_PYTHON_PYTHON_H
#define BYTEPS_PYTHON_PYTHON_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03080000 /* one file serves every CPython from 3.8 on */
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <byteps/sparse.h>

/* How often a waiting thread looks whether a signal, such as Ctrl-C, has to be handled. */
#define PYTHON_SIGNAL_PERIOD_NS UINT64_C(100000000)

/* ---- error.c ------------------------------------------------------------------------------------------- */

/* A str of a text that may quote bytes of others, such as a path: those that are not UTF-8 are shown as \xNN. */
PyObject *python_text(const char *text);
/* Raises the exception of byteps._errors that belongs to a status. Returns NULL. */
PyObject *python_raise(bps_status status, const char *text);

/* ---- texts.c ------------------------------------------------------------------------------------------- */

struct python_texts {
    char *text;      /* one beside the others, or NULL */
    unsigned number; /* likewise */
    size_t count;
    char **items;
};

/* Copies of a text (NULL: none) and of a sequence of str objects; NULL with an exception. */
struct python_texts *python_texts_new(const char *text, PyObject *sequence);
void python_texts_free(void *texts);
/* The text is a configuration file, the others are settings. */
struct bps_init_options python_texts_options(const struct python_texts *texts);

/* ---- view.c -------------------------------------------------------------------------------------------- */

/* The memory of a tensor. */
struct python_view {
    void *data;
    uint64_t count;
    uint32_t dtype, ndim;
    const int64_t *shape; /* the tensor's, or `extents` */
    bool read_only;
    struct bps_device device;
    PyObject *keep; /* keeps the memory alive; owned */
    int64_t extents[BPS_DIMENSIONS];
};

/*
 * Looks into a tensor: anything with __dlpack__; a pair (tensor, keep) of one of a type with an exchange table
 * and what keeps its memory, if the tensor itself may be given another; or a tuple (address, shape, dtype, keep),
 * which goes on with (device, stream) if it lies on a CUDA device. `role` names it in messages. Returns 0, or
 * -1 with an exception: TypeError or ValueError for what cannot be sent.
 */
int python_view_get(PyObject *tensor, const char *role, struct python_view *out);

/* ---- rows.c -------------------------------------------------------------------------------------------- */

/* Makes the type Rows and adds it to the module. Returns 0, or -1 with an exception. */
int python_rows_setup(PyObject *module);
/* Keeps the indices, a tensor of int64, alive. NULL with an exception. */
PyObject *python_rows_new(PyObject *indices);
struct bps_rows *python_rows_of(PyObject *object);
PyObject *python_push_pull_rows(PyObject *module, PyObject *args);

/* ---- kept.c -------------------------------------------------------------------------------------------- */

/* What an operation needs until it ends. */
#define PYTHON_KEEP 3
struct python_kept {
    LIST_ENTRY(python_kept) entry;
    bps_handle id;                  /* 0: of a call that has not returned */
    PyObject *objects[PYTHON_KEEP]; /* what keeps the memory of two tensors, and the name; owned; NULL: nothing */
};

/* From now on python_wait_memory() sees it. */
void python_kept_add(struct python_kept *kept);
/* Moves all, into one that was not added. */
void python_kept_move(struct python_kept *to, struct python_kept *from);
/* Gives the objects back, whose destructors may run any code; one that was not added has zeros in its entry. */
void python_kept_drop(struct python_kept *kept);

/* A function of the module; module.c has its signature for Python. */
PyObject *python_wait_memory(PyObject *module, PyObject *object);

/* ---- handle.c ------------------------------------------------------------------------------------------ */

/* Makes the type Handle and adds it to the module. Returns 0, or -1 with an exception. */
int python_handle_setup(PyObject *module);

/* A handle object for an operation in flight. What this keeps moves into it. */
PyObject *python_handle_new(bps_handle id, struct python_kept *kept);

/*
 * Sleeps until the operation of a handle has ended. Returns None, or
 * NULL with its failure or that of a signal.
 */
PyObject *python_handle_wait(PyObject *handle, PyObject *none);

/* Ends the life of dropped handles whose operations are over. */
void python_orphans_reap(void);

/* Whether a dropped handle's operation of this name, which may be NULL, is still in flight. */
bool python_orphans_have(PyObject *name);

/* Waits for the dropped handles of a tensor's name. Returns 0, or -1 with an exception (a signal). */
int python_orphans_wait(PyObject *name);

/* ---- memory.c ------------------------------------------------------------------------------------------ */

/* Watches forks. Returns 0, or -1 with an exception. */
int python_memory_setup(void);

/* A function of the module. */
PyObject *python_alloc(PyObject *module, PyObject *size);

/* ---- operation.c --------------------------------------------------------------------------------------- */

/*
 * Functions of the module; module.c has their signatures for Python. All but the second return a new handle.
 */
PyObject *python_push_pull(PyObject *module, PyObject *args);
PyObject *python_push_pull_wait(PyObject *module, PyObject *args);
PyObject *python_broadcast(PyObject *module, PyObject *args);
PyObject *python_barrier(PyObject *module, PyObject *args);

/* ---- collective.c -------------------------------------------------------------------------------------- */

/* A function of the module; module.c has its signature for Python. Returns a new handle. */
PyObject *python_collective(PyObject *module, PyObject *args);
PyObject *python_group_new(PyObject *module, PyObject *ranks);
PyObject *python_group_open(PyObject *module, PyObject *args);
PyObject *python_group_free(PyObject *module, PyObject *group);

/* ---- parts.c ------------------------------------------------------------------------------------------- */

/* Functions of the module; module.c has their signatures for Python. */
PyObject *python_host_scheduler(PyObject *module, PyObject *args);
PyObject *python_stop_scheduler(PyObject *module, PyObject *hosted);
PyObject *python_serve(PyObject *module, PyObject *args);

/* ---- blocking.c ---------------------------------------------------------------------------------------- */

typedef bps_status (*python_blocking_fn)(void *arg, struct bps_report *report);

/*
 * Runs fn(arg) on a thread of its own without the interpreter's lock, so that Ctrl-C works while it blocks.
 * Then calls release(arg) (NULL: nothing). Returns None, or NULL with the exception of a failure or a
 * signal; after a signal the call goes on in the background, and `arg` is released when it ends.
 */
PyObject *python_blocking_call(python_blocking_fn fn, void *arg, void (*release)(void *arg));

/* ---- exit.c -------------------------------------------------------------------------------------------- */

/* A function of the module. */
PyObject *python_leave_at_exit(PyObject *module, PyObject *none);

#endif
