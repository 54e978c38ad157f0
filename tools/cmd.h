/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd.h - the subcommands of the program byteps, and what they share.
 *
 * Exit status: 0 success, 1 failure, 2 wrong usage; `byteps run` and `byteps launch` pass on that of what
 * they ran.
 */
#ifndef BPS_CMD_CMD_H
#define BPS_CMD_CMD_H

#include <stdbool.h>
#include <stddef.h>

#include "conf/conf.h"

#define BPS_EXIT_FAILURE 1
#define BPS_EXIT_USAGE   2

/* One function per subcommand; argv[0] is the subcommand's name. The result is the exit status. */
int bps_cmd_run(int argc, char **argv);
int bps_cmd_launch(int argc, char **argv);
int bps_cmd_server(int argc, char **argv);
int bps_cmd_scheduler(int argc, char **argv);
int bps_cmd_conf(int argc, char **argv);
int bps_cmd_plugin(int argc, char **argv);
int bps_cmd_graph(int argc, char **argv);
int bps_cmd_plan(int argc, char **argv);
int bps_cmd_info(int argc, char **argv);
int bps_cmd_bench(int argc, char **argv);
int bps_cmd_trace(int argc, char **argv);
int bps_cmd_python(int argc, char **argv);

/* Prints the versions of what must fit together. */
void bps_cmd_versions(void);
/* Prints "byteps COMMAND: text" and where help is found; returns BPS_EXIT_USAGE. */
int bps_cmd_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints "byteps COMMAND: text"; returns BPS_EXIT_FAILURE. */
int bps_cmd_failure(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/*
 * For '?' and ':' of getopt_long with opterr 0 and ':' first in its short options: says which option is
 * unknown or lacks its value; returns BPS_EXIT_USAGE.
 */
int bps_cmd_bad_option(const char *command, int code, char **argv);
/* Returns `status`, or BPS_EXIT_FAILURE with a message if standard output could not be written. */
int bps_cmd_finish(const char *command, int status);

/* That of the PATH: of the virtual environment, if one is active. */
#define BPS_CMD_PYTHON "python3"
/* The path of a file among the Python scripts, which may be absent; freed by the caller. */
char *bps_cmd_find_script(const char *script);
/* Becomes a Python script with these words, up to NULL. Returns only when that fails, with the exit status. */
int bps_cmd_become_script(const char *command, const char *python, const char *script, char *const *words);

/* ---- the options --conf FILE and --set KEY=VALUE ------------------------------------------------------- */

struct bps_cmd_conf {
    const char *file; /* NULL: $BYTEPS_CONF */
    const char **set; /* in the order given; the strings are borrowed */
    size_t nset;
};

#define BPS_CMD_OPT_CONF 0x1000
#define BPS_CMD_OPT_SET  0x1001
/* Rows for the table of getopt_long, and their lines for a help text. */
#define BPS_CMD_CONF_OPTIONS                                                                                           \
    {"conf", required_argument, NULL, BPS_CMD_OPT_CONF},                                                               \
    {                                                                                                                  \
        "set", required_argument, NULL, BPS_CMD_OPT_SET                                                                \
    }
#define BPS_CMD_CONF_HELP                                                                                              \
    "      --conf FILE        read FILE after the system-wide configuration\n"                                         \
    "      --set KEY=VALUE    set one value, such as worker.partition=8MiB; stronger\n"                                \
    "                         than every file\n"

/* Takes the option if it is one of the two. Out of memory ends the program. */
bool bps_cmd_conf_take(struct bps_cmd_conf *conf, int code, const char *value);
/* Adds a string "key=value", which must live as long as `conf`. */
void bps_cmd_conf_set(struct bps_cmd_conf *conf, const char *text);
void bps_cmd_conf_fini(struct bps_cmd_conf *conf);
/* Loads the configuration of a "worker", "server" or "scheduler" (NULL: as configured); prints errors. */
struct bps_conf *bps_cmd_conf_load(const char *command, const struct bps_cmd_conf *conf, const char *role);

/*
 * From now on the log tells of a plugin that does not return after 5 s, or cluster.stall_warning if that is shorter;
 * cluster.stall_timeout ends the process. NULL: nothing does.
 */
void bps_cmd_guard(const struct bps_conf *conf);

/* ---- memory: these print a message and exit when there is none left ------------------------------------ */

void *bps_cmd_alloc(size_t count, size_t size); /* zeroed */
char *bps_cmd_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
