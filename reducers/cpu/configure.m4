dnl SPDX-License-Identifier: Apache-2.0
dnl The CPU reducer: nothing is needed; there are kernels for every instruction set that the compiler knows.

BPS_PLUGIN([reducers], [cpu], [yes], [reducer on the CPU], [bps_note=$bps_isas])
