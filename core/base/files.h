/* SPDX-License-Identifier: Apache-2.0 */
/* files.h - how many files a process may have open, each connection among them; and what the kernel tells in one. */
#ifndef BPS_BASE_FILES_H
#define BPS_BASE_FILES_H

#include <stddef.h>
#include <stdint.h>

#include <byteps/plugin.h> /* struct bps_report */

/*
 * The process is going to have so many open, beside a few. If that is more than its limit, it gets as many as the
 * administrator allows; BPS_ERR_IO, with what to do: those are not enough.
 */
bps_status bps_files_expect(uint64_t count, struct bps_report *report);
/* The first line of a file, with its end, cut if it is too long; "": there is none. */
void bps_first_line(const char *path, char *text, size_t n);

#endif
