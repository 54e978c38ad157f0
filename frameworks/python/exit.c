/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exit.c - the job at the exit of the process.
 *
 * A process that succeeds leaves its job in order. One that fails just ends: the others hear at once that it
 * is lost, and nothing waits for operations that nobody joins. Only the exit handlers of libc know which of
 * the two it is: to those of Python sys.exit(3) looks like success. They run when the interpreter has ended;
 * what is in flight then still keeps its tensors (handle.c).
 */
#include "python.h"

#include <stdlib.h>

static void leave(int status, void *arg)
{
    (void)arg;
    if (status == 0 && bps_rank() >= 0)
        bps_shutdown(NULL); /* the cause of a failure was reported where it happened */
}

/*
 * Called by Python's exit handlers, so that leave() is the last handler to be registered and the first to
 * run: before those of libraries that the tensors' memory comes from, such as CUDA's.
 */
PyObject *python_leave_at_exit(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    if (on_exit(leave, NULL) != 0)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}
