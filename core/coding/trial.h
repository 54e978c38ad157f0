/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trial.h - whether a coding pays: numbers only; the caller tells the time.
 *
 * Rounds are tried without the coding and with it, and what a byte takes is compared: the time in which partitions
 * are under way, from when they may be sent until their results are there. That has in it all that counts here: the
 * rate of the links, who else fills them, and how fast workers and servers code. Where nothing is under way for most
 * of the time, the network is not what a step waits for, and nothing is coded. From time to time the other way is
 * tried again, so rarely that it takes a small part of the time in all.
 *
 * Time is cut into windows. One says something if all its rounds went the same way, and well, as did those before it.
 */
#ifndef BPS_CODING_TRIAL_H
#define BPS_CODING_TRIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of rounds that went one way: plain, or coded. */
struct bps_trial_mean {
    uint64_t busy, idle; /* ns in which something was under way, and between that */
    uint64_t bytes;
    uint32_t windows;
};

struct bps_trial {
    struct bps_trial_mean mean[2]; /* [true]: coded */
    uint32_t under_way[2];
    uint64_t begin, end;  /* of the window, and of the last one */
    uint64_t bytes;       /* that have ended in it */
    bool spoilt;          /* it says nothing */
    bool last;            /* the way of the last one */
    bool pays;            /* what has been found */
    bool trying;          /* the other way is tried */
    bool judged;          /* something has just been found */
    uint64_t since, next; /* when that began; when it is tried again */
};

/* A round of a partition begins, and ends, well or not. */
void bps_trial_begin(struct bps_trial *trial, bool coded, uint64_t now);
void bps_trial_end(struct bps_trial *trial, bool coded, uint64_t bytes, bool well, uint64_t now);
/* Whether rounds that begin later are to be coded. */
bool bps_trial_codes(const struct bps_trial *trial);
/* Writes what has been found, once for each time. False: nothing new. */
bool bps_trial_tell(struct bps_trial *trial, char *text, size_t n);

#endif
