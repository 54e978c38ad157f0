/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agreement.h - whether a member has the configuration of the job, and runs the same code, as far as all members must.
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
/*
 * Compares two texts of bps_loaded_text(): what stands in both must be of one version and format. BPS_ERR_REFUSED names
 * the first that is not, with both values and both files.
 */
bps_status bps_agreement_loaded(const char *ours, const char *our_host, const char *theirs, const char *their_host,
                                struct bps_report *report);

#endif
