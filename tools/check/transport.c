/* SPDX-License-Identifier: Apache-2.0 */
/* transport.c - what is expected of transports: the tests, and how channels begin. */
#include <string.h>

#include "tools/check/transport_tests.h"

/* ---- query ---- */

static void check_query(struct bps_check *check)
{
    struct bps_side side = bps_side_open(check);
    BPS_ROOMY(bps_transport_attr) said[2];
    const struct bps_transport_attr *attr = &said[0].it, *again = &said[1].it;
    memset(said, 0, sizeof said);
    bps_check_at(check, "query");
    side.ops->query(side.instance->self, &said[0].it);
    side.ops->query(side.instance->self, &said[1].it);
    BPS_CHECK(check, attr->lanes >= 1 && attr->lanes <= 64, "its field `lanes` is %u; allowed are 1 to 64",
              attr->lanes);
    BPS_CHECK(check, attr->device_bytes == 0 || side.ops->attach != NULL,
              "its field `device_bytes` is %u, but it has no attach", attr->device_bytes);
    bool same = attr->lanes == again->lanes && attr->local == again->local && attr->device_bytes == again->device_bytes;
    BPS_CHECK(check, same, "it does not return the same each time");
    bps_side_close(&side);
}

const struct bps_check_test bps_check_transport[] = {
    {"query", check_query, 0},
    {"listen", bps_check_transport_listen, 0},
    {"dial: nobody listens", bps_check_transport_nobody, 0},
    {"dial: refused", bps_check_transport_refused, 0},
    {"dial: dropped and finished at once", bps_check_transport_early, 0},
    {"frames: all sizes", bps_check_transport_sizes, 2},
    {"frames: many channels", bps_check_transport_many, 2},
    {"frames: with a key", bps_check_transport_key, 0},
    {"sinks: placed and taken", bps_check_transport_sinks, 0},
    {"sinks: loans, places and regions", bps_check_transport_loans, 0},
    {"finish: what is left is sent", bps_check_transport_left, 0},
    {"drop from within each callback", bps_check_transport_drop, 2},
    {"finish from within each callback", bps_check_transport_finish, 2},
    {"kick from within each callback", bps_check_transport_kick, 2},
    {"header: refused by the core", bps_check_transport_header, 0},
    {"strangers", bps_check_transport_strangers, 2},
    {"two processes: frames", bps_check_transport_processes, 2},
    {"two processes: killed", bps_check_transport_killed, 2},
    {"two processes: stopped", bps_check_transport_stopped, 2},
    {"random operations", bps_check_transport_random, 2},
    {"channels: nothing is left behind", bps_check_transport_rounds, 2},
    {"channels: a hundred at once", bps_check_transport_hundred, 2},
    {NULL, NULL, 0},
};
