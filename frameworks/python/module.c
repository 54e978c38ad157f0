/* SPDX-License-Identifier: Apache-2.0 */
/* module.c - the functions of the extension module _bps. The package byteps is made of them. */
#include "python.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <byteps/elastic.h>
#include <byteps/framework.h>

BPS_PLUGIN_NOTE(BPS_KIND_FRAMEWORK, "python", PLUGIN_VERSION);
BPS_FRAMEWORK_NOTE("numpy", "0");
BPS_FRAMEWORK_NOTE("torch", "2.1");
BPS_FRAMEWORK_NOTE("keras", "3.0");

/* ---- life of a job ------------------------------------------------------------------------------------- */

static bps_status run_init(void *arg, struct bps_report *report)
{
    struct bps_init_options options = python_texts_options(arg);

    return bps_init(&options, report);
}

static PyObject *call_init(PyObject *module, PyObject *args)
{
    const char *conf;
    PyObject *set;
    struct python_texts *texts;

    (void)module;
    if (!PyArg_ParseTuple(args, "zO", &conf, &set))
        return NULL;
    texts = python_texts_new(conf, set);
    return texts == NULL ? NULL : python_blocking_call(run_init, texts, python_texts_free);
}

static bps_status run_shutdown(void *arg, struct bps_report *report)
{
    (void)arg;
    return bps_shutdown(report);
}

static bps_status run_suspend(void *arg, struct bps_report *report)
{
    (void)arg;
    return bps_suspend(report);
}

static bps_status run_reform(void *arg, struct bps_report *report)
{
    (void)arg;
    return bps_reform(report);
}

static PyObject *leave(python_blocking_fn fn)
{
    PyObject *result = python_blocking_call(fn, NULL, NULL);
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    python_orphans_reap();
    PyErr_Restore(type, value, traceback);
    return result;
}

static PyObject *call_shutdown(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    return leave(run_shutdown);
}

static PyObject *call_suspend(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    return leave(run_suspend);
}

static PyObject *call_reform(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    return leave(run_reform);
}

/* ---- questions ----------------------------------------------------------------------------------------- */

static PyObject *number(int value)
{
    if (value >= 0)
        return PyLong_FromLong(value);
    return python_raise(value, bps_is_forked()
                                   ? "this is a forked child of a byteps process; only its parent is in the job"
                                   : "BytePS has not been initialized; use bps.init().");
}

#define QUESTION(name)                                                                                                 \
    static PyObject *call_##name(PyObject *module, PyObject *none)                                                     \
    {                                                                                                                  \
        (void)module;                                                                                                  \
        (void)none;                                                                                                    \
        return number(bps_##name());                                                                                   \
    }
QUESTION(rank)
QUESTION(size)
QUESTION(local_rank)
QUESTION(local_size)
QUESTION(cross_rank)
QUESTION(cross_size)
QUESTION(is_homogeneous)
QUESTION(group_size)
QUESTION(members_wait)

static PyObject *call_step(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    bps_step();
    Py_RETURN_NONE;
}

static PyObject *call_is_initialized(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    return PyBool_FromLong(bps_rank() >= 0);
}

static PyObject *call_pushed_bytes(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    return PyLong_FromUnsignedLongLong(bps_pushed_bytes());
}

static PyObject *call_coded_bytes(PyObject *module, PyObject *none)
{
    uint64_t plain, coded = bps_coded_bytes(&plain);

    (void)module;
    (void)none;
    return Py_BuildValue("KK", (unsigned long long)plain, (unsigned long long)coded);
}

static PyObject *call_lateness(PyObject *module, PyObject *arg)
{
    struct bps_worker_lateness late = {.size = sizeof late};
    struct bps_report why = {""};
    unsigned long rank = PyLong_AsUnsignedLong(arg);
    bps_status status;

    (void)module;
    if (rank == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    status = bps_lateness(rank < UINT32_MAX ? (uint32_t)rank : UINT32_MAX, &late, &why);
    if (status != BPS_OK)
        return python_raise(status, why.text);
    return Py_BuildValue("{sksssKsKsKsdsdsd}", "rank", rank, "host", late.host, "rounds",
                         (unsigned long long)late.rounds, "last", (unsigned long long)late.last, "host_last",
                         (unsigned long long)late.host_last, "median_seconds", late.median_seconds,
                         "host_median_seconds", late.host_median_seconds, "waited", late.waited);
}

static PyObject *call_version(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    return PyUnicode_FromString(bps_version());
}

static PyObject *call_conf(PyObject *module, PyObject *args)
{
    char text[4096];
    const char *key;
    bps_status status;

    (void)module;
    if (!PyArg_ParseTuple(args, "s", &key))
        return NULL;
    status = bps_conf(key, text, sizeof(text));
    if (status == BPS_ERR_INVALID) {
        snprintf(text, sizeof(text), "there is no configuration value %s", key);
        return python_raise(status, text);
    }
    return status < 0 ? python_raise(status, "") : python_text(text);
}

/* Of the Python thread and of the one that asks, which may be forsaken. */
struct saving {
    atomic_int owners;
    void *state;
    size_t bytes;
    char name[];
};

static void leave_saving(void *arg)
{
    struct saving *saving = arg;

    if (atomic_fetch_sub(&saving->owners, 1) == 1) {
        free(saving->state);
        free(saving);
    }
}

static bps_status run_save_feedback(void *arg, struct bps_report *report)
{
    struct saving *saving = arg;

    return bps_save_feedback(saving->name, &saving->state, &saving->bytes, report);
}

static PyObject *call_save_feedback(PyObject *module, PyObject *args)
{
    struct saving *saving;
    const char *name;
    PyObject *result;

    (void)module;
    if (!PyArg_ParseTuple(args, "s", &name))
        return NULL;
    saving = calloc(1, sizeof(*saving) + strlen(name) + 1);
    if (saving == NULL)
        return PyErr_NoMemory();
    strcpy(saving->name, name);
    atomic_store(&saving->owners, 2);
    result = python_blocking_call(run_save_feedback, saving, leave_saving);
    if (result != NULL) {
        Py_DECREF(result);
        result = PyBytes_FromStringAndSize(saving->state, (Py_ssize_t)saving->bytes);
    }
    leave_saving(saving);
    return result;
}

static PyObject *call_load_feedback(PyObject *module, PyObject *args)
{
    struct bps_report report = {.text = ""};
    const char *name, *state;
    Py_ssize_t bytes;
    bps_status status;

    (void)module;
    if (!PyArg_ParseTuple(args, "sy#", &name, &state, &bytes))
        return NULL;
    status = bps_load_feedback(name, state, (size_t)bytes, &report);
    if (status < 0)
        return python_raise(status, report.text);
    Py_RETURN_NONE;
}

static bps_status run_declare(void *arg, struct bps_report *report)
{
    const struct python_texts *texts = arg;
    struct bps_declaration *declarations = calloc(texts->count + 1, sizeof(*declarations));
    bps_status status;

    if (declarations == NULL)
        return BPS_ERR_NOMEM;
    for (size_t i = 0; i < texts->count; i++) {
        declarations[i].size = sizeof(*declarations);
        declarations[i].name = texts->items[i];
        declarations[i].dtype = BPS_DTYPES;
        declarations[i].coding = texts->text;
        declarations[i].mode = texts->number;
    }
    status = bps_declare(declarations, texts->count, NULL, report);
    free(declarations);
    return status;
}

static PyObject *call_declare(PyObject *module, PyObject *args)
{
    const char *coding = NULL;
    struct python_texts *texts;
    unsigned mode = BPS_MODE_CONFIGURED;
    PyObject *names;

    (void)module;
    if (!PyArg_ParseTuple(args, "O|zI", &names, &coding, &mode))
        return NULL;
    texts = python_texts_new(coding, names);
    if (texts != NULL)
        texts->number = mode;
    return texts == NULL ? NULL : python_blocking_call(run_declare, texts, python_texts_free);
}

/* By a finalizer, too: it never blocks. */
static PyObject *call_forget(PyObject *module, PyObject *names)
{
    struct python_texts *texts = python_texts_new(NULL, names);
    struct bps_report report = {.text = ""};
    bps_status status;

    (void)module;
    if (texts == NULL)
        return NULL;
    status = bps_forget((const char *const *)texts->items, texts->count, &report);
    python_texts_free(texts);
    if (status < 0)
        return python_raise(status, report.text);
    Py_RETURN_NONE;
}

/* ---- the module ---------------------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"init", call_init, METH_VARARGS, "init(conf, settings)\n\nJoins the job; settings are \"key=value\"."},
    {"host_scheduler", python_host_scheduler, METH_VARARGS,
     "host_scheduler(conf, settings) -> (address, hosted)\n\nRuns a scheduler until stop_scheduler(hosted)."},
    {"stop_scheduler", python_stop_scheduler, METH_O, "stop_scheduler(hosted)\n\nOnce for each."},
    {"serve", python_serve, METH_VARARGS, "serve(conf, settings)\n\nIs a server until the job is over."},
    {"shutdown", call_shutdown, METH_NOARGS, "shutdown()\n\nLeaves the job."},
    {"suspend", call_suspend, METH_NOARGS, "suspend()\n\nLeaves the job and remembers the tensors."},
    {"reform", call_reform, METH_NOARGS, "reform()\n\nGoes on with the workers that are there."},
    {"members_wait", call_members_wait, METH_NOARGS,
     "members_wait() -> int\n\nHow many processes wait for this worker's reform()."},
    {"leave_at_exit", python_leave_at_exit, METH_NOARGS,
     "leave_at_exit()\n\nHas the process leave the job if it ends with status 0."},
    {"rank", call_rank, METH_NOARGS, "rank() -> int"},
    {"size", call_size, METH_NOARGS, "size() -> int"},
    {"local_rank", call_local_rank, METH_NOARGS, "local_rank() -> int"},
    {"local_size", call_local_size, METH_NOARGS, "local_size() -> int"},
    {"cross_rank", call_cross_rank, METH_NOARGS, "cross_rank() -> int"},
    {"cross_size", call_cross_size, METH_NOARGS, "cross_size() -> int"},
    {"is_homogeneous", call_is_homogeneous, METH_NOARGS, "is_homogeneous() -> int"},
    {"group_size", call_group_size, METH_NOARGS,
     "group_size() -> int\n\nHow many workers of this host sum among themselves."},
    {"step", call_step, METH_NOARGS, "step()\n\nA step of the training has ended."},
    {"is_initialized", call_is_initialized, METH_NOARGS, "is_initialized() -> bool"},
    {"pushed_bytes", call_pushed_bytes, METH_NOARGS,
     "pushed_bytes() -> int\n\nOf all push_pulls that this process has started."},
    {"coded_bytes", call_coded_bytes, METH_NOARGS,
     "coded_bytes() -> (plain, coded)\n\nWhat this process has sent coded, before and after."},
    {"lateness", call_lateness, METH_O, "lateness(rank) -> dict\n\nHow late a worker is, as known here by now."},
    {"version", call_version, METH_NOARGS, "version() -> str\n\nThe version of the library."},
    {"save_feedback", call_save_feedback, METH_VARARGS,
     "save_feedback(name) -> bytes\n\nThe error feedback of a tensor."},
    {"load_feedback", call_load_feedback, METH_VARARGS, "load_feedback(name, state)\n\nRestores it."},
    {"conf", call_conf, METH_VARARGS, "conf(key) -> str\n\nA value of the configuration."},
    {"declare", call_declare, METH_VARARGS, "declare(names, coding=None)\n\nDeclares tensors, all at once."},
    {"forget", call_forget, METH_O, "forget(names)\n\nForgets tensors; those in flight when they are no longer."},
    {"alloc", python_alloc, METH_O,
     "alloc(bytes) -> (address, owner) or None\n\nZeroed memory that all workers of the host can map."},
    {"push_pull", python_push_pull, METH_VARARGS,
     "push_pull(tensor, result, name, op, priority, prescale, postscale, learning_rate=0, group=0) -> Handle\n\n"
     "result None: in place."},
    {"push_pull_wait", python_push_pull_wait, METH_VARARGS,
     "push_pull_wait(...)\n\nAs push_pull(), and waits: sooner than its handle would."},
    {"push_pull_rows", python_push_pull_rows, METH_VARARGS,
     "push_pull_rows(indices, values, rows, name, op, priority, prescale, postscale) -> (Handle, Rows)\n\n"
     "Of a table with that number of rows."},
    {"broadcast", python_broadcast, METH_VARARGS,
     "broadcast(tensor, result, name, root, priority, group=0) -> Handle\n\nresult None: in place."},
    {"collective", python_collective, METH_VARARGS,
     "collective(kind, tensor, result, in_counts, out_counts, op, root, priority, prescale, postscale, group=0, "
     "tag=0) -> Handle\n\nOf collectives.h and groups.h. Tensor or result None: this worker has none; counts None: all "
     "blocks have one size."},
    {"wait_memory", python_wait_memory, METH_O,
     "wait_memory(keep)\n\nSleeps until no operation in flight uses the memory that this object keeps."},
    {"barrier", python_barrier, METH_VARARGS, "barrier(group=0) -> Handle"},
    {"group_new", python_group_new, METH_O, "group_new(ranks) -> int\n\nA process group; all workers make it."},
    {"group_open", python_group_open, METH_VARARGS,
     "group_open(number, ranks) -> int\n\nThe same, by its members alone, who have agreed on the number."},
    {"group_free", python_group_free, METH_O, "group_free(group)\n\nIts operations in flight go on."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_bps",       .m_doc = "The C side of the package byteps.",
    .m_size = -1,          .m_methods = functions,
};

/* Tells the core who uses it. */
static int announce(void)
{
    static char framework[32];
    static const struct bps_binding binding = {
        .size = sizeof(binding),
        .abi = BPS_BINDING_ABI,
        .name = "python",
        .version = PLUGIN_VERSION,
        .framework = framework,
    };
    struct bps_report report = {.text = ""};
    const char *version = Py_GetVersion();
    bps_status status;

    snprintf(framework, sizeof(framework), "CPython %.*s", (int)strcspn(version, " "), version);
    status = bps_binding_register(&binding, &report);
    if (status >= 0)
        return 0;
    PyErr_SetString(PyExc_ImportError, report.text[0] != '\0' ? report.text : bps_strerror(status));
    return -1;
}

static int add_constants(PyObject *module)
{
    PyObject *dtypes = PyDict_New();

    for (uint32_t i = 0; dtypes != NULL && i < BPS_DTYPES; i++) {
        PyObject *code = PyLong_FromUnsignedLong(i);

        if (code == NULL || PyDict_SetItemString(dtypes, bps_dtype_name(i), code) != 0)
            Py_CLEAR(dtypes);
        Py_XDECREF(code);
    }
    if (dtypes == NULL)
        return -1;
    if (PyModule_AddObject(module, "dtypes", dtypes) != 0) {
        Py_DECREF(dtypes);
        return -1;
    }
    return PyModule_AddIntConstant(module, "SUM", BPS_SUM) != 0 ||
                   PyModule_AddIntConstant(module, "AVERAGE", BPS_AVERAGE) != 0 ||
                   PyModule_AddIntConstant(module, "MIN", BPS_MIN) != 0 ||
                   PyModule_AddIntConstant(module, "MAX", BPS_MAX) != 0 ||
                   PyModule_AddIntConstant(module, "PRODUCT", BPS_PRODUCT) != 0
               ? -1
               : 0;
}

__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__bps(void);

PyMODINIT_FUNC PyInit__bps(void)
{
    PyObject *module;

    if (announce() != 0)
        return NULL;
    module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    if (python_memory_setup() != 0 || python_handle_setup(module) != 0 || python_rows_setup(module) != 0 ||
        add_constants(module) != 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
