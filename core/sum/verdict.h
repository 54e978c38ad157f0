/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.h - what workers are told about their contributions: who is missing, and who has pushed what. */
#ifndef BPS_SUM_VERDICT_H
#define BPS_SUM_VERDICT_H

#include <stddef.h>
#include <stdint.h>

#define BPS_VERDICT_BYTES 1000u /* room for any verdict */

/* "worker 1", "workers 0, 2 and 3", "workers 0, 1, 2, 3, 4, 5, 6, 7 and 24 more" */
void bps_verdict_ranks(const uint64_t *bits, uint32_t n, char *text, size_t room);

/* What a worker has pushed, in words. */
struct bps_said {
    uint32_t rank;
    char what[400];
};

/* "worker 2 pushed 50 float32, workers 0 and 1 pushed 100 float32": what n of a job's workers have said. */
void bps_verdict_camps(const struct bps_said *said, uint32_t n, uint32_t workers, char *text, size_t room);
/* "worker 1 did not contribute within 3 s (cluster.stall_timeout)" */
void bps_verdict_overdue(const char *missing, uint64_t limit_ns, char *text, size_t n);
/* "has waited 1 s for worker 1" */
void bps_verdict_waiting(const char *missing, uint64_t ns, char *text, size_t n);

#endif
