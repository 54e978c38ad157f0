# SPDX-License-Identifier: Apache-2.0
# The closing table of configure, which `byteps info --build` shows again, without what was where during the build.

# BPS_SUMMARY_PLUGIN(FOLDER, NAME)
# --------------------------------
# Appends the row of a plugin.
AC_DEFUN([BPS_SUMMARY_PLUGIN], [
AS_CASE([$bps_plugin_$2], [yes], [bps_how="yes"], [bps_how=$bps_plugin_$2])
bps_row=$(printf '  %-12s %-8s %-8s %s' '$1' '$2' "$bps_how" "$bps_note" | sed 's/ *$//')
bps_plugin_rows="$bps_plugin_rows
$bps_row"
])

# BPS_SUMMARY
# -----------
# Composes the table in bps_table, and writes it as a C string into tools/build_info.h.
AC_DEFUN([BPS_SUMMARY], [
AC_SUBST([BPS_BUILTIN_MODULES])
AC_SUBST([BPS_BUILD_PLUGIN_PATH], ["core/scheduler $bps_plugin_path"])
# Directories as they will be, without the variables that Makefiles still need.
bps_prefix=$prefix bps_exec_prefix=$exec_prefix
AS_IF([test "$bps_prefix" = NONE], [bps_prefix=$ac_default_prefix])
AS_IF([test "$bps_exec_prefix" = NONE], [bps_exec_prefix=$bps_prefix])
bps_expand() {
  (prefix=$bps_prefix; exec_prefix=$bps_exec_prefix; eval "dir=\"$[]1\""; eval "printf %s \"$dir\"")
}
AS_IF([test -n "$TEST_PYTHON"], [bps_test_python=", Python $TEST_PYTHON"], [bps_test_python=", no Python"])
bps_table="$PACKAGE $VERSION configured:
  prefix       $bps_prefix
  plugins      $(bps_expand "$libdir/byteps")
  config       $(bps_expand "$sysconfdir/byteps/byteps.conf")
  compiler     $($CC --version | sed 1q), $CFLAGS
  checks       warnings are errors: $enable_werror, sanitizer: $enable_sanitizer, debug: $enable_debug, coverage: $enable_coverage, fuzzer: $enable_fuzzer
  tests        $bps_check$bps_test_python$bps_plugin_rows"
AC_CONFIG_COMMANDS([tools/build_info.h], [
  AS_MKDIR_P([tools])
  {
    AS_ECHO(["/* Made by configure: what was configured, for byteps info --build. */"])
    AS_ECHO(["#define BPS_BUILD_TABLE \\"])
    AS_ECHO(["$bps_table"]) | sed '/^  tests /d; s/ -f[[a-z]]*-prefix-map=[[^ ]]*//g' |
      sed 's/[[\\"]]/\\&/g; s/.*/    "&\\n" \\/; $s/ \\$//'
  } >tools/build_info.tmp
  AS_IF([cmp -s tools/build_info.tmp tools/build_info.h],
    [rm tools/build_info.tmp], [mv tools/build_info.tmp tools/build_info.h])
], [bps_table='$(AS_ECHO(["$bps_table"]) | sed "s/'/'\\\\''/g")'])
])
