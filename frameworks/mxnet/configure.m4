dnl SPDX-License-Identifier: Apache-2.0
dnl The operations for MXNet need nothing to be built: its symbols are found at run time. They are used by the
dnl Python package.

BPS_PLUGIN([frameworks], [mxnet], [auto], [MXNet operations], [
AS_IF([test "$bps_plugin_python" = no],
    [BPS_PLUGIN_MISSING([it is used by the Python extension, which is not built], [python3-dev])],
    [bps_note="for the MXNet that is there at run time"])
], [yes|no|auto])
