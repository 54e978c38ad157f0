dnl SPDX-License-Identifier: Apache-2.0
dnl The handlers for XLA need nothing to be built: XLA gives them its functions in each call. They are used by the
dnl Python package.

BPS_PLUGIN([frameworks], [jax], [auto], [JAX operations], [
AS_IF([test "$bps_plugin_python" = no],
    [BPS_PLUGIN_MISSING([it is used by the Python extension, which is not built], [python3-dev])],
    [bps_note="for the JAX that is there at run time"])
], [yes|no|auto])
