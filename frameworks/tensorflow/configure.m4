dnl SPDX-License-Identifier: Apache-2.0
dnl The TensorFlow operations need nothing to be built: TensorFlow's symbols are found at run time. They are used by
dnl the Python package.

BPS_PLUGIN([frameworks], [tensorflow], [auto], [TensorFlow operations and Keras package], [
AS_IF([test "$bps_plugin_python" = no],
    [BPS_PLUGIN_MISSING([it is used by the Python extension, which is not built], [python3-dev])],
    [bps_note="for the TensorFlow that is there at run time"])
], [yes|no|auto])
