/* SPDX-License-Identifier: Apache-2.0 */
/* server.c - `byteps server`: the summation service as a process. */
#include "server/server.h"

#include <getopt.h>
#include <stdio.h>
#include <unistd.h>

#include "tools/cmd.h"
#include "tools/role.h"
#include "worker/meet.h"

/* clang-format off */
static const char help_text[] =
    "Usage: byteps server [OPTIONS]\n"
    "\n"
    "Joins the job of cluster.scheduler as a summation server and ends with it.\n"
    "Beside workers that mpirun or srun has started together with it, and with\n"
    "cluster.servers, it finds the scheduler itself.\n"
    "\n" BPS_CMD_CONF_HELP
    "      --join             come into a job that runs, and take a share of its work\n"
    "      --help             print this\n";
/* clang-format on */

static int serve(struct bps_conf *conf, bool comes_in)
{
    struct bps_report report = {""};
    struct bps_hosting *none;
    bps_status status = bps_meet(conf, &none, &report); /* signals end it, as they are not blocked yet */
    if (status == BPS_OK) {
        int stop = bps_role_stop_fd();
        status = bps_server_run(conf, comes_in, stop, &report);
        close(stop);
        bps_meet_end();
    }
    if (status != BPS_OK && report.text[0] != '\0') {
        return bps_cmd_failure("server", "%s", report.text);
    }
    return status == BPS_OK ? 0 : BPS_EXIT_FAILURE;
}

int bps_cmd_server(int argc, char **argv)
{
    static const struct option options[] = {
        BPS_CMD_CONF_OPTIONS,
        {"join", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct bps_cmd_conf request = {0};
    bool comes_in = false;
    int code;
    opterr = 0;
    while ((code = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (bps_cmd_conf_take(&request, code, optarg)) {
            continue;
        }
        if (code == 'j') {
            comes_in = true;
            continue;
        }
        if (code != 'h') {
            return bps_cmd_bad_option("server", code, argv);
        }
        fputs(help_text, stdout);
        return bps_cmd_finish("server", 0);
    }
    if (optind < argc) {
        return bps_cmd_usage("server", "'%s' is not expected", argv[optind]);
    }
    struct bps_conf *conf = bps_role_conf("server", &request);
    bps_cmd_conf_fini(&request);
    if (conf == NULL) {
        return BPS_EXIT_USAGE;
    }
    bps_role_begin(conf, "server");
    int result = serve(conf, comes_in);
    bps_conf_free(conf);
    return result;
}
