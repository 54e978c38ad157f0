dnl SPDX-License-Identifier: Apache-2.0
dnl The compressor randomk: nothing is needed.

BPS_PLUGIN([compressors], [randomk], [yes], [compressor to elements that are drawn])
