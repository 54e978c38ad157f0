/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secret.h - the secret of a job, as bytes: only who knows it is let in.
 *
 * Any text of 16 bytes and more, spaces and lines around it apart; its SHA-256 is the key. It comes from the
 * environment or from a file that only its owner can read, never from a command line, which others see.
 */
#ifndef BPS_CONF_SECRET_H
#define BPS_CONF_SECRET_H

#include <stdint.h>

#include <byteps/types.h>

#define BPS_SECRET_BYTES    32u
#define BPS_SECRET_VARIABLE "BYTEPS_SECRET"

/* BPS_ERR_CONF: it is too short, or too long. The report says what is wrong, but never what it is. */
bps_status bps_secret_of_text(const char *text, size_t bytes, uint8_t out[BPS_SECRET_BYTES], struct bps_report *report);
/* The same of a file; BPS_ERR_CONF as well where it cannot be read, or others can. */
bps_status bps_secret_of_file(const char *path, uint8_t out[BPS_SECRET_BYTES], struct bps_report *report);

#endif
