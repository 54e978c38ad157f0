/* SPDX-License-Identifier: Apache-2.0 */
/* sparse.c - rows of a tensor: in the order in which they travel, and results in one piece. */
#include "flow/sparse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <byteps/reducer.h>

#include "base/assert.h"
#include "base/report.h"
#include "base/sized.h"

#define DIGIT    11u /* bits that rows are sorted by at once */
#define TOGETHER 64u /* rows that are summed at once */
#define HUGE     ((size_t)2 << 20)

/* A row that the caller brings: which one of the table, and where it stands among those brought. */
struct brought {
    uint64_t row, at;
};

struct sparse {
    uint32_t row; /* bytes */
    /* Ascending; NULL: the caller brings them so, and none twice. */
    struct brought *brought;
    const int64_t *ascending; /* they are */
    uint64_t count;
    struct result {
        void *data;  /* as it has come; NULL: it has not */
        size_t room; /* of its block; 0: it has none of its own */
        struct bps_row_list list;
        uint64_t first; /* row of the table */
    } *result;
    uint32_t results; /* of so many partitions */
    /* Of a value, whose answer has those brought: each once, ascending. NULL: nothing has come. */
    int64_t *index;
    char *out;
    uint64_t out_count;
};

static uint64_t rows_of(const struct bps_push_pull *r)
{
    return (uint64_t)r->shape[0];
}

bps_status bps_sparse_check(const struct bps_worker *worker, const struct bps_push_pull *r, uint32_t op,
                            struct bps_report *report)
{
    bps_status status = BPS_SIZED(bps_rows, r->rows, NULL, report);
    if (status != BPS_OK) {
        return status;
    }
    if (op != BPS_SUM && op != BPS_AVERAGE) {
        return bps_fail(report, BPS_ERR_UNSUPPORTED, "rows support sum and average only");
    }
    if (r->tensor == 0 && r->name == NULL) {
        return bps_fail(report, BPS_ERR_INVALID, "rows require the name of their tensor");
    }
    if (r->device.type != BPS_DEVICE_HOST) {
        return bps_fail(report, BPS_ERR_UNSUPPORTED, "rows must be in host memory");
    }
    if (r->shape == NULL || r->ndim == 0 || r->count == 0 || r->out != NULL) {
        return bps_fail(
            report, BPS_ERR_INVALID,
            "rows require the shape of their tensor, whose first dimension is the number of rows, and no out");
    }
    if (r->rows->count > 0 && (r->in == NULL || r->rows->index == NULL)) {
        return bps_fail(report, BPS_ERR_INVALID, "in or index is NULL");
    }
    uint64_t row = r->count / rows_of(r) * bps_dtype_size(r->dtype);
    if (row > worker->partition) {
        return bps_fail(report, BPS_ERR_UNSUPPORTED,
                        "a row of %" PRIu64 " bytes is larger than a partition; raise worker.partition", row);
    }
    for (uint64_t i = 0; i < r->rows->count; i++) {
        if (r->rows->index[i] < 0 || (uint64_t)r->rows->index[i] >= rows_of(r)) {
            return bps_fail(report, BPS_ERR_INVALID,
                            "row %" PRId64 " at position %" PRIu64 " is out of range; the tensor has rows 0..%" PRIu64,
                            r->rows->index[i], i, rows_of(r) - 1);
        }
    }
    return BPS_OK;
}

/* By one digit; those alike stay in their order. */
static void sort_digit(const struct brought *from, struct brought *to, uint64_t n, uint32_t shift)
{
    uint64_t at[1u << DIGIT] = {0}, sum = 0;
    const uint64_t mask = (1u << DIGIT) - 1;
    for (uint64_t i = 0; i < n; i++) {
        at[from[i].row >> shift & mask]++;
    }
    for (uint32_t d = 0; d <= mask; d++) {
        uint64_t here = at[d];
        at[d] = sum;
        sum += here;
    }
    for (uint64_t i = 0; i < n; i++) {
        to[at[from[i].row >> shift & mask]++] = from[i];
    }
}

/* Ascending, by the rows of a table of so many. Returns the array that has them; the other one is freed. */
static struct brought *sort(struct brought *a, struct brought *b, uint64_t n, uint64_t rows)
{
    for (uint32_t shift = 0; shift < 64 && (rows - 1) >> shift > 0; shift += DIGIT) {
        sort_digit(a, b, n, shift);
        struct brought *other = a;
        a = b;
        b = other;
    }
    free(b);
    return a;
}

/* False: no memory. */
static bool sort_brought(struct sparse *sparse, uint64_t rows)
{
    struct brought *a = malloc(sparse->count * sizeof *a + 1), *b = malloc(sparse->count * sizeof *b + 1);
    if (a == NULL || b == NULL) {
        free(a);
        free(b);
        return false;
    }
    for (uint64_t i = 0; i < sparse->count; i++) {
        a[i] = (struct brought){(uint64_t)sparse->ascending[i], i};
    }
    sparse->brought = sort(a, b, sparse->count, rows);
    return true;
}

/* Which one of the table row number i of those brought is, in their order. */
static uint64_t brought_row(const struct sparse *sparse, uint64_t i)
{
    return sparse->brought != NULL ? sparse->brought[i].row : (uint64_t)sparse->ascending[i];
}

/* Whether it is the same one as the one before it. */
static bool is_again(const struct sparse *sparse, uint64_t i)
{
    return sparse->brought != NULL && i > 0 && sparse->brought[i].row == sparse->brought[i - 1].row;
}

bps_status bps_sparse_begin(const struct bps_push_pull *r)
{
    struct bps_rows *rows = r->rows;
    if (rows == NULL) {
        return BPS_OK;
    }
    struct sparse *sparse = calloc(1, sizeof *sparse);
    if (sparse == NULL) {
        return BPS_ERR_NOMEM;
    }
    sparse->ascending = rows->index;
    sparse->count = rows->count;
    uint64_t i = 1;
    while (i < rows->count && rows->index[i - 1] < rows->index[i]) {
        i++;
    }
    if (i < rows->count && !sort_brought(sparse, rows_of(r))) {
        free(sparse);
        return BPS_ERR_NOMEM;
    }
    sparse->row = (uint32_t)(r->count / rows_of(r) * bps_dtype_size(r->dtype));
    rows->state = sparse;
    rows->out_count = 0;
    rows->out_index = NULL;
    rows->out = NULL;
    return BPS_OK;
}

uint64_t bps_sparse_bytes(const struct bps_operation *operation)
{
    const struct bps_rows *rows = operation->request.rows;
    return rows == NULL ? operation->bytes : rows->count * ((const struct sparse *)rows->state)->row;
}

uint32_t bps_sparse_row(const struct bps_operation *operation)
{
    const struct bps_rows *rows = operation->request.rows;
    return rows == NULL ? 0 : ((const struct sparse *)rows->state)->row;
}

/* ---- partitions ---- */

static const struct bps_push_pull *sparse_request(const struct bps_task *task)
{
    return &task->tensor->operation.request;
}

static uint32_t row_bytes(const struct bps_task *task)
{
    return ((const struct sparse *)sparse_request(task)->rows->state)->row;
}

/* The first row that begins at this byte or later. */
static uint64_t row_at(const struct bps_task *task, uint64_t offset)
{
    return (offset + row_bytes(task) - 1) / row_bytes(task);
}

/* How many of those brought come before this row of the table. */
static uint64_t brought_before(const struct sparse *sparse, uint64_t row)
{
    uint64_t low = 0, high = sparse->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        bool before = brought_row(sparse, middle) < row;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    return low;
}

/* Those of a task. */
static void own_part(const struct bps_task *task, uint64_t *first, uint64_t *end)
{
    const struct sparse *sparse = sparse_request(task)->rows->state;
    *first = brought_before(sparse, row_at(task, task->offset));
    *end = brought_before(sparse, row_at(task, task->offset + task->bytes));
}

size_t bps_sparse_packed(const struct bps_task *task)
{
    uint64_t first, end;
    uint32_t limit = bps_rows_limit(task->bytes, row_bytes(task));
    own_part(task, &first, &end);
    return bps_rows_room(end - first < limit ? (uint32_t)(end - first) : limit, limit, row_bytes(task));
}

/* Which of the rows brought are sent, and of what they are counted from. */
struct packed {
    uint64_t base, first, end;
    const struct bps_row_cut *cut;
};

static uint32_t packed_number(const struct packed *packed, const struct sparse *sparse, uint64_t i)
{
    return (uint32_t)(brought_row(sparse, i) - packed->base);
}

/* Where the elements of this one begin that are sent, among those that the caller brings in its order. */
static const char *brought_at(const struct bps_task *task, const struct packed *packed, uint64_t i)
{
    const struct sparse *sparse = sparse_request(task)->rows->state;
    uint64_t at = sparse->brought != NULL ? sparse->brought[i].at : i;
    uint32_t from = packed_number(packed, sparse, i) == 0 ? packed->cut->before : 0;
    return (const char *)sparse_request(task)->in + at * packed->cut->row + from;
}

/* Those that the caller brings ascending lie together. */
static char *pack_together(const struct bps_task *task, const struct packed *packed, char *to)
{
    const struct sparse *sparse = sparse_request(task)->rows->state;
    const char *from = brought_at(task, packed, packed->first), *last = brought_at(task, packed, packed->end - 1);
    size_t bytes =
        (size_t)(last - from) + bps_row_part_bytes(packed->cut, packed_number(packed, sparse, packed->end - 1));
    memcpy(to, from, bytes);
    return to + bytes;
}

/* Sums rows that are given more than once, n of them from number i on; so many bytes of each. */
static void sum_row(const struct bps_task *task, const struct packed *packed, const struct bps_kernels *kernels,
                    double scale, uint64_t i, uint64_t n, uint32_t bytes, char *to)
{
    const void *source[TOGETHER + 1];
    double weight[TOGETHER + 1];
    for (uint64_t done = 0; done < n;) {
        uint32_t sources = 0;
        if (done > 0) {
            weight[sources] = 1.0;
            source[sources++] = to;
        }
        for (uint32_t k = 0; k < TOGETHER && done < n; k++, done++) {
            weight[sources] = scale;
            source[sources++] = brought_at(task, packed, i + done);
        }
        kernels->reduce(kernels->context, to, source, scale != 1.0 ? weight : NULL, sources,
                        bytes / bps_dtype_size(sparse_request(task)->dtype), 1.0, 1);
    }
}

/* Their elements. Returns where they end. */
static char *pack_elements(const struct bps_task *task, const struct bps_kernels *kernels, double scale,
                           const struct packed *packed, char *to)
{
    const struct sparse *sparse = sparse_request(task)->rows->state;
    if (sparse->brought == NULL && scale == 1.0 && packed->end > packed->first) {
        return pack_together(task, packed, to);
    }
    for (uint64_t i = packed->first, n; i < packed->end; i += n) {
        uint32_t number = packed_number(packed, sparse, i), bytes = bps_row_part_bytes(packed->cut, number);
        for (n = 1; i + n < packed->end && is_again(sparse, i + n); n++) {
        }
        if (n == 1 && scale == 1.0) {
            memcpy(to, brought_at(task, packed, i), bytes);
        } else {
            sum_row(task, packed, kernels, scale, i, n, bytes, to);
        }
        to += bytes;
    }
    return to;
}

/* Rows that are sent, of those from `first` on: those given twice are one. */
static uint32_t count_rows(const struct sparse *sparse, uint64_t first, uint64_t end)
{
    if (sparse->brought == NULL) {
        return (uint32_t)(end - first);
    }
    uint32_t count = 0;
    for (uint64_t i = first; i < end; i++) {
        count += i == first || !is_again(sparse, i);
    }
    return count;
}

/* Says which rows are sent. Returns where their elements begin. */
static char *pack_names(const struct sparse *sparse, const struct packed *packed, uint32_t limit, char *to)
{
    uint32_t count = count_rows(sparse, packed->first, packed->end), n = 0;
    char *place = bps_rows_begin(to, count, limit);
    if (sparse->brought == NULL) {
        bps_rows_name_all(to, count, limit, sparse->ascending + packed->first, (int64_t)packed->base);
        return place;
    }
    for (uint64_t i = packed->first; i < packed->end && count < limit; i++) {
        if (i == packed->first || !is_again(sparse, i)) {
            bps_rows_name(to, count, limit, n++, packed_number(packed, sparse, i));
        }
    }
    return place;
}

size_t bps_sparse_pack(const struct bps_task *task, const struct bps_kernels *kernels, double scale, char *to)
{
    const struct sparse *sparse = sparse_request(task)->rows->state;
    uint32_t limit = bps_rows_limit(task->bytes, sparse->row);
    const struct bps_row_cut whole = {.row = sparse->row, .bytes = limit * sparse->row};
    struct packed packed = {.base = row_at(task, task->offset), .cut = &whole};
    own_part(task, &packed.first, &packed.end);
    char *place = pack_names(sparse, &packed, limit, to);
    return (size_t)(pack_elements(task, kernels, scale, &packed, place) - to);
}

static void drop_result(struct bps_worker *worker, struct result *result)
{
    if (result->room > 0) {
        bps_pool_put(&worker->blocks, result->data, result->room);
    }
    *result = (struct result){0};
}

static void free_results(struct bps_worker *worker, struct sparse *sparse)
{
    for (uint32_t i = 0; i < sparse->results; i++) {
        drop_result(worker, &sparse->result[i]);
    }
    free(sparse->result);
}

bps_status bps_sparse_result(const struct bps_task *task, void *data, size_t bytes, size_t room)
{
    struct bps_worker *worker = task->tensor->worker;
    struct sparse *sparse = sparse_request(task)->rows->state;
    struct bps_row_list list;
    if (!bps_rows_read(data, bytes, task->bytes, sparse->row, &list)) {
        return BPS_ERR_PROTOCOL;
    }
    if (sparse->results != task->tensor->tasks) { /* it is the first one, or has begun anew */
        free_results(worker, sparse);
        sparse->result = calloc(task->tensor->tasks, sizeof *sparse->result);
        sparse->results = sparse->result != NULL ? task->tensor->tasks : 0;
    }
    if (sparse->result == NULL) {
        return BPS_ERR_NOMEM;
    }
    bps_assert(task->partition < sparse->results);
    drop_result(worker, &sparse->result[task->partition]);
    sparse->result[task->partition] = (struct result){data, room, list, row_at(task, task->offset)};
    return BPS_OK;
}

/* For free(). Much of it is asked for as huge pages: small ones would take longer than what is written to them. */
static void *memory_for(size_t bytes)
{
    if (bytes < 2 * HUGE) {
        return malloc(bytes + 1);
    }
    size_t rounded = (bytes + HUGE - 1) / HUGE * HUGE;
    void *memory = aligned_alloc(HUGE, rounded);
    if (memory != NULL) {
        madvise(memory, rounded, MADV_HUGEPAGE); /* only an optimisation */
    }
    return memory;
}

/* ---- slices of a value ---- */

size_t bps_sparse_slice_bound(const struct bps_task *task, uint32_t offset, uint32_t bytes)
{
    const struct sparse *sparse = sparse_request(task)->rows->state;
    const struct bps_row_cut cut = bps_row_cut(task->offset + offset, bytes, sparse->row);
    uint64_t base = (task->offset + offset) / sparse->row;
    uint32_t limit = bps_row_cut_limit(&cut);
    uint64_t own = brought_before(sparse, base + limit) - brought_before(sparse, base);
    return bps_row_parts_bound(own < limit ? (uint32_t)own : limit, bytes, sparse->row);
}

size_t bps_sparse_slice_pack(const struct bps_task *task, uint32_t offset, uint32_t bytes,
                             const struct bps_kernels *kernels, double scale, char *to)
{
    const struct sparse *sparse = sparse_request(task)->rows->state;
    const struct bps_row_cut cut = bps_row_cut(task->offset + offset, bytes, sparse->row);
    struct packed packed = {.base = (task->offset + offset) / cut.row, .cut = &cut};
    packed.first = brought_before(sparse, packed.base);
    packed.end = brought_before(sparse, packed.base + bps_row_cut_limit(&cut));
    uint32_t *index = (uint32_t *)(void *)(to + BPS_ROWS_HEAD), count = 0;
    for (uint64_t i = packed.first; i < packed.end; i++) {
        if (i == packed.first || !is_again(sparse, i)) {
            index[count++] = packed_number(&packed, sparse, i);
        }
    }
    char *place = bps_row_parts_finish(to, count, &cut);
    return (size_t)(pack_elements(task, kernels, scale, &packed, place) - to);
}

/* Where the answer goes. False: no memory. */
static bool make_out(struct sparse *sparse)
{
    sparse->index = memory_for(sparse->count * sizeof *sparse->index);
    sparse->out = memory_for(sparse->count * sparse->row);
    if (sparse->index == NULL || sparse->out == NULL) {
        free(sparse->index);
        free(sparse->out);
        sparse->index = NULL;
        sparse->out = NULL;
        return false;
    }
    for (uint64_t i = 0; i < sparse->count; i++) {
        if (!is_again(sparse, i)) {
            sparse->index[sparse->out_count++] = (int64_t)brought_row(sparse, i);
        }
    }
    return true;
}

/* How many of those in the answer come before this row of the table. */
static uint64_t out_before(const struct sparse *sparse, uint64_t row)
{
    uint64_t low = 0, high = sparse->out_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        bool before = (uint64_t)sparse->index[middle] < row;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    return low;
}

bps_status bps_sparse_slice_result(const struct bps_task *task, uint32_t offset, uint32_t bytes, const char *data)
{
    struct sparse *sparse = sparse_request(task)->rows->state;
    const struct bps_row_cut cut = bps_row_cut(task->offset + offset, bytes, sparse->row);
    uint64_t base = (task->offset + offset) / cut.row;
    if (sparse->out == NULL && !make_out(sparse)) {
        return BPS_ERR_NOMEM;
    }
    uint64_t first = out_before(sparse, base), end = out_before(sparse, base + bps_row_cut_limit(&cut));
    const char *part = data + bps_row_parts_before((uint32_t)(end - first));
    for (uint64_t i = first; i < end; i++) {
        uint32_t number = (uint32_t)((uint64_t)sparse->index[i] - base), own = bps_row_part_bytes(&cut, number);
        memcpy(sparse->out + i * cut.row + (number == 0 ? cut.before : 0), part, own);
        part += own;
    }
    return BPS_OK;
}

/* ---- the end ---- */

/* All results of partitions in one piece. */
static bps_status collect(struct bps_rows *rows, const struct sparse *sparse)
{
    size_t row = sparse->row;
    for (uint32_t i = 0; i < sparse->results; i++) {
        rows->out_count += sparse->result[i].data != NULL ? sparse->result[i].list.count : 0;
    }
    rows->out_index = memory_for(rows->out_count * sizeof *rows->out_index);
    rows->out = memory_for(rows->out_count * row);
    if (rows->out_index == NULL || rows->out == NULL) {
        return BPS_ERR_NOMEM;
    }
    int64_t *index = rows->out_index;
    char *out = rows->out;
    for (uint32_t i = 0; i < sparse->results; i++) {
        const struct result *result = &sparse->result[i];
        if (result->data != NULL) {
            bps_rows_number(&result->list, result->first, index);
            index += result->list.count;
            memcpy(out, result->list.data, result->list.count * row);
            out += result->list.count * row;
        }
    }
    return BPS_OK;
}

bps_status bps_sparse_end(const struct bps_operation *operation)
{
    struct bps_worker *worker = bps_container(operation, const struct bps_tensor_entry, operation)->worker;
    struct bps_rows *rows = operation->request.rows;
    struct sparse *sparse = rows->state;
    bps_status status = BPS_OK;
    if (operation->status == BPS_OK && sparse->out != NULL) {
        rows->out_count = sparse->out_count;
        rows->out_index = sparse->index;
        rows->out = sparse->out;
    } else if (operation->status == BPS_OK) {
        status = collect(rows, sparse);
    } else {
        free(sparse->index);
        free(sparse->out);
    }
    if (status != BPS_OK) {
        bps_rows_free(rows);
    }
    free_results(worker, sparse);
    free(sparse->brought);
    free(sparse);
    rows->state = NULL;
    return status;
}

void bps_rows_free(struct bps_rows *rows)
{
    free(rows->out_index);
    free(rows->out);
    rows->out_count = 0;
    rows->out_index = NULL;
    rows->out = NULL;
}
