/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speed.c - how fast the network device of a channel is, as its driver says.
 *
 * Devices that are none have a speed, too, which means nothing: 10 Gbit/s for one end of a pair of virtual ones. Only
 * what stands for hardware counts, and bonds of that.
 */
#include <ifaddrs.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tcp.h"

static bool find_device(const struct sockaddr_storage *address, char *name, size_t n)
{
    struct ifaddrs *list;
    char wanted[BPS_UTIL_ADDRESS_TEXT], own[BPS_UTIL_ADDRESS_TEXT];
    bool found = false;
    if (getifaddrs(&list) != 0) {
        return false;
    }
    bps_util_host_text((const struct sockaddr *)address, wanted, sizeof wanted);
    for (const struct ifaddrs *entry = list; entry != NULL && !found; entry = entry->ifa_next) {
        int family = entry->ifa_addr != NULL ? entry->ifa_addr->sa_family : AF_UNSPEC;
        if (family == address->ss_family && (family == AF_INET || family == AF_INET6)) {
            bps_util_host_text(entry->ifa_addr, own, sizeof own);
            found = strcmp(own, wanted) == 0;
            snprintf(name, n, "%s", entry->ifa_name);
        }
    }
    freeifaddrs(list);
    return found;
}

static bool has(const char *device, const char *what)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/class/net/%.32s/%s", device, what);
    return access(path, F_OK) == 0;
}

uint32_t tcp_speed(struct bps_channel *channel)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    char device[64], path[128];
    int speed = 0; /* -1: the driver does not know */
    if (channel->fd < 0 || getsockname(channel->fd, (struct sockaddr *)&address, &length) != 0 ||
        !find_device(&address, device, sizeof device) || !(has(device, "device") || has(device, "bonding"))) {
        return 0;
    }
    snprintf(path, sizeof path, "/sys/class/net/%.32s/speed", device);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        speed = fscanf(file, "%d", &speed) == 1 ? speed : 0;
        fclose(file);
    }
    return speed > 0 ? (uint32_t)speed : 0;
}
