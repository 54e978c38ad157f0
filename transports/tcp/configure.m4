dnl SPDX-License-Identifier: Apache-2.0
dnl What the TCP transport needs: nothing but Linux.

BPS_PLUGIN([transports], [tcp], [yes], [transport over TCP])
