/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the program byteps: finds the subcommand. */
#include "tools/cmd.h"

#include <stdio.h>
#include <string.h>

#include <byteps/byteps.h>

#include "conf/option.h"

struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
    {"run", "start a whole job: scheduler, servers and workers", bps_cmd_run},
    {"launch", "start the processes of one machine by DMLC_ variables", bps_cmd_launch},
    {"server", "run a summation server", bps_cmd_server},
    {"scheduler", "run the scheduler of a job", bps_cmd_scheduler},
    {"conf", "check, show or sample the configuration", bps_cmd_conf},
    {"plugin", "list the plugins, describe, check, measure or begin one", bps_cmd_plugin},
    {"graph", "show the stages that a tensor passes", bps_cmd_graph},
    {"plan", "predict how long a model's gradients take on some shape of job", bps_cmd_plan},
    {"trace", "join the timelines of a job, show where each step spent its time", bps_cmd_trace},
    {"bench", "measure push_pull, a transport, the reducer or a training", bps_cmd_bench},
    {"python", "make the package byteps importable in a Python", bps_cmd_python},
    {"info", "show information about this installation and this machine", bps_cmd_info},
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static int help(void)
{
    printf("Usage: byteps COMMAND [OPTIONS]\n"
           "       byteps --help | --version\n"
           "\n"
           "Distributed training by summation servers. The commands:\n"
           "\n");
    for (size_t i = 0; i < COMMANDS; i++) {
        printf("  %-10s %s\n", commands[i].name, commands[i].summary);
    }
    printf("\n"
           "'byteps COMMAND --help' describes one of them, byteps(1) and byteps.conf(5)\n"
           "about all.\n"
           "Two workers and one server on this machine:\n"
           "\n"
           "  byteps run -n 2 -s 1 -- python3 train.py\n");
    return bps_cmd_finish("help", 0);
}

static int unknown(const char *word)
{
    const char *names[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++) {
        names[i] = commands[i].name;
    }
    const char *near = bps_nearest(word, names, COMMANDS);
    fprintf(stderr, "byteps: unknown %s '%s'", word[0] == '-' ? "option" : "command", word);
    if (near) {
        fprintf(stderr, "; did you mean '%s'?", near);
    }
    fprintf(stderr, "\nTry 'byteps --help'.\n");
    return BPS_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "byteps: no command given\nTry 'byteps --help'.\n");
        return BPS_EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        return help();
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("byteps %s\n", bps_version());
        return bps_cmd_finish("version", 0);
    }
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(word, commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    return unknown(word);
}
