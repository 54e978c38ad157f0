dnl SPDX-License-Identifier: Apache-2.0
dnl What the compressor onebit needs: nothing.

BPS_PLUGIN([compressors], [onebit], [yes], [compressor to one bit an element])
