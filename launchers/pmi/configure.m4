dnl SPDX-License-Identifier: Apache-2.0
dnl The launcher pmi: nothing is needed.

BPS_PLUGIN([launchers], [pmi], [yes], [launcher plugin for MPICH, by PMI])
