/* SPDX-License-Identifier: Apache-2.0 */
/* script.c - the parts of `byteps bench` that are in Python, which draw or make networks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"

#define NAME BPS_BENCH_NAME

/* Runs a script with a file as its standard input, and waits for its end. */
static int run_script(const char *script, char *const *words, FILE *input)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (input != NULL && dup2(fileno(input), STDIN_FILENO) < 0) {
            _exit(BPS_EXIT_FAILURE);
        }
        _exit(bps_cmd_become_script(NAME, BPS_CMD_PYTHON, script, words));
    }
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (pid < 0) {
        return bps_cmd_failure(NAME, "cannot start another process: %s", strerror(errno));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : bps_cmd_failure(NAME, "%s was killed", script);
}

/* ---- pictures ---- */

int bps_bench_check_plot(const struct bps_bench_request *request)
{
    char *const words[] = {"--check", (char *)request->plot, NULL};
    return request->plot != NULL ? run_script("plot.py", words, NULL) : 0;
}

static int draw(const char *plot, const json_t *root)
{
    char *const words[] = {(char *)plot, NULL};
    FILE *file = tmpfile();
    int result;
    if (file == NULL || json_dumpf(root, file, 0) != 0 || fflush(file) != 0) {
        result = bps_cmd_failure(NAME, "--plot: cannot write a temporary file: %s", strerror(errno));
    } else {
        rewind(file);
        result = run_script("plot.py", words, file);
    }
    if (file != NULL) {
        fclose(file);
    }
    return result;
}

int bps_bench_show(const struct bps_bench_request *request, json_t *root)
{
    int result = 0;
    if (root == NULL) {
        return bps_cmd_failure(NAME, "out of memory");
    }
    if (request->json) {
        result = json_dumpf(root, stdout, JSON_INDENT(2)) == 0 ? 0 : bps_cmd_failure(NAME, "cannot print JSON");
        putchar('\n');
    }
    if (result == 0 && request->plot != NULL) {
        result = draw(request->plot, root);
    }
    json_decref(root);
    return result;
}

/* ---- training ---- */

int bps_bench_check_train(void)
{
    char *const words[] = {"--check", NULL};
    return run_script("train.py", words, NULL);
}

int bps_bench_train(const struct bps_bench_request *request)
{
    const struct bps_cmd_conf *conf = &request->conf;
    const char **words = bps_cmd_alloc(2 * conf->nset + 6, sizeof *words);
    char *rounds = bps_cmd_print("--rounds=%lld", (long long)request->rounds);
    size_t n = 0;
    words[n++] = rounds;
    if (request->json) {
        words[n++] = "--json";
    }
    if (conf->file != NULL) {
        words[n++] = "--conf";
        words[n++] = conf->file;
    }
    for (size_t i = 0; i < conf->nset; i++) {
        words[n++] = "--set";
        words[n++] = conf->set[i];
    }
    const char *script = request->beside != NULL ? "beside.py" : "train.py";
    int result = bps_cmd_become_script(NAME, BPS_CMD_PYTHON, script, (char *const *)words);
    free(rounds);
    free(words);
    return result;
}
