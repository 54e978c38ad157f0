/* SPDX-License-Identifier: Apache-2.0 */
/* values.h - elements for tests: of any type, the same for the same seed. */
#ifndef BPS_TOOLS_CHECK_VALUES_H
#define BPS_TOOLS_CHECK_VALUES_H

#include <stddef.h>
#include <stdint.h>

/* Ordinary ones are small numbers of both signs; special ones have NaN, infinities, zeros and extremes among them. */
enum bps_check_values { BPS_CHECK_ORDINARY, BPS_CHECK_SPECIAL };
void bps_check_fill(uint32_t dtype, void *memory, size_t count, uint64_t seed, enum bps_check_values values);

/* The next of a sequence of random numbers (splitmix64). */
uint64_t bps_check_random(uint64_t *state);

#endif
