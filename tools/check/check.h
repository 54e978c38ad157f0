/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - the conformance suite of `byteps plugin check`: what the tests of a plugin are, and what they use.
 *
 * Each test runs in a process of its own, which may crash, hang, exit and leak as it likes: run.c looks at what became
 * of it. A test calls the plugin's operations as the core does, and ends with the first thing that is wrong.
 */
#ifndef BPS_TOOLS_CHECK_H
#define BPS_TOOLS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/loop.h"
#include "plugin/instance.h"

/* What is checked. */
struct bps_check_plugin {
    uint32_t kind;
    char name[32];
    const char *path;       /* of the file */
    const char *const *set; /* options of the command line, "name=value" */
    size_t nset;
};

enum bps_check_result { BPS_CHECK_RUNNING, BPS_CHECK_PASSED, BPS_CHECK_SKIPPED, BPS_CHECK_FAILED };

/* What a test tells, in memory that it shares with the process that has begun it. */
struct bps_check_page {
    enum bps_check_result result;
    char at[200];   /* what it is doing, for whoever finds it dead: "encode, float32, 65 elements" */
    char text[800]; /* why it has failed or was skipped, or what it has found out */
};

/* A test that runs. */
struct bps_check {
    const struct bps_check_plugin *plugin;
    struct bps_check_page *page;
    struct bps_loop *loop; /* nobody drives it but the test */
    double limit;          /* seconds that the test may take */
    uint64_t begun;        /* bps_now(), when it began */
};

struct bps_check_test {
    const char *name;
    void (*run)(struct bps_check *check);
    unsigned limits; /* how many times the limit of a test it may take; 0: once */
};

/* The tests of a kind; ends with one whose name is NULL. */
extern const struct bps_check_test bps_check_every[]; /* of all kinds */
extern const struct bps_check_test bps_check_stage[];
extern const struct bps_check_test bps_check_compressor[];
extern const struct bps_check_test bps_check_reducer[];
extern const struct bps_check_test bps_check_transport[];

/* Ends the test, which has failed or cannot be run with this plugin. */
_Noreturn void bps_check_fail(struct bps_check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void bps_check_skip(struct bps_check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What a test that passes has found out. */
void bps_check_note(struct bps_check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What the test does from here on: told in front of all that goes wrong, a crash and a hang included. */
void bps_check_at(struct bps_check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define BPS_CHECK(check, condition, ...)                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            bps_check_fail(check, __VA_ARGS__);                                                                        \
        }                                                                                                              \
    } while (0)

/* ---- the plugin (open.c) ---- */

/* Loads it, once in a process. A refusal fails the test. */
const struct bps_loaded *bps_check_load(struct bps_check *check);
/*
 * An instance with its defaults, what the command line sets, and one more option (NULL: none). An error: the option's
 * value or the plugin's open has refused it, *out is NULL, and the report says why; whatever is wrong about a refusal
 * fails the test.
 */
bps_status bps_check_try(struct bps_check *check, const char *option, const char *value, struct bps_instance **out,
                         struct bps_report *report);
/* An instance. A refusal fails the test; with BPS_ERR_UNSUPPORTED this machine has not what it needs: skipped. */
struct bps_instance *bps_check_open(struct bps_check *check);
void bps_check_close(struct bps_check *check, struct bps_instance *instance);

/* One turn of the loop, without waiting. (drive.c) */
void bps_check_turn(struct bps_check *check);
/* Drives the loop until done(arg), at most so many seconds; whether it is done. (drive.c) */
bool bps_check_drive(struct bps_check *check, bool (*done)(void *arg), void *arg, double seconds);

/* ---- what the process has (usage.c) ---- */

struct bps_check_usage {
    uint64_t allocated, mapped; /* bytes */
    unsigned descriptors, threads;
};
struct bps_check_usage bps_check_usage_now(void);
/* Fails the test if `rounds` rounds of something have left more than was there before, each. */
void bps_check_usage_same(struct bps_check *check, const struct bps_check_usage *before, unsigned rounds);

/* ---- memory that fails (allocations.c) ---- */

/*
 * From now on the `nth` allocation (from 1) that the plugin's own code makes by malloc() and its like fails, or that it
 * makes by `host`; 0: none. Returns how many it has made since the last call.
 */
void bps_check_allocations_watch(struct bps_check *check, struct bps_host *host);
unsigned bps_check_allocations_fail(unsigned nth);

/* ---- a run of the suite (run.c) and what is told of it (show.c) ---- */

struct bps_check_outcome {
    const char *name;
    enum bps_check_result result;
    char text[1200];
    char *output; /* what the test has written to standard error; freed by bps_check_run()'s caller */
    double seconds;
};

/* Runs a test in a process of its own; `limit` in seconds. */
void bps_check_run(const struct bps_check_plugin *plugin, const struct bps_check_test *test, double limit,
                   struct bps_check_outcome *out);

/* TAP, a line per test as it ends, or one JSON object at the end. */
struct bps_check_show;
struct bps_check_show *bps_check_show_begin(const struct bps_check_plugin *plugin, size_t tests, bool json);
void bps_check_show_outcome(struct bps_check_show *show, const struct bps_check_outcome *outcome);
/* Returns whether nothing has failed. */
bool bps_check_show_end(struct bps_check_show *show);

#endif
