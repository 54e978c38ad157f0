dnl SPDX-License-Identifier: Apache-2.0
dnl What the transport over RDMA needs: libibverbs and librdmacm of rdma-core.

BPS_PLUGIN([transports], [verbs], [auto], [transport over RDMA], [
PKG_CHECK_MODULES([IBVERBS], [libibverbs], [], [BPS_PLUGIN_MISSING([libibverbs not found], [libibverbs-dev])])
PKG_CHECK_MODULES([RDMACM], [librdmacm], [], [BPS_PLUGIN_MISSING([librdmacm not found], [librdmacm-dev])])
])
