/* SPDX-License-Identifier: Apache-2.0 */
/* at_exit.h - a process that ends without having left its job: its loops stand still before anything is freed. */
#ifndef BPS_WORKER_AT_EXIT_H
#define BPS_WORKER_AT_EXIT_H

/*
 * Has loops stand still when the process exits, before OpenSSL and whatever was there before frees what their threads
 * use. Connections stay open until the process is gone, so that its exit status is known first. Any thread.
 */
void bps_halt_loops_at_exit(void);

/* They go on, for an exit handler that leaves the job after all. Any thread. */
void bps_resume_loops(void);

#endif
