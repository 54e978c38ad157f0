dnl SPDX-License-Identifier: Apache-2.0
dnl The compressor cast: nothing is needed; there are kernels for every instruction set that the compiler knows.

BPS_PLUGIN([compressors], [cast], [yes], [compressor to floating point of 16 or 8 bits])
