/* SPDX-License-Identifier: Apache-2.0 */
/* form.c - the form of a tensor, and how it is coded: what is possible, and what is known and may not change. */
#include <stdlib.h>
#include <string.h>

#include "base/report.h"
#include "base/tensor.h"
#include "names/names.h"

/* Whether a shape has so many elements. */
static bool has_elements(uint32_t ndim, const int64_t *shape, uint64_t count)
{
    uint64_t product = 1;
    bool empty = false, valid = true;
    for (uint32_t i = 0; i < ndim; i++) {
        empty = empty || shape[i] == 0;
        valid = valid && shape[i] >= 0;
    }
    for (uint32_t i = 0; i < ndim && valid && !empty; i++) {
        valid = !__builtin_mul_overflow(product, (uint64_t)shape[i], &product);
    }
    return valid && (empty ? count == 0 : product == count);
}

bps_status bps_names_check_form(const struct bps_names *names, uint32_t dtype, uint64_t count, uint32_t ndim,
                                const int64_t *shape, struct bps_report *report)
{
    size_t size = bps_element_size(dtype);
    if (size == 0) {
        BPS_REPORT(report, "%u is not a data type", dtype);
        return BPS_ERR_INVALID;
    }
    if (count > BPS_TENSOR_LIMIT / size || !bps_is_tensor(count * size, names->partition)) {
        BPS_REPORT(report,
                   "%lu %s are too large: a tensor has at most %u partitions, and %lu bytes; raise "
                   "worker.partition",
                   count, bps_dtype_name(dtype), BPS_PARTITIONS_LIMIT, (uint64_t)BPS_TENSOR_LIMIT);
        return BPS_ERR_INVALID;
    }
    if (shape != NULL && (ndim > BPS_DIMENSIONS || !has_elements(ndim, shape, count))) {
        BPS_REPORT(report, "the shape with %u dimensions does not have %lu elements, or has more than %u dimensions",
                   ndim, count, BPS_DIMENSIONS);
        return BPS_ERR_INVALID;
    }
    return BPS_OK;
}

static struct bps_tensor_info info_of(const struct bps_named *named, const struct bps_form *form)
{
    return (struct bps_tensor_info){
        .name = named->name,
        .dtype = form->dtype,
        .count = form->bytes / bps_element_size(form->dtype),
        .partitions = bps_partitions(form->bytes, named->names->partition),
    };
}

static bool keeps(const struct bps_named *named, const struct bps_form *form)
{
    const struct bps_tensor_info info = info_of(named, form);
    return named->mode == BPS_MODE_ASYNC ||
           (named->mode == BPS_MODE_CONFIGURED && bps_graph_keeps(named->names->graph, &info));
}

/* How a tensor of this form is coded. The lock is held. */
static struct bps_coding *named_coding_of(const struct bps_named *named, const struct bps_form *form)
{
    const struct bps_tensor_info info = info_of(named, form);
    if (form->keeps || form->row > 0) {
        return NULL;
    }
    if (named->words == NULL) {
        return bps_graph_coding(named->names->graph, &info);
    }
    return named->choice != NULL && bps_coding_takes(named->choice, form->dtype) ? named->choice : NULL;
}

static const char *named_text_of(const struct bps_coding *coding)
{
    return coding != NULL ? coding->text : NULL;
}

bps_status bps_named_choose(struct bps_named *named, const char *text, struct bps_report *report)
{
    struct bps_coding *choice = NULL;
    struct bps_report why = {""};
    if (named->words != NULL && strcmp(named->words, text) == 0) {
        return BPS_OK; /* some declare a tensor with each of its operations */
    }
    bps_status status =
        text[0] == '\0' ? BPS_OK : bps_codings_of_text(&named->names->graph->codings, text, &choice, &why);
    if (status != BPS_OK) {
        BPS_REPORT(report, "tensor '%.200s': %.800s", named->name, why.text);
        return status;
    }
    bool known = named->words != NULL || atomic_load_explicit(&named->formed, memory_order_relaxed);
    const struct bps_coding *before = named->words != NULL ? named->choice : named->coding;
    if (known && before != choice) {
        BPS_REPORT(report, "tensor '%s' was declared to be coded by %s, not by %s", named->name,
                   before != NULL ? before->text : "nothing", choice != NULL ? choice->text : "nothing");
        return BPS_ERR_MISMATCH;
    }
    char *own = strdup(text);
    if (own == NULL) {
        BPS_REPORT(report, "tensor '%.200s': out of memory", named->name);
        return BPS_ERR_NOMEM;
    }
    free(named->words);
    named->words = own;
    named->choice = choice;
    return BPS_OK;
}

bps_status bps_named_choose_mode(struct bps_named *named, uint32_t mode, struct bps_report *report)
{
    if (mode > BPS_MODE_ASYNC) {
        BPS_REPORT(report, "tensor '%.200s': %u is not a mode", named->name, mode);
        return BPS_ERR_INVALID;
    }
    bool formed = atomic_load_explicit(&named->formed, memory_order_relaxed);
    if (formed && mode != BPS_MODE_CONFIGURED && named->form.keeps != (mode == BPS_MODE_ASYNC)) {
        BPS_REPORT(report, "tensor '%s' was declared in mode %s, not %s", named->name,
                   named->form.keeps ? "async" : "sync", mode == BPS_MODE_ASYNC ? "async" : "sync");
        return BPS_ERR_MISMATCH;
    }
    named->mode = mode != BPS_MODE_CONFIGURED ? mode : named->mode;
    return BPS_OK;
}

/* The lock is held. */
static bps_status set_form(struct bps_named *named, struct bps_form *form)
{
    form->keeps = keeps(named, form);
    form->row = form->keeps ? 0 : form->row; /* what is pushed to a value may be rows, or all */
    struct bps_coding *coding = named_coding_of(named, form);
    form->coding = (char *)(uintptr_t)named_text_of(coding); /* it is only read */
    bps_status status = bps_form_set(&named->form, form);
    if (status == BPS_OK) {
        named->coding = coding;
        atomic_store_explicit(&named->formed, true, memory_order_release);
    }
    return status;
}

bps_status bps_named_fix(struct bps_named *named, struct bps_form *form, struct bps_report *report)
{
    bps_status status = BPS_OK;
    form->keeps = keeps(named, form);
    form->coding = (char *)(uintptr_t)named_text_of(named_coding_of(named, form));
    if (!atomic_load_explicit(&named->formed, memory_order_relaxed)) {
        status = set_form(named, form);
    } else if (!bps_form_agrees(&named->form, form)) {
        char known[200], given[200];
        bps_form_text(&named->form, known, sizeof known);
        bps_form_text(form, given, sizeof given);
        BPS_REPORT(report, "tensor '%s' was declared with %s, not %s", named->name, known, given);
        status = BPS_ERR_MISMATCH;
    }
    return status;
}

bps_status bps_named_reform(struct bps_named *named, const struct bps_push_pull *r)
{
    struct bps_form form = {.bytes = r->count * bps_element_size(r->dtype),
                            .dtype = r->dtype,
                            .ndim = r->shape != NULL ? r->ndim : 0,
                            .shape = (int64_t *)(uintptr_t)r->shape}; /* it is only read */
    form.row = r->rows != NULL ? (uint32_t)(form.bytes / (uint64_t)r->shape[0]) : 0;
    if (atomic_load_explicit(&named->formed, memory_order_acquire) &&
        (named->form.row == form.row || named->form.keeps) &&
        bps_form_is(&named->form, form.dtype, form.bytes, form.ndim, form.shape)) {
        return BPS_OK;
    }
    if (named->unnamed) { /* never coded, and nobody else's */
        return bps_form_set(&named->form, &form);
    }
    pthread_mutex_lock(&named->names->lock);
    bps_status status = set_form(named, &form);
    pthread_mutex_unlock(&named->names->lock);
    return status;
}
