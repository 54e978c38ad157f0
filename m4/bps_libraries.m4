# SPDX-License-Identifier: Apache-2.0
# What the core, the program and the tests need of the system.

# BPS_REQUIRED(WHAT, DEBIAN-PACKAGE)
# ----------------------------------
AC_DEFUN([BPS_REQUIRED], [
AC_MSG_ERROR([$1 not found, and BytePS cannot be built without it.
Install it (on Debian: apt install $2).])
])

# BPS_LIBRARY(PREFIX, MODULE, DEBIAN-PACKAGE)
# -------------------------------------------
# A required library that pkg-config knows: sets PREFIX_CFLAGS and PREFIX_LIBS.
AC_DEFUN([BPS_LIBRARY], [
PKG_CHECK_MODULES([$1], [$2], [], [BPS_REQUIRED([$2], [$3])])
])

# BPS_HEADER(HEADER, DEBIAN-PACKAGE)
# ----------------------------------
AC_DEFUN([BPS_HEADER], [
AC_CHECK_HEADER([$1], [], [BPS_REQUIRED([$1], [$2])])
])

# BPS_UNIT_TESTS
# --------------
# The library check; without it the unit tests are skipped.
AC_DEFUN([BPS_UNIT_TESTS], [
PKG_CHECK_MODULES([CHECK], [check >= 0.10],
  [bps_check="check $($PKG_CONFIG --modversion check)"],
  [bps_check="no unit tests (check not found; on Debian: apt install check)"])
AM_CONDITIONAL([HAVE_CHECK], [test -n "$CHECK_LIBS"])
])

# BPS_PROG_PYTHON
# ---------------
# PYTHON: for which the extension is built, and which runs the tests unless TEST_PYTHON names another one.
AC_DEFUN([BPS_PROG_PYTHON], [
AC_ARG_VAR([PYTHON], [Python interpreter whose headers the extension is built with])
AC_ARG_VAR([TEST_PYTHON], [Python interpreter that runs the tests (default: PYTHON)])
AC_PATH_PROGS([PYTHON], [python3 python], [])
AS_IF([test -z "$TEST_PYTHON"], [TEST_PYTHON=$PYTHON])
AM_CONDITIONAL([HAVE_TEST_PYTHON], [test -n "$TEST_PYTHON"])
])
