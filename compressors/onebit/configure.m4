dnl SPDX-License-Identifier: Apache-2.0
dnl The compressor onebit: nothing is needed; there are kernels for every instruction set that the compiler knows.

BPS_PLUGIN([compressors], [onebit], [yes], [compressor to one bit an element])
