# SPDX-License-Identifier: Apache-2.0
# For which instruction sets kernels can be made.

# BPS_ISA(WORD, FLAGS, STATEMENTS)
# --------------------------------
# Whether the compiler makes code for FLAGS, tried with an intrinsic. Adds WORD to bps_isas.
AC_DEFUN([BPS_ISA], [
AC_CACHE_CHECK([whether $CC can make code for $1], [bps_cv_isa_$1],
  [bps_save_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS $2"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <immintrin.h>]], [[$3]])],
    [bps_cv_isa_$1=yes], [bps_cv_isa_$1=no])
  CFLAGS=$bps_save_CFLAGS])
AS_IF([test "$bps_cv_isa_$1" = yes], [bps_isas="$bps_isas $1"])
])

# BPS_ISAS
# --------
# Sets bps_isas to the words of all that kernels can be made for, and the conditionals HAVE_AVX2, HAVE_AVX512 and
# HAVE_AVX512BF16. The flags stand in the Makefile as well, by which kernels are compiled.
AC_DEFUN([BPS_ISAS], [
bps_isas="baseline"
AS_CASE([$host_cpu], [x86_64], [
  BPS_ISA([avx2], [-mavx2 -mf16c], [__m256 a = _mm256_cvtph_ps(_mm_setzero_si128()); (void)a;])
  BPS_ISA([avx512], [-mavx512f -mavx512bw -mavx512dq -mavx512vl -mf16c],
    [__m512i a = _mm512_setzero_si512(); a = _mm512_add_epi16(a, a); (void)a;])
  BPS_ISA([avx512bf16], [-mavx512f -mavx512bf16],
    [__m256bh a = _mm512_cvtneps_pbh(_mm512_setzero_ps()); (void)a;])
])
AM_CONDITIONAL([HAVE_AVX2], [test "$bps_cv_isa_avx2" = yes])
AM_CONDITIONAL([HAVE_AVX512], [test "$bps_cv_isa_avx512" = yes])
AM_CONDITIONAL([HAVE_AVX512BF16], [test "$bps_cv_isa_avx512bf16" = yes])
])
