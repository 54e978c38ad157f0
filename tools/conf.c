/* SPDX-License-Identifier: Apache-2.0 */
/* conf.c - `byteps conf check|show|sample`: the command line. */
#include "tools/conf.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "conf/option.h"

/* clang-format off */
static const char help_text[] =
    "Usage: byteps conf check [FILE] [OPTIONS] [--json]\n"
    "       byteps conf show [FILE] [OPTIONS] [--origin] [--json]\n"
    "       byteps conf sample\n"
    "\n"
    "check reads the configuration as a process of a job would, opens the plugins\n"
    "that it names, and prints the files that it has read and every problem found.\n"
    "show prints the values in effect, in the form of a configuration file.\n"
    "sample prints a commented file with all keys and with the options of all plugins\n"
    "installed here.\n"
    "\n" BPS_CMD_CONF_HELP
    "      --origin           show: also print where each value comes from\n"
    "      --json             print JSON; sizes are in bytes, times in seconds\n"
    "      --help             print this\n";
/* clang-format on */

static void print_problem(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "%s\n", text);
}

struct bps_conf_request bps_conf_command_request(const struct bps_conf_command *command)
{
    return (struct bps_conf_request){
        .file = command->conf.file,
        .set = command->conf.set,
        .nset = command->conf.nset,
        .incomplete = true,
        .problem = print_problem,
    };
}

static int parse(int argc, char **argv, struct bps_conf_command *out, bool *help)
{
    static const struct option options[] = {
        BPS_CMD_CONF_OPTIONS,
        {"origin", no_argument, NULL, 'o'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int code;
    opterr = 0;
    optind = 1;
    while ((code = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (bps_cmd_conf_take(&out->conf, code, optarg)) {
            continue;
        }
        switch (code) {
        case 'o':
            out->origin = true;
            break;
        case 'j':
            out->json = true;
            break;
        case 'h':
            *help = true;
            return 0;
        default:
            return bps_cmd_bad_option("conf", code, argv);
        }
    }
    return 0;
}

static int unknown(const char *word)
{
    static const char *const words[] = {"check", "show", "sample"};
    const char *nearest = bps_nearest(word, words, sizeof words / sizeof *words);
    if (nearest != NULL) {
        return bps_cmd_usage("conf", "unknown command '%s'; did you mean '%s'?", word, nearest);
    }
    return bps_cmd_usage("conf", "unknown command '%s'; expected check, show or sample", word);
}

static int dispatch(int argc, char **argv, struct bps_conf_command *command)
{
    const char *word = argv[0];
    bool show = strcmp(word, "show") == 0, sample = strcmp(word, "sample") == 0;
    if (!show && !sample && strcmp(word, "check") != 0) {
        return unknown(word);
    }
    if (argc > 2 || (argc > 1 && (sample || command->conf.file != NULL))) {
        return bps_cmd_usage("conf",
                             sample ? "sample takes no argument '%s'" : "unexpected argument '%s'; expected one file",
                             argv[argc - 1]);
    }
    if ((command->json && sample) || (command->origin && !show)) {
        return bps_cmd_usage("conf", "%s takes no %s", word, command->origin ? "--origin" : "--json");
    }
    if (sample && (command->conf.file != NULL || command->conf.nset != 0)) {
        return bps_cmd_usage("conf", "sample takes no --conf and no --set");
    }
    if (argc > 1) {
        command->conf.file = argv[1];
    }
    return sample ? bps_conf_command_sample() : show ? bps_conf_command_show(command) : bps_conf_command_check(command);
}

int bps_cmd_conf(int argc, char **argv)
{
    struct bps_conf_command command = {0};
    bool help = false;
    int result = parse(argc, argv, &command, &help);
    if (result == 0 && help) {
        fputs(help_text, stdout);
    } else if (result == 0 && optind == argc) {
        result = bps_cmd_usage("conf", "no command given; expected check, show or sample");
    } else if (result == 0) {
        result = dispatch(argc - optind, argv + optind, &command);
    }
    bps_cmd_conf_fini(&command.conf);
    return result == 0 ? bps_cmd_finish("conf", 0) : result;
}
