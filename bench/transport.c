/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.c - `byteps bench transport`: a transport alone, between two processes.
 *
 * The other end is always a `byteps bench transport --listen`: started by the user on another host, or by
 * this process on the same one.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <byteps/byteps.h>

#include "base/log.h"
#include "bench/transport.h"

#define NAME        BPS_BENCH_NAME
#define START_LIMIT 60000 /* ms that the listening process may take to say where it listens */

static const uint32_t latency_bytes[] = {8, 256, 1024, 4096};

/* ---- the listening process ---- */

/* The words of its command line; the user's settings hold for both ends. */
static char **command(const struct bps_bench_request *request, const char *self, const char *name)
{
    const struct bps_cmd_conf *conf = &request->conf;
    char **words = bps_cmd_alloc(12 + 2 * conf->nset, sizeof *words);
    size_t n = 0;
    const char *const head[] = {self, "bench", "transport", "--transport", name, "--listen", ":0"};
    for (; n < sizeof head / sizeof *head; n++) {
        words[n] = (char *)head[n];
    }
    if (conf->file != NULL) {
        words[n++] = "--conf";
        words[n++] = (char *)conf->file;
    }
    for (size_t i = 0; i < conf->nset; i++) {
        words[n++] = "--set";
        words[n++] = (char *)conf->set[i];
    }
    return words;
}

/* Reads "... --connect ADDRESS" and a newline. */
static bool read_address(int fd, char *out, size_t n)
{
    char line[512];
    size_t used = 0;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    while (used + 1 < sizeof line && poll(&ready, 1, START_LIMIT) == 1) {
        ssize_t got = read(fd, line + used, sizeof line - 1 - used);
        if (got <= 0) {
            break;
        }
        used += (size_t)got;
        line[used] = '\0';
        char *address = strstr(line, "--connect "), *end = strchr(line, '\n');
        if (address != NULL && end != NULL) {
            *end = '\0';
            snprintf(out, n, "%s", address + strlen("--connect "));
            return true;
        }
    }
    return false;
}

static pid_t start_process(char **words, int out)
{
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || dup2(out, STDOUT_FILENO) < 0) {
            _exit(BPS_EXIT_FAILURE);
        }
        execv("/proc/self/exe", words);
        _exit(BPS_EXIT_FAILURE);
    }
    return pid;
}

void bps_bench_listener_stop(struct bps_bench_listener *listener)
{
    if (listener->pid > 0) {
        kill(listener->pid, SIGKILL); /* it has nothing to tidy up */
        waitpid(listener->pid, NULL, 0);
    }
    listener->pid = 0;
}

int bps_bench_listener_start(const struct bps_bench_request *request, const char *name, struct bps_bench_listener *out)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        return bps_cmd_failure(NAME, "cannot make a pipe: %s", strerror(errno));
    }
    char **words = command(request, "byteps", name);
    out->pid = start_process(words, ends[1]);
    free(words);
    close(ends[1]);
    bool started = out->pid > 0 && read_address(ends[0], out->address, sizeof out->address);
    close(ends[0]);
    if (!started) {
        bps_bench_listener_stop(out);
        return bps_cmd_failure(NAME, "transport %s: the other process does not listen", name);
    }
    return 0;
}

/* ---- one transport ---- */

static bps_status measure_all(const struct bps_bench_request *request, struct bps_bench_asker *asker, json_t *latency,
                              json_t *goodput, struct bps_report *report)
{
    bps_status status = BPS_OK;
    bool table = !request->json;
    if (table) {
        bps_bench_print_latency_head();
    }
    for (size_t i = 0; i < sizeof latency_bytes / sizeof *latency_bytes && status == BPS_OK; i++) {
        struct bps_bench_latency row;
        status = bps_bench_measure_latency(asker, latency_bytes[i], &row, report);
        if (status == BPS_OK) {
            json_array_append_new(latency, bps_bench_latency_json(&row));
        }
        if (status == BPS_OK && table) {
            bps_bench_print_latency(&row);
        }
    }
    if (status == BPS_OK && table) {
        bps_bench_print_goodput_head();
    }
    for (uint32_t i = 0; i < request->loads && status == BPS_OK; i++) {
        struct bps_bench_goodput row;
        uint32_t bytes = (uint32_t)(request->load[i].elements * sizeof(float));
        status = bps_bench_measure_goodput(asker, bytes, &row, report);
        if (status == BPS_OK) {
            json_array_append_new(goodput, bps_bench_goodput_json(&row));
        }
        if (status == BPS_OK && table) {
            bps_bench_print_goodput(&row);
        }
    }
    return status;
}

/* Adds what was measured to `all`. */
static int measure(const struct bps_bench_request *request, struct bps_bench_asker *asker, const char *address,
                   json_t *all)
{
    struct bps_report report = {""};
    json_t *latency = json_array(), *goodput = json_array();
    bps_status status = bps_bench_asker_begin(asker, address, &report);
    if (status == BPS_OK && !request->json) {
        bps_bench_print_transport(asker, request->rounds);
    }
    if (status == BPS_OK) {
        status = measure_all(request, asker, latency, goodput, &report);
    }
    if (status == BPS_OK) {
        json_array_append_new(all, bps_bench_transport_json(asker, latency, goodput));
    } else {
        json_decref(latency);
        json_decref(goodput);
    }
    bps_bench_asker_end(asker);
    return status == BPS_OK ? 0 : bps_cmd_failure(NAME, "%s", report.text);
}

static int run_transport(const struct bps_bench_request *request, const struct bps_conf *conf, const char *name,
                         json_t *all)
{
    struct bps_bench_asker asker = {.rounds = (size_t)request->rounds};
    struct bps_bench_listener listener = {.pid = 0};
    struct bps_report report = {""};
    int result = 0;
    if (bps_bench_channel_open(&asker.channel, conf, name, &report) != BPS_OK) {
        result = bps_cmd_failure(NAME, "%s", report.text);
    } else if (request->connect == NULL) {
        result = bps_bench_listener_start(request, name, &listener);
    }
    if (result == 0) {
        result = measure(request, &asker, request->connect ? request->connect : listener.address, all);
    }
    bps_bench_channel_close(&asker.channel);
    bps_bench_listener_stop(&listener);
    return result;
}

/* ---- the whole ---- */

/* Those that were named; else those of the configuration, or of them the one of the network. */
static int run_transports(const struct bps_bench_request *request, const struct bps_conf *conf, json_t *all)
{
    const struct bps_conf_node *known = bps_conf_find(conf, "transports");
    bool named = request->names > 0;
    uint32_t n = named ? request->names : request->connect != NULL || known == NULL ? 1 : known->count;
    int result = 0;
    for (uint32_t i = 0; i < n && result == 0; i++) {
        const char *name = named                                       ? request->name[i]
                           : request->connect != NULL || known == NULL ? "net"
                                                                       : known->children[i]->name;
        if (i > 0 && !request->json) {
            putchar('\n');
        }
        result = run_transport(request, conf, name, all);
    }
    return result;
}

int bps_bench_transport(const struct bps_bench_request *request)
{
    if (request->listen != NULL) {
        return bps_bench_transport_answer(request, request->names > 0 ? request->name[0] : "net");
    }
    struct bps_conf *conf = bps_cmd_conf_load(NAME, &request->conf, "worker");
    if (conf == NULL) {
        return BPS_EXIT_FAILURE;
    }
    bps_log_set_level(BPS_LOG_WARN);
    bps_cmd_guard(conf);
    json_t *all = json_array();
    int result = run_transports(request, conf, all);
    if (result == 0) {
        result =
            bps_bench_show(request, json_pack("{s:s, s:s, s:I, s:O}", "benchmark", "transport", "version",
                                              bps_version(), "rounds", (json_int_t)request->rounds, "transports", all));
    }
    json_decref(all);
    bps_conf_free(conf);
    return bps_cmd_finish(NAME, result);
}
