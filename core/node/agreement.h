/* SPDX-License-Identifier: Apache-2.0 */
/* agreement.h - values that must be equal on all members of a job, compared when they join. */
#ifndef BPS_NODE_AGREEMENT_H
#define BPS_NODE_AGREEMENT_H

#include <byteps/types.h>

/*
 * Compares two texts of bps_conf_agreement(). BPS_ERR_REFUSED names the first key that differs, with both
 * values and both hosts.
 */
bps_status bps_agreement_compare(const char *ours, const char *our_host, const char *theirs,
                                 const char *their_host, struct bps_report *report);

#endif
