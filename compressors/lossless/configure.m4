dnl SPDX-License-Identifier: Apache-2.0
dnl The compressor lossless: a library that codes bytes, zstd or lz4, or both.

# BPS_CODER(NAME, MODULE, VARIABLE)
# ---------------------------------
# Adds --with-NAME=yes|no|auto, and sets bps_NAME to whether the library is used.
AC_DEFUN([BPS_CODER], [
AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1=yes|no|auto], [$1 for the compressor lossless (default: auto)])],
  [], [with_$1=auto])
AS_CASE([$with_$1],
  [yes|no|auto], [],
  [AC_MSG_ERROR([--with-$1=$with_$1: expected yes|no|auto])])
bps_$1=no
AS_IF([test "$with_$1" != no], [PKG_CHECK_MODULES([$3], [$2], [bps_$1=yes], [bps_$1=no])])
AS_IF([test "$with_$1$bps_$1" = yesno], [AC_MSG_ERROR([--with-$1: lib$1 not found.
Install it (on Debian: apt install lib$1-dev) or configure with --without-$1.])])
])

bps_zstd=no bps_lz4=no
BPS_PLUGIN([compressors], [lossless], [auto], [compressor that loses nothing], [
BPS_CODER([zstd], [libzstd >= 1.4], [ZSTD])
BPS_CODER([lz4], [liblz4 >= 1.9], [LZ4])
AS_CASE([$bps_zstd$bps_lz4],
  [yesyes], [bps_note="zstd and lz4"],
  [yesno], [bps_note="zstd"],
  [noyes], [bps_note="lz4"],
  [BPS_PLUGIN_MISSING([neither zstd nor lz4 found], [libzstd-dev])])
])
AM_CONDITIONAL([HAVE_ZSTD], [test "$bps_zstd" = yes])
AM_CONDITIONAL([HAVE_LZ4], [test "$bps_lz4" = yes])
