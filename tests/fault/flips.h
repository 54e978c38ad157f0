/* SPDX-License-Identifier: Apache-2.0 */
/* flips.h - a network that changes bits, see flips.c. */
#ifndef FLIPS_H
#define FLIPS_H

/* From now on so many frames of a type that this process sends arrive changed, from number `first` on, from 1. */
void flip_frames(unsigned type, unsigned first, unsigned count);

#endif
