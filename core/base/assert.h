/* SPDX-License-Identifier: Apache-2.0 */
/* assert.h - what always holds where it stands: checked with --enable-debug and in the simulation. */
#ifndef BPS_BASE_ASSERT_H
#define BPS_BASE_ASSERT_H

#include "config.h"

#if defined BPS_DEBUG || defined BPS_CHECKED
#include <stdio.h>
#include <stdlib.h>
#define bps_assert(condition)                                                                                          \
    ((condition) ? (void)0                                                                                             \
                 : (fprintf(stderr, "%s:%d: this does not hold: %s\n", __FILE__, __LINE__, #condition), abort()))
/* A call that asserts what always holds of something, at the doors of the folder that it belongs to. */
#define bps_check(call) (call)
#else
#define bps_assert(condition) ((void)sizeof(!(condition)))
#define bps_check(call)       ((void)sizeof((call), 0))
#endif

#endif
