dnl SPDX-License-Identifier: Apache-2.0
dnl The launcher tcp_store: nothing is needed.

BPS_PLUGIN([launchers], [tcp_store], [yes], [launcher plugin for torchrun])
