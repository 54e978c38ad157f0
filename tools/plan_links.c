/* SPDX-License-Identifier: Apache-2.0 */
/* plan_links.c - the bandwidths of the links of all hosts as one text: "10Gbit", or "8x100Gbit,25Gbit". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/tree.h"
#include "conf/value.h"
#include "tools/cmd.h"
#include "tools/plan.h"

#define HOSTS_LIMIT 65536 /* that one word stands for */

/* One word of the list: "25Gbit", or "8x25Gbit" for eight hosts. */
static bps_status parse_run(const char *word, struct bps_links_run *run)
{
    size_t digits = strspn(word, "0123456789");
    run->hosts = 1;
    if (word[digits] == 'x') {
        char *number = bps_cmd_print("%.*s", (int)digits, word);
        int64_t hosts;
        bps_status status = bps_parse_int(number, &hosts);
        free(number);
        if (status != BPS_OK || hosts < 1 || hosts > HOSTS_LIMIT) {
            return BPS_ERR_INVALID;
        }
        run->hosts = (uint32_t)hosts;
        word += digits + 1;
    }
    return bps_bandwidth_parse(word, &run->bandwidth);
}

bps_status bps_links_parse(const char *text, struct bps_links *out, struct bps_report *report)
{
    char *copy = bps_cmd_print("%s", text), *rest = copy;
    bps_status status = BPS_OK;
    out->runs = 0;
    while (rest != NULL && status == BPS_OK) {
        const char *word = strsep(&rest, ",");
        word += strspn(word, " ");
        if (out->runs == BPS_LINKS_LIMIT) {
            BPS_REPORT(report, "too many bandwidths; expected at most %u, write equal ones as 8x10Gbit",
                       BPS_LINKS_LIMIT);
            status = BPS_ERR_INVALID;
        } else if (parse_run(word, &out->run[out->runs++]) != BPS_OK) {
            bool alone = strchr(text, ',') == NULL;
            BPS_REPORT(report, "%s%snot a bandwidth; expected %s", alone ? "" : bps_shown(word).text,
                       alone ? "" : " is ", bps_bandwidth_expected);
            status = BPS_ERR_INVALID;
        }
    }
    free(copy);
    return status;
}

uint64_t bps_links_hosts(const struct bps_links *links)
{
    uint64_t hosts = 0;
    for (uint32_t i = 0; i < links->runs; i++) {
        hosts += links->run[i].hosts;
    }
    return hosts;
}

double bps_links_bandwidth(const struct bps_links *links, uint32_t host)
{
    uint32_t i = 0;
    while (i + 1 < links->runs && host >= links->run[i].hosts) {
        host -= links->run[i++].hosts;
    }
    return links->run[i].bandwidth;
}
