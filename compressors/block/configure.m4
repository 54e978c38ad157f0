dnl SPDX-License-Identifier: Apache-2.0
dnl The compressor block: nothing is needed; there are kernels for every instruction set that the compiler knows.

BPS_PLUGIN([compressors], [block], [yes], [compressor to integers with a scale for a block])
