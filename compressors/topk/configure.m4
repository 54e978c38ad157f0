dnl SPDX-License-Identifier: Apache-2.0
dnl The compressor topk: nothing is needed; there are kernels for every instruction set that the compiler knows.

BPS_PLUGIN([compressors], [topk], [yes], [compressor to the elements of largest magnitude])
