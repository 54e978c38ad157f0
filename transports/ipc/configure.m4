dnl SPDX-License-Identifier: Apache-2.0
dnl What the transport over shared memory needs: calls of Linux that C libraries have known since 2018.

BPS_PLUGIN([transports], [ipc], [auto], [transport over shared memory], [
AC_CHECK_FUNCS([memfd_create process_vm_readv], [],
  [BPS_PLUGIN_MISSING([the C library has no $ac_func], [libc6-dev])])
])
