/* SPDX-License-Identifier: Apache-2.0 */
/* container.h - from a member to the struct that holds it. */
#ifndef BPS_BASE_CONTAINER_H
#define BPS_BASE_CONTAINER_H

#include <stddef.h>

#define bps_container(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

#endif
