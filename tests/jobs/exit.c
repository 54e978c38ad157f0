/* SPDX-License-Identifier: Apache-2.0 */
/* exit.c - a worker that exits with the status of its argument, and whose exit handler leaves the job. */
#include <byteps/byteps.h>
#include <stdio.h>
#include <stdlib.h>

static void leave(void)
{
    struct bps_report report = {""};
    puts(bps_shutdown(&report) == BPS_OK ? "left" : report.text);
}

int main(int arguments, char **argument)
{
    struct bps_report report = {""};
    atexit(leave);
    if (arguments != 2 || bps_init(NULL, &report) != BPS_OK) {
        puts(report.text);
        return 1;
    }
    return atoi(argument[1]);
}
