# SPDX-License-Identifier: Apache-2.0
# The one macro by which every plugin enters the build.

# BPS_PLUGIN(FOLDER, NAME, DEFAULT, SUMMARY, [CHECKS], [MODES])
# -------------------------------------------------------------
# Adds --enable-NAME=MODES (yes|no|auto|builtin unless given) for the plugin in FOLDER/NAME.
# CHECKS runs unless the plugin is switched off. It calls BPS_PLUGIN_MISSING for what it does not find, and may set
# bps_note to a few words for the closing table. Afterwards:
#   - the conditional PLUGIN_NAME is true if the plugin is built as a module,
#   - the conditional BUILTIN_NAME is true if it is linked into libbyteps,
#   - bps_plugin_NAME is yes, no or builtin.
AC_DEFUN([BPS_PLUGIN], [
m4_pushdef([bps_modes], m4_default([$6], [yes|no|auto|builtin]))dnl
AC_ARG_ENABLE([$2],
  [AS_HELP_STRING([--enable-$2=]bps_modes, [$4 (default: $3)])],
  [bps_want=$enableval], [bps_want=$3])
AS_CASE([$bps_want],
  [bps_modes], [],
  [AC_MSG_ERROR([--enable-$2=$bps_want: expected bps_modes])])
bps_missing= bps_package= bps_note=
AS_IF([test "$bps_want" != no], [$5
])
AS_IF([test "$bps_want" = no],
    [bps_plugin_$2=no; bps_note="switched off"],
  [test -z "$bps_missing"],
    [AS_IF([test "$bps_want" = auto], [bps_plugin_$2=yes], [bps_plugin_$2=$bps_want])],
  [test "$bps_want" = auto],
    [bps_plugin_$2=no; bps_note="$bps_missing (on Debian: apt install $bps_package)"],
  [AC_MSG_ERROR([--enable-$2=$bps_want: $bps_missing.
Install it (on Debian: apt install $bps_package) or configure with --disable-$2.])])
AM_CONDITIONAL([PLUGIN_]m4_toupper([$2]), [test "$bps_plugin_$2" = yes])
AM_CONDITIONAL([BUILTIN_]m4_toupper([$2]), [test "$bps_plugin_$2" = builtin])
AS_CASE([$bps_plugin_$2],
  [yes], [bps_plugin_path="$bps_plugin_path $1/$2"],
  [builtin], [BPS_BUILTIN_MODULES="$BPS_BUILTIN_MODULES X(bps_module_[]m4_bpatsubst([$1], [s$])_$2)"])
BPS_SUMMARY_PLUGIN([$1], [$2])
m4_popdef([bps_modes])dnl
])

# BPS_PLUGIN_MISSING(WHAT, DEBIAN-PACKAGE)
# ----------------------------------------
# To be called in the CHECKS of BPS_PLUGIN: the plugin cannot be built. The first one counts.
AC_DEFUN([BPS_PLUGIN_MISSING], [
AS_IF([test -z "$bps_missing"], [bps_missing="$1"; bps_package="$2"])
])
