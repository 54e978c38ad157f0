/* SPDX-License-Identifier: Apache-2.0 */
/* collective.c - starts the operations of collectives.h on Python's tensors. */
#include "python.h"

#include <string.h>

#include <byteps/groups.h>

static const struct kind {
    const char *name;
    bps_status (*start)(const struct bps_collective *request, bps_handle *out, struct bps_report *report);
    bool all_in, all_out; /* that side has a block for each worker */
} kinds[] = {
    {"reduce", bps_reduce_async, false, false},
    {"reduce_scatter", bps_reduce_scatter_async, true, false},
    {"all_gather", bps_all_gather_async, false, true},
    {"gather", bps_gather_async, false, true},
    {"scatter", bps_scatter_async, true, false},
    {"all_to_all", bps_all_to_all_async, true, true},
    {"send", bps_send_async, false, false},
    {"recv", bps_recv_async, false, false},
};

/* Who takes part: all workers, or those of a process group. */
struct party {
    uint32_t rank, size; /* of this worker, if it does */
};

/* One side of an operation on this worker. */
struct side {
    struct python_view view; /* all 0: this worker has none */
    bool there;
    uint64_t *counts; /* NULL: all blocks have the same number of elements */
};

static const struct kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    }
    PyErr_Format(PyExc_ValueError, "unknown operation %s", name);
    return NULL;
}

/* The elements of each block, from a tuple with one number for each worker; None: nothing. */
static int read_counts(PyObject *counts, Py_ssize_t workers, uint64_t **out)
{
    if (counts == Py_None)
        return 0;
    if (!PyTuple_Check(counts) || PyTuple_Size(counts) != workers) {
        PyErr_Format(PyExc_ValueError, "the counts must be a tuple of %zd", workers);
        return -1;
    }
    *out = PyMem_Malloc((size_t)workers * sizeof(**out));
    if (*out == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < workers; i++) {
        (*out)[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(counts, i));
        if (PyErr_Occurred() != NULL)
            return -1;
    }
    return 0;
}

static int read_side(struct side *side, PyObject *tensor, const char *role, PyObject *counts, const struct party *party)
{
    side->there = tensor != Py_None;
    if (side->there && python_view_get(tensor, role, &side->view) != 0)
        return -1;
    return read_counts(counts, (Py_ssize_t)party->size, &side->counts);
}

/* Whether the elements of a side that has all blocks are those of its blocks. */
static bool has_blocks(const struct side *side, uint64_t count, uint32_t workers)
{
    uint64_t left = side->view.count;

    for (uint32_t i = 0; i < workers; i++) {
        uint64_t block = side->counts != NULL ? side->counts[i] : count;

        if (block > left)
            return false;
        left -= block;
    }
    return left == 0;
}

/* The library must not go beyond the memory of either side. */
static int check_sides(const struct kind *kind, const struct side *in, const struct side *out, uint64_t count,
                       const struct party *party)
{
    const struct side *all = kind->all_in ? in : out;
    bool alone = kind->all_in != kind->all_out; /* the other side is one block, of which `all` has the count */
    bool fits = in->there || out->there;

    fits = fits && (!in->there || !kind->all_in || has_blocks(in, count, party->size));
    fits = fits && (!out->there || (kind->all_out ? has_blocks(out, count, party->size) : out->view.count == count));
    fits = fits && (!alone || !all->there || all->counts == NULL || party->rank >= party->size ||
                    all->counts[party->rank] == count);
    if (!fits) {
        PyErr_Format(PyExc_ValueError, "%s: the elements of tensor, result and counts do not agree", kind->name);
        return -1;
    }
    if (in->there && out->there && in->view.dtype != out->view.dtype) {
        PyErr_Format(PyExc_ValueError, "%s: the tensor has type %s, the result %s", kind->name,
                     bps_dtype_name(in->view.dtype), bps_dtype_name(out->view.dtype));
        return -1;
    }
    if (out->there && out->view.read_only) {
        PyErr_Format(PyExc_ValueError, "%s: the result is read-only", kind->name);
        return -1;
    }
    return 0;
}

static PyObject *start(const struct kind *kind, struct bps_collective *request, const struct side *in,
                       const struct side *out, const struct party *party)
{
    struct python_kept kept = {.objects = {in->view.keep, out->view.keep}};
    const struct python_view *view = in->there ? &in->view : &out->view;
    struct bps_report report = {.text = ""};
    PyObject *result = NULL;
    bps_status status;
    bps_handle id;

    request->count = kind->all_in || !in->there ? out->view.count : in->view.count;
    if (kind->all_in && kind->all_out)
        request->count = in->view.count / party->size;
    request->in = in->view.data;
    request->out = out->view.data;
    request->in_counts = in->counts;
    request->out_counts = out->counts;
    request->dtype = view->dtype;
    request->device = view->device;
    if (check_sides(kind, in, out, request->count, party) == 0) {
        python_orphans_reap();
        python_kept_add(&kept);
        status = kind->start(request, &id, &report);
        result = status < 0 ? python_raise(status, report.text) : python_handle_new(id, &kept);
    }
    python_kept_drop(&kept);
    return result;
}

PyObject *python_collective(PyObject *module, PyObject *args)
{
    struct bps_collective request = {.size = sizeof(request)};
    struct bps_report report = {.text = ""};
    struct party party;
    bps_status status;
    struct side in = {.there = false}, out = {.there = false};
    PyObject *tensor, *result, *in_counts, *out_counts, *handle = NULL;
    const struct kind *kind;
    const char *name;

    (void)module;
    if (!PyArg_ParseTuple(args, "sOOOOIIidd|II", &name, &tensor, &result, &in_counts, &out_counts, &request.op,
                          &request.root, &request.priority, &request.prescale, &request.postscale, &request.group,
                          &request.tag))
        return NULL;
    status = bps_group_place(request.group, &party.rank, &party.size, &report);
    if (status < 0)
        return python_raise(status, report.text);
    if (request.prescale == 0.0 && request.postscale == 0.0)
        request.postscale = 1.0; /* both 0 would be no scales */
    kind = find_kind(name);
    if (kind == NULL)
        return NULL;
    if (read_side(&in, tensor, "the tensor", in_counts, &party) == 0 &&
        read_side(&out, result, "the result", out_counts, &party) == 0) {
        handle = start(kind, &request, &in, &out, &party);
    } else {
        Py_XDECREF(in.view.keep);
        Py_XDECREF(out.view.keep);
    }
    PyMem_Free(in.counts);
    PyMem_Free(out.counts);
    return handle;
}
