/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpus.h - sets of cores, which are hwloc's bitmaps, as text in the kernel's notation: "0-3,8".
 *
 * A core here is what the kernel calls a CPU: one hardware thread.
 */
#ifndef BPS_BASE_CPUS_H
#define BPS_BASE_CPUS_H

#include <hwloc.h>
#include <stddef.h>

#include <byteps/plugin.h>

#define BPS_CPUS_LIMIT 8192u

/* "0-3,8"; "none" for the empty set; cut if it is too long. */
void bps_cpus_format(hwloc_const_cpuset_t cpus, char *text, size_t n);

/* Several sets in one text, separated by colons: "0-3:4-7". How many they are, 0 for an empty text. */
unsigned bps_cpus_lists(const char *text);
/*
 * The set number `index`, which none of them may leave empty: numbers and ranges separated by commas, blanks
 * allowed around them. The report says what is wrong and what is expected.
 */
bps_status bps_cpus_list(const char *text, unsigned index, hwloc_cpuset_t out, struct bps_report *report);

#endif
