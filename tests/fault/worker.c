/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.c - a worker that does what its arguments say, step by step, so that a test knows where it is.
 *
 * A step is [@RANK:][?]VERB[:ARGUMENT]...; with @RANK only that worker does it, and an error after '?' is
 * told and passed over. Other errors end the process with status 3. A gate is a file in the folder $GATES.
 *
 *   init | leave                         of the job
 *   gate:NAME                            says "at NAME", waits for the gate
 *   push:NAME:COUNT:DTYPE:OP:POSTSCALE   push_pull of rank + 1 in each element; says the first element
 *   begin:NAME:COUNT:DTYPE:OP            begins the same; await:NAME waits for it and says the first element
 *   nan:NAME:COUNT                       the same with a NaN as element 2
 *   cast:NAME:COUNT:ROOT                 broadcast
 *   loop:NAME:COUNT:GATE[:alloc]         push_pulls, each sum compared, until worker 0 sees the gate; says
 *                                        "NAME runs" and "NAME is right"; with `alloc` in memory of bps_alloc
 *   start:NAME:COUNT                     begins a push_pull and does not wait for it
 *   flips:TYPE:FIRST:COUNT               so many frames of the type arrive changed, from the FIRST, see network.h
 *   record:FILE                          appends all that this process sends from now on, see network.h
 *   forget:NAME                          bps_forget
 *   cycles:N:COUNT:GATE                  init, push_pull and leave, N times; at the gates GATE.10 and GATE.N
 *                                        it says what it holds: descriptors, threads, mappings, KiB of memory
 */
#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <byteps/byteps.h>

#include "network.h"

#define FIELDS      6
#define START_LIMIT (1u << 20) /* elements */

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

/* ---- gates ---- */

static bool open_gate(const char *name)
{
    char path[4096];
    const char *folder = getenv("GATES");
    snprintf(path, sizeof path, "%s/%s", folder != NULL ? folder : ".", name);
    return access(path, F_OK) == 0;
}

static void wait_at(const char *name)
{
    say("at %s", name);
    while (!open_gate(name)) {
        usleep(5000);
    }
}

/* The rank of this process; before init, the one that its environment asks for. */
static int own_rank(void)
{
    static const char key[] = "cluster.rank=";
    const char *set = getenv("BYTEPS_SET"), *at = set, *last = NULL;
    if (bps_rank() >= 0) {
        return bps_rank();
    }
    while (at != NULL && (at = strstr(at, key)) != NULL) {
        at += sizeof key - 1;
        last = at;
    }
    return last != NULL ? atoi(last) : -1;
}

/* ---- tensors ---- */

static uint32_t number_of(const char *word, uint32_t n, const char *(*name)(uint32_t))
{
    uint32_t i = 0;
    while (i < n && strcmp(word, name(i)) != 0) {
        i++;
    }
    return i;
}

/* bfloat16 is the upper half of a float32. */
static void set_element(void *data, size_t i, uint32_t dtype, double value)
{
    if (dtype == BPS_FLOAT64) {
        ((double *)data)[i] = value;
    } else if (dtype == BPS_INT32) {
        ((int32_t *)data)[i] = (int32_t)value;
    } else if (dtype == BPS_BFLOAT16) {
        const float narrow = (float)value;
        memcpy((uint16_t *)data + i, (const uint16_t *)(const void *)&narrow + 1, sizeof(uint16_t));
    } else {
        ((float *)data)[i] = (float)value;
    }
}

static double element(const void *data, size_t i, uint32_t dtype)
{
    float wide = 0;
    switch (dtype) {
    case BPS_FLOAT64:
        return ((const double *)data)[i];
    case BPS_INT32:
        return ((const int32_t *)data)[i];
    case BPS_BFLOAT16:
        memcpy((uint16_t *)(void *)&wide + 1, (const uint16_t *)data + i, sizeof(uint16_t));
        return (double)wide;
    default:
        return (double)((const float *)data)[i];
    }
}

static void *filled(size_t count, uint32_t dtype, double value)
{
    void *data = malloc(count * bps_dtype_size(dtype) + 1);
    for (size_t i = 0; data != NULL && i < count; i++) {
        set_element(data, i, dtype, value);
    }
    if (data == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(4);
    }
    return data;
}

static struct bps_push_pull request_of(const char *name, void *data, size_t count, uint32_t dtype)
{
    return (struct bps_push_pull){
        .size = sizeof(struct bps_push_pull),
        .name = name,
        .in = data,
        .out = data,
        .count = count,
        .dtype = dtype,
        .op = BPS_SUM,
        .prescale = 1,
        .postscale = 1,
    };
}

static bps_status exchange(const struct bps_push_pull *request, struct bps_report *report)
{
    bps_handle handle;
    bps_status status = bps_push_pull_async(request, &handle, report);
    return status == BPS_OK ? bps_wait(handle, BPS_FOREVER, report) : status;
}

static bps_status push(char **field, struct bps_report *report)
{
    size_t count = strtoul(field[2], NULL, 10);
    uint32_t dtype = number_of(field[3], BPS_DTYPES, bps_dtype_name);
    void *data = filled(count, dtype, own_rank() + 1);
    struct bps_push_pull request = request_of(field[1], data, count, dtype);
    request.op = number_of(field[4], BPS_OPS, bps_op_name);
    request.postscale = atof(field[5]);
    bps_status status = exchange(&request, report);
    if (status == BPS_OK) {
        say("%s: %g", field[1], count > 0 ? element(data, 0, dtype) : 0);
    }
    free(data);
    return status;
}

/* What `begin` has begun. */
static struct {
    char name[64];
    void *data;
    uint32_t dtype;
    bps_handle handle;
} begun[16];

#define BEGUN_LIMIT (sizeof begun / sizeof *begun)

/* The one of this name; "": one that is free. */
static size_t begun_find(const char *name)
{
    for (size_t i = 0; i < BEGUN_LIMIT; i++) {
        if (strcmp(begun[i].name, name) == 0) {
            return i;
        }
    }
    fprintf(stderr, "begin: %s\n", *name != '\0' ? name : "too many");
    exit(2);
}

static bps_status begin(char **field, struct bps_report *report)
{
    size_t count = strtoul(field[2], NULL, 10), i = begun_find("");
    uint32_t dtype = number_of(field[3], BPS_DTYPES, bps_dtype_name);
    void *data = filled(count, dtype, own_rank() + 1);
    struct bps_push_pull request = request_of(field[1], data, count, dtype);
    request.op = number_of(field[4], BPS_OPS, bps_op_name);
    bps_status status = bps_push_pull_async(&request, &begun[i].handle, report);
    if (status != BPS_OK) {
        free(data);
        return status;
    }
    snprintf(begun[i].name, sizeof begun[i].name, "%s", field[1]);
    begun[i].data = data;
    begun[i].dtype = dtype;
    return BPS_OK;
}

static bps_status await(char **field, struct bps_report *report)
{
    size_t i = begun_find(field[1]);
    bps_status status = bps_wait(begun[i].handle, BPS_FOREVER, report);
    if (status == BPS_OK) {
        say("%s: %g", begun[i].name, element(begun[i].data, 0, begun[i].dtype));
    }
    free(begun[i].data);
    *begun[i].name = '\0';
    return status;
}

static bps_status push_nan(char **field, struct bps_report *report)
{
    size_t count = strtoul(field[2], NULL, 10);
    float *data = filled(count, BPS_FLOAT32, own_rank() + 1);
    const struct bps_push_pull request = request_of(field[1], data, count, BPS_FLOAT32);
    data[2] = NAN;
    bps_status status = exchange(&request, report);
    free(data);
    return status;
}

static bps_status cast(char **field, struct bps_report *report)
{
    size_t count = strtoul(field[2], NULL, 10);
    void *data = filled(count, BPS_FLOAT32, own_rank() + 1);
    const struct bps_push_pull request = request_of(field[1], data, count, BPS_FLOAT32);
    bps_handle handle;
    bps_status status = bps_broadcast_async(&request, (uint32_t)atoi(field[3]), &handle, report);
    if (status == BPS_OK) {
        status = bps_wait(handle, BPS_FOREVER, report);
    }
    if (status == BPS_OK) {
        say("%s: %g", field[1], element(data, 0, BPS_FLOAT32));
    }
    free(data);
    return status;
}

/* Whether all elements but the first are what the sum of the round must be. */
static bool is_sum(const int32_t *data, size_t count, int32_t round)
{
    int32_t size = bps_size(), want = size * (size + 1) / 2 + size * round;
    for (size_t i = 1; i < count; i++) {
        if (data[i] != want + size * (int32_t)(i % 1000)) {
            return false;
        }
    }
    return true;
}

/* The first element says whether worker 0 has seen the gate, so that all stop after the same round. */
static bps_status loop(char **field, struct bps_report *report)
{
    size_t count = strtoul(field[2], NULL, 10);
    bool ours = strcmp(field[4], "alloc") == 0;
    int32_t *data = ours ? bps_alloc(count * sizeof *data) : filled(count, BPS_INT32, 0);
    if (data == NULL) {
        snprintf(report->text, sizeof report->text, "no memory for %zu elements of %s", count, field[1]);
        return BPS_ERR_NOMEM;
    }
    const struct bps_push_pull request = request_of(field[1], data, count, BPS_INT32);
    bps_status status = BPS_OK;
    bool more = true;
    for (int32_t round = 0; more && status == BPS_OK; round++) {
        for (size_t i = 1; i < count; i++) {
            data[i] = own_rank() + 1 + round + (int32_t)(i % 1000);
        }
        data[0] = own_rank() == 0 && open_gate(field[3]);
        status = exchange(&request, report);
        if (status == BPS_OK && !is_sum(data, count, round)) {
            snprintf(report->text, sizeof report->text, "round %d: the sum is wrong", round);
            status = BPS_ERR_INVALID;
        }
        more = data[0] == 0;
        if (round == 2) {
            say("%s runs", field[1]);
        }
    }
    if (status == BPS_OK) {
        say("%s is right", field[1]);
    }
    (ours ? bps_free : free)(data);
    return status;
}

static bps_status start(char **field, struct bps_report *report)
{
    static float data[START_LIMIT];
    size_t count = strtoul(field[2], NULL, 10);
    count = count < START_LIMIT ? count : START_LIMIT;
    const struct bps_push_pull request = request_of(field[1], data, count, BPS_FLOAT32);
    bps_handle handle;
    return bps_push_pull_async(&request, &handle, report);
}

static bps_status read_along(char **field, struct bps_report *report)
{
    (void)report;
    return record_frames(field[1]) ? BPS_OK : BPS_ERR_IO;
}

static bps_status flip(char **field, struct bps_report *report)
{
    (void)report;
    flip_frames((unsigned)atoi(field[1]), (unsigned)atoi(field[2]), (unsigned)atoi(field[3]));
    return BPS_OK;
}

static bps_status forget(char **field, struct bps_report *report)
{
    const char *name = field[1];
    return bps_forget(&name, 1, report);
}

/* ---- what the process holds ---- */

static unsigned entries(const char *folder)
{
    unsigned n = 0;
    DIR *dir = opendir(folder);
    while (dir != NULL && readdir(dir) != NULL) {
        n++;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n - 3; /* ".", "..", and the folder itself in /proc/self/fd, this thread in /proc/self/task */
}

/* The threads beside this one. One that was joined is listed until the kernel has got round to it. */
static unsigned other_threads(void)
{
    unsigned n = entries("/proc/self/task");
    for (int i = 0; n > 0 && i < 500; i++) {
        usleep(10000);
        n = entries("/proc/self/task");
    }
    return n;
}

static unsigned lines_in_maps(void)
{
    unsigned n = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    for (int c; file != NULL && (c = fgetc(file)) != EOF;) {
        n += c == '\n';
    }
    if (file != NULL) {
        fclose(file);
    }
    return n;
}

static unsigned long resident_kib(void)
{
    unsigned long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL) {
        if (fscanf(file, "%lu %lu", &all, &resident) != 2) {
            resident = 0;
        }
        fclose(file);
    }
    return resident * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
}

/* init, push_pull and leave, once. */
static bps_status cycle(size_t count, struct bps_report *report)
{
    int32_t *data = filled(count, BPS_INT32, 1);
    const struct bps_push_pull request = request_of("cycle", data, count, BPS_INT32);
    bps_status status = bps_init(NULL, report);
    if (status == BPS_OK) {
        status = exchange(&request, report);
    }
    if (status == BPS_OK && data[0] != bps_size()) {
        snprintf(report->text, sizeof report->text, "the sum is %d, not %d", data[0], bps_size());
        status = BPS_ERR_INVALID;
    }
    free(data);
    return status == BPS_OK ? bps_shutdown(report) : status;
}

static bps_status cycles(char **field, struct bps_report *report)
{
    int n = atoi(field[1]);
    bps_status status = BPS_OK;
    for (int i = 1; i <= n && status == BPS_OK; i++) {
        char gate[128];
        status = cycle(strtoul(field[2], NULL, 10), report);
        if (status == BPS_OK && (i == 10 || i == n)) {
            say("cycle %d: %u %u %u %lu", i, entries("/proc/self/fd"), other_threads(), lines_in_maps(),
                resident_kib());
            snprintf(gate, sizeof gate, "%s.%d", field[3], i);
            wait_at(gate);
        }
    }
    return status;
}

/* ---- steps ---- */

static bps_status init(char **field, struct bps_report *report)
{
    (void)field;
    bps_status status = bps_init(NULL, report);
    if (status == BPS_OK) {
        say("joined");
    }
    return status;
}

static bps_status leave(char **field, struct bps_report *report)
{
    (void)field;
    bps_status status = bps_shutdown(report);
    if (status == BPS_OK) {
        say("left");
    }
    return status;
}

static bps_status gate(char **field, struct bps_report *report)
{
    (void)report;
    wait_at(field[1]);
    return BPS_OK;
}

static const struct {
    const char *name;
    bps_status (*run)(char **field, struct bps_report *report);
} verbs[] = {
    {"init", init},     {"leave", leave},   {"gate", gate},  {"push", push},         {"begin", begin},
    {"await", await},   {"nan", push_nan},  {"cast", cast},  {"loop", loop},         {"start", start},
    {"cycles", cycles}, {"forget", forget}, {"flips", flip}, {"record", read_along},
};

static bps_status run(char **field, struct bps_report *report)
{
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(field[0], verbs[i].name) == 0) {
            return verbs[i].run(field, report);
        }
    }
    fprintf(stderr, "unknown step %s\n", field[0]);
    exit(2);
}

/* False: the process must end. */
static bool step(const char *text)
{
    struct bps_report report = {""};
    char copy[512], *rest = copy, *field[FIELDS];
    snprintf(copy, sizeof copy, "%s", text);
    if (*rest == '@') {
        if ((int)strtol(rest + 1, &rest, 10) != own_rank()) {
            return true;
        }
        rest++;
    }
    bool pass = *rest == '?';
    rest += pass;
    for (int i = 0; i < FIELDS; i++) {
        field[i] = rest != NULL ? strsep(&rest, ":") : "";
    }
    bps_status status = run(field, &report);
    if (status != BPS_OK) {
        say("error: %s", report.text[0] != '\0' ? report.text : bps_strerror(status));
    }
    return status == BPS_OK || pass;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!step(argv[i])) {
            bps_shutdown(NULL);
            return 3;
        }
    }
    return EXIT_SUCCESS;
}
