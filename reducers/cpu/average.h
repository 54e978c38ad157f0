/* SPDX-License-Identifier: Apache-2.0 */
/* average.h - the kernels of averages of integers, for every instruction set. */
#ifndef BPS_CPU_AVERAGE_H
#define BPS_CPU_AVERAGE_H

#include <byteps/reducer.h>

extern const struct bps_kernels bps_cpu_averages[BPS_DTYPES]; /* reduce is NULL where there is none */

#endif
