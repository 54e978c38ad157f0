/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speed.c - what a channel has delivered, and how fast its port is, as the device says. Only payloads that the peer
 * reads count: small ones say nothing of a rate.
 */
#include <stdio.h>
#include <unistd.h>

#include "verbs.h"

bool verbs_delivered(struct bps_channel *channel, uint64_t *bytes, uint64_t *busy)
{
    const struct verbs_outgoing *out = &channel->out;
    *bytes = out->read;
    *busy = out->waited + (out->in_flight > 0 ? channel->verbs->host->now() - out->since : 0);
    return true;
}

/* Devices in software stand on one of the network, and have a speed that means nothing. */
static bool is_hardware(const struct ibv_device *device)
{
    char path[IBV_SYSFS_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/device", device->ibdev_path);
    return access(path, F_OK) == 0;
}

/* As the InfiniBand architecture counts, Mbit/s of one lane. */
static uint32_t speed_of_lane(uint8_t code)
{
    static const struct {
        uint8_t code;
        uint32_t speed;
    } speeds[] = {{1, 2500}, {2, 5000}, {4, 10000}, {8, 10000}, {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}};
    for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++) {
        if (speeds[i].code == code) {
            return speeds[i].speed;
        }
    }
    return 0;
}

static uint32_t lanes(uint8_t code)
{
    return code == 1 ? 1 : code == 2 ? 4 : code == 4 ? 8 : code == 8 ? 12 : code == 16 ? 2 : 0;
}

uint32_t verbs_speed(struct bps_channel *channel)
{
    struct ibv_port_attr port;
    if (channel->id == NULL || channel->id->verbs == NULL || !is_hardware(channel->id->verbs->device) ||
        ibv_query_port(channel->id->verbs, channel->id->port_num, &port) != 0) {
        return 0;
    }
    return speed_of_lane(port.active_speed) * lanes(port.active_width);
}
