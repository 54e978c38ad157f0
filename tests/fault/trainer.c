/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer.c - trains in an elastic job: steps of some tensors, and a reform when a worker is lost or one wants to join.
 *
 *   trainer COUNT GATE [PAUSE_MS]
 *
 * What it has learned are TENSORS arrays of COUNT integers. After a reform survivors compare with worker 0 how far they
 * are, which operations of the step that failed have ended well, and what they have learned, bit by bit; newcomers take
 * it. Worker 0 ends all when it sees the gate, a file in the folder $GATES. Status 4: survivors differ.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <byteps/elastic.h>

#define TENSORS 5

static size_t count;
static int64_t *learned[TENSORS], *gradient[TENSORS];
static int64_t step, succeeded; /* steps that are done; the operations of the next one that ended well: a bit each */
static bool survivor;

static void end(bps_status status, const struct bps_report *report)
{
    printf("error: %s\n", report->text[0] != '\0' ? report->text : bps_strerror(status));
    bps_shutdown(NULL);
    exit(3);
}

static bool sees_gate(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("GATES"), name);
    return access(path, F_OK) == 0;
}

static struct bps_push_pull request_of(const char *name, void *data, size_t elements)
{
    return (struct bps_push_pull){.size = sizeof(struct bps_push_pull),
                                  .name = name,
                                  .in = data,
                                  .out = data,
                                  .count = elements,
                                  .dtype = BPS_INT64,
                                  .op = BPS_SUM,
                                  .prescale = 1,
                                  .postscale = 1};
}

static void tensor_name(char *name, size_t n, const char *kind, int i)
{
    snprintf(name, n, "%s.%d", kind, i);
}

/* ---- a step ---- */

static bps_status begin_all(const char *gate, bps_handle *handle, struct bps_report *report)
{
    bps_status status = BPS_OK;
    for (int t = 0; t < TENSORS && status == BPS_OK; t++) {
        char name[32];
        tensor_name(name, sizeof name, "gradient", t);
        for (size_t i = 1; i < count; i++) {
            gradient[t][i] = learned[t][i] % 1000 + bps_rank() + 1 + step + (int64_t)i;
        }
        gradient[t][0] = bps_rank() == 0 && sees_gate(gate);
        const struct bps_push_pull request = request_of(name, gradient[t], count);
        status = bps_push_pull_async(&request, &handle[t], report);
    }
    return status;
}

/* The first element of a sum says whether worker 0 has seen the gate. */
static bps_status train(const char *gate, bool *over, struct bps_report *report)
{
    bps_handle handle[TENSORS] = {0};
    bps_status status = begin_all(gate, handle, report);
    succeeded = 0;
    for (int t = 0; t < TENSORS; t++) {
        struct bps_report own = {""};
        bps_status result = handle[t] != 0 ? bps_wait(handle[t], BPS_FOREVER, &own) : BPS_OK;
        succeeded |= (int64_t)(handle[t] != 0 && result == BPS_OK) << t;
        if (result != BPS_OK && (status == BPS_OK || status == BPS_ERR_MEMBERSHIP)) {
            status = result;
            *report = own;
        }
    }
    for (int t = 0; t < TENSORS && status == BPS_OK; t++) {
        for (size_t i = 1; i < count; i++) {
            learned[t][i] += gradient[t][i];
        }
    }
    *over = status == BPS_OK && gradient[0][0] > 0;
    step += status == BPS_OK;
    succeeded = status == BPS_OK ? 0 : succeeded;
    return status;
}

/* ---- after a reform ---- */

/* What worker 0 has, which survivors have as well. */
static bps_status compare(const char *name, int64_t *own, size_t elements, int64_t *room, struct bps_report *report)
{
    memcpy(room, own, elements * sizeof *own);
    const struct bps_push_pull request = request_of(name, room, elements);
    bps_handle handle;
    bps_status status = bps_broadcast_async(&request, 0, &handle, report);
    status = status == BPS_OK ? bps_wait(handle, BPS_FOREVER, report) : status;
    if (status == BPS_OK && survivor && memcmp(room, own, elements * sizeof *own) != 0) {
        printf("differs: %s, worker 0 at %" PRId64 " with %" PRIx64 ", this one at %" PRId64 " with %" PRIx64 "\n",
               name, room[0], elements > 1 ? room[1] : 0, own[0], elements > 1 ? own[1] : 0);
        fflush(stdout);
        exit(4);
    }
    return status;
}

static bps_status compare_all(struct bps_report *report)
{
    static int64_t *kept[TENSORS];
    int64_t own[2] = {step, succeeded}, of_0[2];
    bps_status status = compare("progress", own, 2, of_0, report);
    for (int t = 0; t < TENSORS && status == BPS_OK; t++) {
        char name[32];
        tensor_name(name, sizeof name, "learned", t);
        kept[t] = kept[t] != NULL ? kept[t] : malloc(count * sizeof *kept[t]);
        status = compare(name, learned[t], count, kept[t], report);
    }
    for (int t = 0; t < TENSORS && status == BPS_OK; t++) { /* all of it, or nothing */
        memcpy(learned[t], kept[t], count * sizeof *kept[t]);
    }
    step = status == BPS_OK ? of_0[0] : step;
    survivor |= status == BPS_OK;
    return status;
}

static void reform(void)
{
    struct bps_report report = {""};
    bps_status status;
    do {
        status = bps_reform(&report);
        if (status == BPS_OK) {
            printf("reforms as %d of %d at step %" PRId64 "\n", bps_rank(), bps_size(), step);
            fflush(stdout);
            status = compare_all(&report);
        }
    } while (status == BPS_ERR_MEMBERSHIP);
    if (status != BPS_OK) {
        end(status, &report);
    }
}

int main(int argc, char **argv)
{
    struct bps_report report = {""};
    bool over = false;
    count = strtoul(argv[1], NULL, 10);
    for (int t = 0; t < TENSORS; t++) {
        learned[t] = calloc(count, sizeof *learned[t]);
        gradient[t] = calloc(count, sizeof *gradient[t]);
    }
    bps_status status = bps_init(NULL, &report);
    if (status == BPS_OK) {
        printf("joins as %d of %d\n", bps_rank(), bps_size());
        fflush(stdout);
        status = compare_all(&report);
    }
    for (bool told = false; !over && (status == BPS_OK || status == BPS_ERR_MEMBERSHIP);) {
        if (status == BPS_ERR_MEMBERSHIP || bps_members_wait() > 0) {
            reform();
        }
        status = train(argv[2], &over, &report);
        if (step > 2 && !told) {
            printf("trains\n");
            fflush(stdout);
            told = true;
        }
        usleep(argc > 3 ? (useconds_t)atoi(argv[3]) * 1000 : 0);
    }
    if (status != BPS_OK) {
        end(status, &report);
    }
    printf("is at %" PRId64 " after %" PRId64 " steps, as %d of %d\n", learned[TENSORS - 1][count - 1], step,
           bps_rank(), bps_size());
    bps_shutdown(NULL);
    return EXIT_SUCCESS;
}
