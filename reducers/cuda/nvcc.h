/* SPDX-License-Identifier: Apache-2.0 */
/* nvcc.h - what kernels.cu needs of NVIDIA's compiler. The tests have the same for the host's. */
#ifndef CUDA_NVCC_H
#define CUDA_NVCC_H

#include "kernels.h"

#define INLINE static __device__ __forceinline__

/* Its parameters stay where the driver has put them, so that indexing them takes no local memory. */
#define KERNEL(name, blocks)                                                                                           \
    extern "C" __global__ void __launch_bounds__(CUDA_BLOCK_THREADS, blocks)                                           \
        name(const __grid_constant__ struct cuda_reduction reduction)

/* Not unrolled: that takes registers, and the many threads hide what memory takes. */
#define EACH_FURTHER_SOURCE(s, r) _Pragma("unroll 1") for (uint32_t s = 1; s < (r)->n; s++)
#define EACH(i, n)                _Pragma("unroll") for (unsigned i = 0; i < (n); i++)

INLINE float float_of_half(uint16_t bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

/* Rounds to nearest, ties to even. */
INLINE uint16_t half_of_float(float value)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

#endif
