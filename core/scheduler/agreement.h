/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agreement.h - whether a member's configuration is that of the job, as far as all members must have the same.
 */
#ifndef BPS_AGREEMENT_H
#define BPS_AGREEMENT_H

#include "base/report.h"

/*
 * Compares two texts of bps_conf_agreement(). BPS_ERR_REFUSED names the first key that differs, with both
 * values and both hosts.
 */
bps_status bps_agreement_compare(const char *ours, const char *our_host, const char *theirs, const char *their_host,
                                 struct bps_report *report);

#endif
