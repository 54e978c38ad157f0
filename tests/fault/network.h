/* SPDX-License-Identifier: Apache-2.0 */
/* network.h - a network that changes bits, and one where somebody reads along: see network.c. */
#ifndef NETWORK_H
#define NETWORK_H

#include <stdbool.h>

/* From now on so many frames of a type that this process sends arrive changed, from number `first` on, from 1. */
void flip_frames(unsigned type, unsigned first, unsigned count);
/* From now on all that this process sends is appended to the file. False: there is none. */
bool record_frames(const char *path);

#endif
