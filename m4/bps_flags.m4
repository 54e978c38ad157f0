# SPDX-License-Identifier: Apache-2.0
# Compiler and linker flags, and the switches that change them. They are kept apart from the user's CFLAGS.

# BPS_CFLAG(FLAG, [VARIABLE = BPS_CFLAGS])
# ----------------------------------------
# Appends FLAG to VARIABLE if the compiler knows it.
AC_DEFUN([BPS_CFLAG], [
AS_VAR_PUSHDEF([bps_cache], [bps_cv_cflag_$1])dnl
AC_CACHE_CHECK([whether $CC accepts $1], [bps_cache],
  [bps_save_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS -Werror $1"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM], [AS_VAR_SET([bps_cache], [yes])], [AS_VAR_SET([bps_cache], [no])])
  CFLAGS=$bps_save_CFLAGS])
AS_VAR_IF([bps_cache], [yes], [AS_VAR_APPEND([m4_default([$2], [BPS_CFLAGS])], [" $1"])])
AS_VAR_POPDEF([bps_cache])dnl
])

# BPS_WARNINGS
# ------------
# The dialect, the warnings under which all code is clean, and hidden symbols.
AC_DEFUN([BPS_WARNINGS], [
AC_SUBST([BPS_CFLAGS])
BPS_CFLAGS="-std=gnu11 -pthread"
m4_foreach_w([bps_flag],
  [-Wall -Wextra -Wshadow -Wmissing-prototypes -fvisibility=hidden -fno-semantic-interposition],
  [BPS_CFLAG(m4_defn([bps_flag]))])
])

# BPS_WERROR
# ----------
AC_DEFUN([BPS_WERROR], [
AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [treat warnings as errors (default: no)])],
  [], [enable_werror=no])
AS_IF([test "$enable_werror" = yes], [BPS_CFLAGS="$BPS_CFLAGS -Werror"])
])

# BPS_SANITIZER
# -------------
# The flags, and in BPS_PRELOAD the run-time library that an interpreter needs before it loads our modules. clang has
# it as a shared library only on demand, and then libFuzzer does not work.
AC_DEFUN([BPS_SANITIZER], [
AC_ARG_ENABLE([sanitizer],
  [AS_HELP_STRING([--enable-sanitizer=LIST], [compile with sanitizers: address,undefined or thread (default: no)])],
  [], [enable_sanitizer=no])
AS_CASE([$enable_sanitizer],
  [no], [],
  [address|undefined|address,undefined|undefined,address|thread],
    [BPS_SANITIZER_FLAGS],
  [AC_MSG_ERROR([--enable-sanitizer=$enable_sanitizer: expected address, undefined, address,undefined or thread])])
AC_SUBST([enable_sanitizer])
AC_SUBST([BPS_PRELOAD])
AM_CONDITIONAL([SANITIZER], [test "$enable_sanitizer" != no])
AM_CONDITIONAL([THREAD_SANITIZER], [test "$enable_sanitizer" = thread])
])

AC_DEFUN([BPS_SANITIZER_FLAGS], [
bps_flags="-fsanitize=$enable_sanitizer -fno-sanitize-recover=all"
bps_runtime=
AS_CASE([$enable_sanitizer],
  [*address*], [bps_runtime=asan],
  [thread], [bps_runtime=tsan])
bps_is_clang=no
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#ifndef __clang__
#error
#endif]])], [bps_is_clang=yes])
AS_IF([test "$bps_is_clang" = no],
    [bps_library=$($CC -print-file-name=lib$bps_runtime.so)],
  [test "$bps_runtime" = asan && test "$enable_fuzzer" != yes],
    [bps_library=$($CC -print-file-name=libclang_rt.asan-$host_cpu.so)
    bps_flags="$bps_flags -shared-libsan"
    LDFLAGS="$LDFLAGS -Wl,-rpath,$(dirname "$bps_library")"],
  [bps_library=])
AC_MSG_CHECKING([whether $CC can link with $bps_flags])
bps_save_CFLAGS=$CFLAGS
CFLAGS="$CFLAGS $bps_flags"
AC_LINK_IFELSE([AC_LANG_PROGRAM], [AC_MSG_RESULT([yes])],
  [AC_MSG_RESULT([no])
  AC_MSG_ERROR([--enable-sanitizer=$enable_sanitizer: $CC cannot link with $bps_flags])])
CFLAGS=$bps_save_CFLAGS
BPS_CFLAGS="$BPS_CFLAGS $bps_flags -fno-omit-frame-pointer"
# PyTorch throws C++ exceptions, and the run-time library looks for libstdc++ only when it starts.
AS_IF([test -n "$bps_runtime" && test -f "$bps_library"],
  [BPS_PRELOAD=$bps_library:$($CC -print-file-name=libstdc++.so.6)])
])

# BPS_ENABLE_DEBUG
# ----------------
# After BPS_SANITIZER, since a build with a sanitizer is one that looks at itself.
AC_DEFUN([BPS_ENABLE_DEBUG], [
AC_ARG_ENABLE([debug],
  [AS_HELP_STRING([--enable-debug], [check the core's own rules while it runs (default: with --enable-sanitizer)])],
  [], [AS_IF([test "$enable_sanitizer" = no], [enable_debug=no], [enable_debug=yes])])
AS_IF([test "$enable_debug" = yes],
  [AC_DEFINE([BPS_DEBUG], [1], [Define to 1 to check the core's own rules while it runs.])])
])

# BPS_COVERAGE
# ------------
AC_DEFUN([BPS_COVERAGE], [
AC_ARG_ENABLE([coverage], [AS_HELP_STRING([--enable-coverage], [count executed lines for gcov (default: no)])],
  [], [enable_coverage=no])
AS_IF([test "$enable_coverage" = yes], [BPS_CFLAGS="$BPS_CFLAGS --coverage -fprofile-update=atomic"])
])

# BPS_FUZZER
# ----------
# With it the fuzz targets are libFuzzer programs; without it they only replay files.
AC_DEFUN([BPS_FUZZER], [
AC_ARG_ENABLE([fuzzer], [AS_HELP_STRING([--enable-fuzzer], [build the fuzz targets with libFuzzer; needs clang
                                        (default: no)])],
  [], [enable_fuzzer=no])
AS_IF([test "$enable_fuzzer" = yes], [
  BPS_CFLAG([-fsanitize=fuzzer-no-link])
  AS_IF([test "$bps_cv_cflag__fsanitize_fuzzer_no_link" != yes],
    [AC_MSG_ERROR([--enable-fuzzer: $CC has no libFuzzer; use CC=clang (on Debian: apt install clang)])])])
AM_CONDITIONAL([FUZZER], [test "$enable_fuzzer" = yes])
])

# BPS_LINK_FLAGS
# --------------
# BPS_DEFS_LDFLAGS: a library must find every symbol it uses when it is linked. A sanitizer's symbols come later.
AC_DEFUN([BPS_LINK_FLAGS], [
AC_SUBST([BPS_DEFS_LDFLAGS])
AS_IF([test "$enable_sanitizer" = no && test "$enable_fuzzer" = no], [BPS_DEFS_LDFLAGS="-Wl,-z,defs"])
])
