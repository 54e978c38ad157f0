/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.h - keys that keep a value, for asynchronous training: what a worker pushes is added to it, and the answer is
 * what it is then. Nobody waits for anybody, unless that is asked for.
 *
 * The value is set by a broadcast; the answers to the other workers of that broadcast wait for it. Rounds are each
 * worker's own: their numbers say nothing of those of others. An average divides what is added by the number of
 * workers. An answer is a snapshot of each slice; slices of a partition may know of different pushes.
 *
 * With config.staleness >= 0 (bounded staleness: Ho et al., 2013) an answer waits while a worker that is there is more
 * than so many pushes behind; with 0 all have pushed equally often, as in synchronous training.
 *
 * That is a kind of keys in a shard's engine (sum.h), of tensors with a name, without groups and coding.
 */
#ifndef BPS_SUM_VALUE_H
#define BPS_SUM_VALUE_H

#include "sum/sum.h"

extern const struct bps_key_ops bps_value_ops;

#endif
