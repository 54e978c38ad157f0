dnl SPDX-License-Identifier: Apache-2.0
dnl The Python extension needs an interpreter from 3.8 and its headers. It uses the limited API, so that one file
dnl serves every later Python as well.

BPS_PLUGIN([frameworks], [python], [auto], [Python extension, NumPy and PyTorch packages], [
AS_IF([test -z "$PYTHON"],
    [BPS_PLUGIN_MISSING([Python not found], [python3-dev])],
  [! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null],
    [BPS_PLUGIN_MISSING([$PYTHON is older than Python 3.8 or does not run], [python3-dev])],
  [PYTHON_CPPFLAGS=-I$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')
  AC_MSG_CHECKING([for Python.h of $PYTHON])
  bps_save_CPPFLAGS=$CPPFLAGS
  CPPFLAGS="$CPPFLAGS $PYTHON_CPPFLAGS"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#define Py_LIMITED_API 0x03080000
#include <Python.h>]])],
    [AC_MSG_RESULT([$PYTHON_CPPFLAGS])
    bps_note="Python $("$PYTHON" -c 'import platform; print(platform.python_version())'), serves every Python from 3.8"],
    [AC_MSG_RESULT([no])
    BPS_PLUGIN_MISSING([Python.h of $PYTHON not found], [python3-dev])])
  CPPFLAGS=$bps_save_CPPFLAGS])
], [yes|no|auto])
AC_SUBST([PYTHON_CPPFLAGS])
