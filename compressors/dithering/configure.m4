dnl SPDX-License-Identifier: Apache-2.0
dnl The compressor dithering: nothing is needed; there are kernels for every instruction set that the compiler knows.

BPS_PLUGIN([compressors], [dithering], [yes], [compressor to levels by chance])
