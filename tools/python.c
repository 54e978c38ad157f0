/* SPDX-License-Identifier: Apache-2.0 */
/* python.c - `byteps python`: where the package byteps is, and a Python that is to find it. */
#include <getopt.h>
#include <stdio.h>
#include <unistd.h>

#include "base/place.h"
#include "tools/cmd.h"

#define NAME "python"

/* clang-format off */
static const char help_text[] =
    "Usage: byteps python --path\n"
    "       byteps python --install | --remove [PYTHON]\n"
    "\n"
    "Lets `import byteps` work in a Python, such as that of a virtual environment.\n"
    "PYTHON is the interpreter (default: the python3 of the PATH).\n"
    "\n"
    "      --path             print the folder that has the package and nothing else\n"
    "      --install          write byteps.pth where PYTHON looks for packages\n"
    "      --remove           remove it\n"
    "      --help             print this\n";
/* clang-format on */

static const struct option options[] = {
    {"path", no_argument, NULL, 'p'},
    {"install", no_argument, NULL, 'i'},
    {"remove", no_argument, NULL, 'r'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static int tell(const char *what, const char *python)
{
    char *const words[] = {(char *)what, (char *)bps_place(BPS_PLACE_PYTHON), NULL};
    return bps_cmd_become_script(NAME, python, "python_path.py", words);
}

static int act(int what, const char *python)
{
    const char *folder = bps_place(BPS_PLACE_PYTHON);
    if (what == 'r') {
        return tell("remove", python);
    }
    if (access(folder, R_OK) != 0) {
        return bps_cmd_failure(
            NAME, "there is no package in %s: this BytePS belongs to one Python, or has no part for it", folder);
    }
    if (what == 'i') {
        return tell("add", python);
    }
    puts(folder);
    return bps_cmd_finish(NAME, 0);
}

int bps_cmd_python(int argc, char **argv)
{
    int code, what = 0;
    opterr = 0;
    while ((code = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (code == 'h') {
            fputs(help_text, stdout);
            return bps_cmd_finish(NAME, 0);
        }
        if (code == ':' || code == '?') {
            return bps_cmd_bad_option(NAME, code, argv);
        }
        if (what != 0 && what != code) {
            return bps_cmd_usage(NAME, "expected only one of --path, --install and --remove");
        }
        what = code;
    }
    if (what == 0) {
        return bps_cmd_usage(NAME, "expected --path, --install or --remove");
    }
    if (optind + (what != 'p') < argc) {
        return bps_cmd_usage(NAME, "unexpected argument '%s'", argv[argc - 1]);
    }
    return act(what, optind < argc ? argv[optind] : BPS_CMD_PYTHON);
}
