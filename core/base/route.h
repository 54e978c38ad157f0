/* SPDX-License-Identifier: Apache-2.0 */
/* route.h - by which of its own addresses this host reaches another one. Thread-safe. */
#ifndef BPS_BASE_ROUTE_H
#define BPS_BASE_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

/* Any address outside tells which of ours the default route takes. */
#define BPS_ROUTE_OUTSIDE "192.0.2.1"

/*
 * Writes the own address on the way to a name or number, in brackets if IPv6. Nothing is sent, but a name is looked
 * up. `ourselves`: the way ends here. False: it is no known host, or there is no way.
 */
bool bps_route_source(const char *host, char *out, size_t n, bool *ourselves);
/* Whether an address or "HOST:PORT" is one that only processes of this host reach. */
bool bps_route_is_loopback(const char *address);

#endif
