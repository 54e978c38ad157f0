/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - `byteps trace merge|show`: the command line. */
#include "tools/trace.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conf/option.h"
#include "tools/cmd.h"

/* clang-format off */
static const char help_text[] =
    "Usage: byteps trace merge [-o OUT] FILE...\n"
    "       byteps trace show [--workers] [--steps FROM..TO] [--json] FILE...\n"
    "\n"
    "Each member of a job that records its timeline writes a file. merge joins them\n"
    "into one, for ui.perfetto.dev or chrome://tracing, with an arrow from each push\n"
    "to where it is received, and back. show prints how long each step was and where\n"
    "the time went; it reads files of members or one that merge has written.\n"
    "\n"
    "The columns of show, in ms, the mean of the workers:\n"
    "  time         from the first operation of the step to that of the next one\n"
    "  computation  the threads of the program wait for nothing; all others: they\n"
    "               wait, and the last slice of what they wait for\n"
    "  stages       is with the stages of the worker, or on its way to the program\n"
    "  queue        waits for its turn to be sent\n"
    "  credit       the same, as nothing more may be unanswered\n"
    "  wire         is between worker and server\n"
    "  others       has come, and those of other workers have not; or there is no\n"
    "               credit, as what the server has is held by them\n"
    "  sum          is being summed\n"
    "\n"
    "  -o, --output OUT       merge: the file to write; default: standard output,\n"
    "                         unless that is a terminal\n"
    "      --workers          show: a table for each worker\n"
    "      --steps FROM..TO   show: these steps only\n"
    "      --json             show: print JSON; times are in nanoseconds\n"
    "      --help             print this\n";
/* clang-format on */

/* "3", or "3..9". */
static bool parse_steps(const char *text, struct bps_cmd_trace_command *out)
{
    char *end;
    errno = 0;
    out->some = true;
    out->from = out->to = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || errno != 0) {
        return false;
    }
    if (strncmp(end, "..", 2) == 0 && end[2] >= '0' && end[2] <= '9') {
        out->to = strtoull(end + 2, &end, 10);
    }
    return *end == '\0' && errno == 0 && out->from <= out->to;
}

static int parse(int argc, char **argv, struct bps_cmd_trace_command *out, bool *help)
{
    static const struct option options[] = {
        {"output", required_argument, NULL, 'o'}, {"workers", no_argument, NULL, 'w'},
        {"steps", required_argument, NULL, 's'},  {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
    };
    int code;
    opterr = 0;
    optind = 1;
    while ((code = getopt_long(argc, argv, ":ho:", options, NULL)) != -1) {
        switch (code) {
        case 'o':
            out->output = optarg;
            break;
        case 'w':
            out->workers = true;
            break;
        case 's':
            if (!parse_steps(optarg, out)) {
                return bps_cmd_usage("trace", "--steps %s: expected FROM..TO, such as 10..19", optarg);
            }
            break;
        case 'j':
            out->json = true;
            break;
        case 'h':
            *help = true;
            return 0;
        default:
            return bps_cmd_bad_option("trace", code, argv);
        }
    }
    return 0;
}

static int unknown(const char *word)
{
    static const char *const words[] = {"merge", "show"};
    const char *nearest = bps_nearest(word, words, sizeof words / sizeof *words);
    if (nearest != NULL) {
        return bps_cmd_usage("trace", "unknown command '%s'; did you mean '%s'?", word, nearest);
    }
    return bps_cmd_usage("trace", "unknown command '%s'; expected merge or show", word);
}

static int dispatch(int argc, char **argv, const struct bps_cmd_trace_command *command)
{
    struct bps_cmd_trace trace = {0};
    bool merge = strcmp(argv[0], "merge") == 0;
    int result = 0;
    if (!merge && strcmp(argv[0], "show") != 0) {
        return unknown(argv[0]);
    }
    if (argc == 1) {
        return bps_cmd_usage("trace", "%s needs the files of a job's members", argv[0]);
    }
    if (!merge && command->output != NULL) {
        return bps_cmd_usage("trace", "show takes no --output");
    }
    if (merge && (command->json || command->workers || command->some)) {
        return bps_cmd_usage("trace", "merge takes no %s",
                             command->json      ? "--json"
                             : command->workers ? "--workers"
                                                : "--steps");
    }
    if (merge && command->output == NULL && isatty(STDOUT_FILENO)) {
        return bps_cmd_usage("trace", "standard output is a terminal; name a file with -o OUT");
    }
    for (int i = 1; i < argc && result == 0; i++) {
        result = bps_cmd_trace_read(&trace, argv[i]);
    }
    if (result == 0) {
        result = merge ? bps_cmd_trace_merge(&trace, command) : bps_cmd_trace_show(&trace, command);
    }
    bps_cmd_trace_fini(&trace);
    return result;
}

int bps_cmd_trace(int argc, char **argv)
{
    struct bps_cmd_trace_command command = {0};
    bool help = false;
    int result = parse(argc, argv, &command, &help);
    if (result == 0 && help) {
        fputs(help_text, stdout);
    } else if (result == 0 && optind == argc) {
        result = bps_cmd_usage("trace", "no command given; expected merge or show");
    } else if (result == 0) {
        result = dispatch(argc - optind, argv + optind, &command);
    }
    return result == 0 ? bps_cmd_finish("trace", 0) : result;
}
