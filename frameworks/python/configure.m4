dnl SPDX-License-Identifier: Apache-2.0
dnl The Python extension needs an interpreter from 3.8 and its headers. It uses the limited API, so that one file
dnl serves every later Python as well. The package is installed where PYTHON looks, if that is below the prefix; else
dnl in a folder of its own, to which a file byteps.pth shows PYTHON the way.

AC_ARG_WITH([python-dir], [AS_HELP_STRING([--with-python-dir=DIR],
    [install the Python package in DIR (default: where PYTHON looks for packages below the prefix; if nowhere, in
    PREFIX/share/byteps/python, and a byteps.pth where PYTHON looks; no: there, and no byteps.pth)])],
    [], [with_python_dir=auto])

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

bps_prefix=$prefix
AS_IF([test "$bps_prefix" = NONE], [bps_prefix=$ac_default_prefix])
bps_python_pth=no
AS_CASE([$with_python_dir],
  [no], [pythondir='${pkgpythondir}'],
  [/* | '$'*], [pythondir=$with_python_dir],
  [auto], [
    pythondir=
    AS_IF([test "$enable_python" != no], [pythondir=$("$PYTHON" "$srcdir/tools/python_path.py" find "$bps_prefix")])
    AS_IF([test -n "$pythondir"], [pythondir='${prefix}'${pythondir#"$bps_prefix"}],
        [pythondir='${pkgpythondir}' bps_python_pth=yes])],
  [AC_MSG_ERROR([--with-python-dir=$with_python_dir is no absolute path])])
AC_SUBST([pythondir])
AM_CONDITIONAL([PYTHON_PTH], [test "$bps_python_pth" = yes])
