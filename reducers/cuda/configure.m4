dnl SPDX-License-Identifier: Apache-2.0
dnl The way to the memory of NVIDIA's GPUs: nothing is needed, since the driver is opened when it is used.
dnl Where there is a header of NVIDIA's, a test compares it with ours.

BPS_PLUGIN([reducers], [cuda], [yes], [tensors in the memory of NVIDIA's GPUs])

AC_CACHE_CHECK([for the folder of cuda.h], [bps_cv_cuda_include],
  [bps_cv_cuda_include=none
  for bps_dir in ${CUDA_HOME:+"$CUDA_HOME/include"} /usr/local/cuda*/include /usr/include; do
    AS_IF([test -f "$bps_dir/cuda.h"], [bps_cv_cuda_include=$bps_dir; break])
  done])
AC_SUBST([CUDA_INCLUDE], [$bps_cv_cuda_include])
AM_CONDITIONAL([HAVE_CUDA_H], [test "$bps_cv_cuda_include" != none])
