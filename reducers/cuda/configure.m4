dnl SPDX-License-Identifier: Apache-2.0
dnl The way to the memory of NVIDIA's GPUs: nothing is needed, since the driver is opened when it is used. With nvcc the
dnl plugin has kernels for them, too. Where there is a header of NVIDIA's, of CUDA or NCCL, a test compares it with
dnl ours.

AC_ARG_WITH([cuda],
  [AS_HELP_STRING([--with-cuda=DIR], [CUDA toolkit, whose bin/nvcc makes the kernels of the reducer cuda; no: none of
    either (default: $CUDA_HOME, nvcc of the PATH or /usr/local/cuda*, if there is one)])],
  [], [with_cuda=auto])
AC_ARG_WITH([cuda-arch],
  [AS_HELP_STRING([--with-cuda-arch=LIST], [architectures that get kernels; newer ones build theirs from the last
    (default: those of 80,90,100 that nvcc knows)])],
  [], [with_cuda_arch=auto])

# BPS_CUDA_FIND
# -------------
# Sets NVCC to a compiler for kernels, if there is one.
AC_DEFUN([BPS_CUDA_FIND], [
AS_CASE([$with_cuda],
  [no], [],
  [yes|auto], [
    for bps_dir in ${CUDA_HOME:+"$CUDA_HOME/bin"} $(AS_ECHO(["$PATH"]) | tr : ' ') /usr/local/cuda*/bin; do
      AS_IF([test -x "$bps_dir/nvcc"], [NVCC=$bps_dir/nvcc; break])
    done
    AS_IF([test "$with_cuda$NVCC" = yes],
      [AC_MSG_ERROR([--with-cuda: there is no nvcc in \$CUDA_HOME/bin, in the PATH or in /usr/local/cuda*/bin.
Install the CUDA toolkit and name its folder with --with-cuda=DIR, or configure with --without-cuda.])])],
  [AS_IF([test -x "$with_cuda/bin/nvcc"], [NVCC=$with_cuda/bin/nvcc],
    [AC_MSG_ERROR([--with-cuda=$with_cuda: there is no bin/nvcc in it.
Name the folder of the CUDA toolkit, such as /usr/local/cuda, or configure with --without-cuda.])])])
])

# BPS_CUDA_ARCHITECTURES
# ----------------------
# Checks the list, and turns it into the options of nvcc.
AC_DEFUN([BPS_CUDA_ARCHITECTURES], [
bps_known=$("$NVCC" --list-gpu-arch | sed -n 's/^compute_//p' | tr '\n' ' ')
AS_IF([test -z "$bps_known"], [AC_MSG_ERROR([$NVCC does not tell its architectures (--list-gpu-arch).
Name another CUDA toolkit with --with-cuda=DIR, or configure with --without-cuda.])])
bps_archs=$with_cuda_arch
AS_IF([test "$with_cuda_arch" = auto], [
  bps_archs=
  for bps_arch in 80 90 100; do
    AS_CASE([" $bps_known"], [*" $bps_arch "*], [bps_archs="$bps_archs $bps_arch"])
  done
])
bps_note="kernels for"
CUDA_ARCH_FLAGS=
for bps_arch in $(AS_ECHO(["$bps_archs"]) | tr , ' '); do
  AS_CASE([" $bps_known"],
    [*" $bps_arch "*], [],
    [AC_MSG_ERROR([--with-cuda-arch=$bps_archs: $NVCC has no architecture $bps_arch.
Expected numbers with commas between them, each one of: $bps_known])])
  CUDA_ARCH_FLAGS="$CUDA_ARCH_FLAGS -gencode arch=compute_$bps_arch,code=sm_$bps_arch"
  bps_note="$bps_note sm_$bps_arch"
done
AS_IF([test -z "$CUDA_ARCH_FLAGS"],
  [AC_MSG_ERROR([--with-cuda-arch=$with_cuda_arch: expected numbers with commas between them, such as 80,90])])
CUDA_ARCH_FLAGS="$CUDA_ARCH_FLAGS -gencode arch=compute_$bps_arch,code=compute_$bps_arch"
bps_note="$bps_note and newer"
])

NVCC=
BPS_PLUGIN([reducers], [cuda], [yes], [tensors in the memory of NVIDIA's GPUs], [
AC_MSG_CHECKING([for nvcc])
BPS_CUDA_FIND
AC_MSG_RESULT([${NVCC:-none}])
AS_IF([test -n "$NVCC"], [BPS_CUDA_ARCHITECTURES],
  [test "$with_cuda_arch" != auto], [AC_MSG_ERROR([--with-cuda-arch=$with_cuda_arch: there is no nvcc.
Name the folder of the CUDA toolkit with --with-cuda=DIR.])],
  [bps_note="no kernels: no nvcc"])
CUDA_KERNELS_TEXT=$bps_note
])
AC_SUBST([NVCC])
AC_SUBST([CUDA_ARCH_FLAGS])
AC_SUBST([CUDA_KERNELS_TEXT])
AM_CONDITIONAL([HAVE_NVCC], [test -n "$NVCC"])

AC_MSG_CHECKING([for the folder of cuda.h])
CUDA_INCLUDE=none
AS_CASE([$with_cuda], [no], [bps_dirs=],
  [yes|auto], [bps_dirs="${CUDA_HOME:+$CUDA_HOME/include} $(echo /usr/local/cuda*/include) /usr/include"],
  [bps_dirs=$with_cuda/include])
for bps_dir in $bps_dirs; do
  AS_IF([test -f "$bps_dir/cuda.h"], [CUDA_INCLUDE=$bps_dir; break])
done
AC_MSG_RESULT([$CUDA_INCLUDE])
AC_SUBST([CUDA_INCLUDE])
AM_CONDITIONAL([HAVE_CUDA_H], [test "$CUDA_INCLUDE" != none])

AC_ARG_WITH([nccl],
  [AS_HELP_STRING([--with-nccl=DIR], [NCCL, whose include/nccl.h is compared with what the reducer cuda declares of it
    (default: it is not)])],
  [], [with_nccl=no])
AS_IF([test "$with_nccl" != no], [
  AS_IF([test ! -f "$with_nccl/include/nccl.h"], [AC_MSG_ERROR([--with-nccl=$with_nccl: there is no include/nccl.h in it.
Name the folder that has it, or configure without this option.])])
  AS_IF([test ! -f "$CUDA_INCLUDE/cuda_runtime.h"], [AC_MSG_ERROR([--with-nccl: nccl.h includes cuda_runtime.h.
Name the folder of the CUDA toolkit with --with-cuda=DIR, or configure without this option.])])
])
AC_SUBST([NCCL_INCLUDE], ["$with_nccl/include"])
AM_CONDITIONAL([HAVE_NCCL_H], [test "$with_nccl" != no])
