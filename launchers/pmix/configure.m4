dnl SPDX-License-Identifier: Apache-2.0
dnl The launcher pmix: nothing is needed; the library is found at run time.

BPS_PLUGIN([launchers], [pmix], [yes], [launcher plugin for Open MPI, by PMIx])
