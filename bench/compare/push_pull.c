/* SPDX-License-Identifier: Apache-2.0 */
/*
 * push_pull.c - a worker that pushes and pulls a list of tensors, as the last layers of a backward
 * pass first and with the first layer as the most urgent one. Started by the driver through `byteps run`.
 *
 * push_pull DIRECTORY NAME TENSORS [--alloc | --coding TEXT]   --alloc: in memory that the library shares
 *
 * With --coding the tensors are normally distributed and stay as they are. They are coded so on the network; "": not at
 * all.
 * DIRECTORY/NAME.RANK.coded then has the bytes that one iteration has pushed coded.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <byteps/byteps.h>

#include "round.h"
#include "tools/normal.h"

struct model {
    struct bench_tensors tensors;
    bps_tensor *tensor;
    bps_handle *handle;
    float *memory, *result;
    const char *coding; /* NULL: as configured */
};

static void check(bps_status status, const struct bps_report *report)
{
    if (status < 0) {
        bench_fail("%s: %s", bps_strerror(status), report->text);
    }
}

static void declare(struct model *m)
{
    struct bps_declaration *declarations = calloc(m->tensors.n, sizeof *declarations);
    char(*names)[24] = calloc(m->tensors.n, sizeof *names);
    struct bps_report report = {""};

    m->tensor = calloc(m->tensors.n, sizeof *m->tensor);
    m->handle = calloc(m->tensors.n, sizeof *m->handle);
    if (declarations == NULL || names == NULL || m->tensor == NULL || m->handle == NULL) {
        bench_fail("out of memory");
    }
    for (size_t i = 0; i < m->tensors.n; i++) {
        snprintf(names[i], sizeof names[i], "%zu", i);
        declarations[i] = (struct bps_declaration){
            .size = sizeof *declarations,
            .name = names[i],
            .count = m->tensors.count[i],
            .dtype = BPS_FLOAT32,
            .coding = m->coding,
        };
    }
    check(bps_declare(declarations, m->tensors.n, m->tensor, &report), &report);
    free(names);
    free(declarations);
}

/* The tensor whose elements begin there. */
static struct bps_push_pull request(const struct model *m, size_t i, uint64_t at)
{
    return (struct bps_push_pull){
        .size = sizeof(struct bps_push_pull),
        .tensor = m->tensor[i],
        .in = m->memory + at,
        .out = m->result + at,
        .count = m->tensors.count[i],
        .dtype = BPS_FLOAT32,
        .op = BPS_AVERAGE,
        .priority = -(int32_t)i,
        .prescale = 1,
        .postscale = 1,
    };
}

static void push_pull_one(void *arg)
{
    struct model *m = arg;
    struct bps_report report = {""};
    const struct bps_push_pull one = request(m, 0, 0);

    check(bps_push_pull(&one, BPS_FOREVER, &m->handle[0], &report), &report);
}

static void push_pull_all(void *arg)
{
    struct model *m = arg;
    struct bps_report report = {""};
    uint64_t at = m->tensors.elements;

    for (size_t i = m->tensors.n; i-- > 0;) {
        at -= m->tensors.count[i];
        const struct bps_push_pull each = request(m, i, at);
        check(bps_push_pull_async(&each, &m->handle[i], &report), &report);
    }
    for (size_t i = 0; i < m->tensors.n; i++) {
        check(bps_wait(m->handle[i], BPS_FOREVER, &report), &report);
    }
}

/* Where the tensors lie one behind the other; different on each rank, and 1 in the average. */
static float *new_memory(uint64_t elements, bool alloc)
{
    float value = (float)(2 * bps_rank() + 2 - bps_size()), *memory;

    if (!alloc) {
        return bench_memory(elements, value);
    }
    memory = bps_alloc(elements * sizeof *memory);
    if (memory == NULL) {
        bench_fail("bps_alloc: no shared memory for %lu elements", elements);
    }
    for (uint64_t i = 0; i < elements; i++) {
        memory[i] = value;
    }
    return memory;
}

static void open_memory(struct model *m, bool alloc)
{
    m->memory = new_memory(m->tensors.elements, alloc);
    m->result = m->memory;
    if (m->coding != NULL) {
        m->result = new_memory(m->tensors.elements, false);
        bps_normal(m->memory, m->tensors.elements, (uint32_t)bps_rank() + 1);
    }
}

static void tell_coded(const char *directory, const char *name)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s.%d.coded", directory, name, bps_rank());
    file = fopen(path, "w");
    if (file == NULL || fprintf(file, "%lu\n", bps_coded_bytes(NULL)) < 0 || fclose(file) != 0) {
        bench_fail("%s: %m", path);
    }
}

/* The first average, and then those of equal values. */
static void check_result(const struct model *m)
{
    for (uint64_t i = 0; i < m->tensors.elements; i++) {
        if (m->memory[i] != 1.0f) {
            bench_fail("element %lu is %g, not 1", i, (double)m->memory[i]);
        }
    }
}

int main(int argc, char **argv)
{
    struct model m = {.coding = argc == 6 && strcmp(argv[4], "--coding") == 0 ? argv[5] : NULL};
    struct bps_report report = {""};
    struct bench_driver driver;
    bool alloc = argc == 5 && strcmp(argv[4], "--alloc") == 0;
    void (*iteration)(void *arg) = push_pull_all;

    if (argc != 4 && !alloc && m.coding == NULL) {
        bench_fail("usage: push_pull DIRECTORY NAME TENSORS [--alloc | --coding TEXT]");
    }
    bench_tensors_read(argv[3], &m.tensors);
    check(bps_init(NULL, &report), &report);
    open_memory(&m, alloc);
    declare(&m);
    if (m.tensors.n == 1) {
        iteration = push_pull_one;
    }
    iteration(&m);
    if (m.coding == NULL) {
        check_result(&m);
    } else {
        tell_coded(argv[1], argv[2]);
    }
    bench_driver_open(argv[1], argv[2], bps_rank(), &driver);
    bench_driver_serve(&driver, iteration, &m);
    check(bps_shutdown(&report), &report);
    return 0;
}
