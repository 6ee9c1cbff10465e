/* Tensor-core products of 16-bit elements: fragments from shared memory, m16n8k16, and the packing between them.
 *
 * What a thread holds of a 16 x 8 accumulator, with row = lane / 4 and column = 2 * (lane % 4):
 *   acc[0], acc[1]  (row, column), (row, column + 1)        acc[2], acc[3]  the same, 8 rows below
 */
#ifndef RA_KERNEL_CUDA_SM80_MMA_CUH
#define RA_KERNEL_CUDA_SM80_MMA_CUH

#include "kernel/cuda/async_copy.cuh"
#include "kernel/cuda/score.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

/* Which part of a block of pairs [queries, keys] is whose. */
struct pair_place {
    int row0, key0; /* of this warp in the block */
    int row, key;   /* of this thread's first element, in the warp's part */
};

template <bool TRANSPOSED> __device__ __forceinline__ void load_matrices(uint32_t (&x)[4], uint32_t address) {
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(address)
                     : "memory");
}

template <class T> struct element;

template <> struct element<__nv_bfloat16> {
    static constexpr uint32_t EXPONENT = 0x7f80; /* all ones: not finite */
    static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};\n"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        uint32_t x;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(x) : "f"(high), "f"(low));
        return x;
    }
    static __device__ __forceinline__ float widen(__nv_bfloat16 x) {
        return __bfloat162float(x);
    }
};

template <> struct element<__half> {
    static constexpr uint32_t EXPONENT = 0x7c00;
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 800
    /* Before compute capability 8.0 the depth of a product is 8. */
    static __device__ __forceinline__ void mma_8(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
                     "{%0, %1, %2, %3};\n"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a0), "r"(a1), "r"(b));
    }
    static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        mma_8(c, a[0], a[1], b0);
        mma_8(c, a[2], a[3], b1);
    }
    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        __half2 x = __floats2half2_rn(low, high);
        return *(uint32_t *)&x;
    }
#else
    static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};\n"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        uint32_t x;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(x) : "f"(high), "f"(low));
        return x;
    }
#endif
    static __device__ __forceinline__ float widen(__half x) {
        return __half2float(x);
    }
};

/* Whether one of two neighbours, packed, is an infinity or a NaN. */
template <class T> __device__ __forceinline__ bool either_is_nonfinite(uint32_t x) {
    constexpr uint32_t E = element<T>::EXPONENT;
    return (x & E) == E || (x & E << 16) == E << 16;
}

/* Two neighbours, packed, times the sign of the scale, which is not positive: 0 times what is not finite is NaN. */
template <class T> __device__ __forceinline__ uint32_t with_sign_of(uint32_t x, double scale) {
    constexpr uint32_t E = element<T>::EXPONENT;
    if (scale < 0) return x ^ 0x80008000u;
    return ((x & E) == E ? 0x7fffu : 0) | ((x & E << 16) == E << 16 ? 0x7fff0000u : 0);
}

/* Whether one is not finite: 0 times it is no number. */
template <int MT, int NT> __device__ __forceinline__ bool some_are_nonfinite(const float (&x)[MT][NT][4]) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < MT * NT * 4; i++) sum = fmaf(x[i / (NT * 4)][i / 4 % NT][i % 4], 0, sum);
    return sum != 0;
}

/* x, which the compiler cannot know to be the same as before: what is computed from it is computed where it is used,
 * and not kept, where registers are short. */
__device__ __forceinline__ int value_anew(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

/* The thread's lane, likewise. */
__device__ __forceinline__ int lane_anew(void) {
    return value_anew((int)threadIdx.x & 31);
}

/* Addresses of the fragments of one operand of a product. A tile's rows are PITCH elements, swizzled as in
 * async_copy.cuh; all row offsets below are multiples of 8, so that the row's part in the swizzle is the lane's alone,
 * and those of chunks are even, so that adding them is an exclusive or.
 *
 *   A [m, k]: m along rows, or (ALONG_ROWS false) k along rows          B [n, k]: likewise n, or k */
template <int PITCH, bool ALONG_ROWS> struct fragment_a {
    uint32_t base;
    __device__ __forceinline__ fragment_a(uint32_t tile, int m0, int lane = (int)threadIdx.x & 31) {
        int row = ALONG_ROWS ? m0 + (lane & 15) : (lane & 7) + (lane >> 4 << 3);
        int chunk = ALONG_ROWS ? lane >> 4 : m0 / 8 + (lane >> 3 & 1);
        base = tile + row * PITCH * 2 + ((chunk ^ (lane & swizzle_bits<PITCH * 2>)) << 4);
    }
    /* Rows m0 + 16 m on, k from 16 k on. */
    __device__ __forceinline__ void load(uint32_t (&x)[4], int m, int k) const {
        int row = ALONG_ROWS ? m * 16 : k * 16, chunk = ALONG_ROWS ? k * 2 : m * 2;
        load_matrices<!ALONG_ROWS>(x, (base ^ chunk << 4) + row * PITCH * 2);
    }
};

template <int PITCH, bool ALONG_ROWS> struct fragment_b {
    uint32_t base;
    __device__ __forceinline__ fragment_b(uint32_t tile, int n0, int lane = (int)threadIdx.x & 31) {
        int row = ALONG_ROWS ? n0 + (lane & 7) + (lane >> 4 << 3) : lane & 15;
        int chunk = ALONG_ROWS ? lane >> 3 & 1 : n0 / 8 + (lane >> 4);
        base = tile + row * PITCH * 2 + ((chunk ^ (lane & swizzle_bits<PITCH * 2>)) << 4);
    }
    /* Columns n0 + 16 n on: x[0], x[1] for the first 8 of them, x[2], x[3] for the others. */
    __device__ __forceinline__ void load(uint32_t (&x)[4], int n, int k) const {
        int row = ALONG_ROWS ? n * 16 : k * 16, chunk = ALONG_ROWS ? k * 2 : n * 2;
        load_matrices<!ALONG_ROWS>(x, (base ^ chunk << 4) + row * PITCH * 2);
    }
};

/* A [16 MT, 8 NT] from accumulators, k along their columns. */
template <class T, int MT, int NT> struct fragment_a_held {
    const float (&held)[MT][NT][4];
    __device__ __forceinline__ fragment_a_held(const float (&x)[MT][NT][4]) : held(x) {
    }
    __device__ __forceinline__ void load(uint32_t (&x)[4], int m, int k) const {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = element<T>::pack(held[m][2 * k + i / 2][i % 2 * 2], held[m][2 * k + i / 2][i % 2 * 2 + 1]);
    }
};

/* A [16 MT, 16 DEPTH] that is in registers as it is multiplied. */
template <int MT, int DEPTH> struct fragment_a_packed {
    const uint32_t (&held)[MT][DEPTH][4];
    __device__ __forceinline__ fragment_a_packed(const uint32_t (&x)[MT][DEPTH][4]) : held(x) {
    }
    __device__ __forceinline__ void load(uint32_t (&x)[4], int m, int k) const {
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = held[m][k][i];
    }
};

/* acc [16 MT, 8 NT] += A [16 MT, 16 DEPTH] . B^T. The fragments of the next AHEAD steps are on their way while those at
 * hand are multiplied. */
template <class T, int DEPTH, int AHEAD = 1, int MT, int NT, class A, class B>
__device__ __forceinline__ void add_product(float (&acc)[MT][NT][4], const A &a, const B &b) {
    static_assert(NT % 2 == 0, "columns come in twos of 8");
    constexpr int EACH = NT / 2, STEPS = DEPTH * EACH, RING = AHEAD + 1, A_RING = (EACH - 1 + AHEAD) / EACH + 1;
    uint32_t x[A_RING][MT][4], y[RING][4];
    auto load = [&](int i) {
        if (i >= STEPS) return;
#pragma unroll
        for (int m = 0; m < MT; m++)
            if (i % EACH == 0) a.load(x[i / EACH % A_RING][m], m, i / EACH);
        b.load(y[i % RING], i % EACH, i / EACH);
    };
#pragma unroll
    for (int i = 0; i < AHEAD; i++) load(i);
#pragma unroll
    for (int k = 0; k < DEPTH; k++)
#pragma unroll
        for (int n = 0; n < EACH; n++) {
            int i = k * EACH + n;
            load(i + AHEAD);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                element<T>::mma(acc[m][2 * n], x[k % A_RING][m], y[i % RING][0], y[i % RING][1]);
                element<T>::mma(acc[m][2 * n + 1], x[k % A_RING][m], y[i % RING][2], y[i % RING][3]);
            }
        }
}

/* Two products of the same size at once, whose steps take turns. */
template <class T, int DEPTH, int AHEAD, int MT, int NT, class A, class B, class OTHER_A, class OTHER_B>
__device__ __forceinline__ void add_products(float (&acc)[MT][NT][4], const A &a, const B &b, float (&other)[MT][NT][4],
                                             const OTHER_A &other_a, const OTHER_B &other_b) {
    static_assert(NT % 2 == 0, "columns come in twos of 8");
    constexpr int EACH = NT, STEPS = DEPTH * EACH, RING = AHEAD + 1; /* EACH: steps of k */
    uint32_t x[2][MT][4], z[2][MT][4], y[RING][4];
    auto load = [&](int i) {
        if (i % 2)
            other_b.load(y[i % RING], i % EACH / 2, i / EACH);
        else
            b.load(y[i % RING], i % EACH / 2, i / EACH);
    };
    auto load_a = [&](int k) {
#pragma unroll
        for (int m = 0; m < MT; m++) a.load(x[k % 2][m], m, k), other_a.load(z[k % 2][m], m, k);
    };
    load_a(0);
#pragma unroll
    for (int i = 0; i < AHEAD && i < STEPS; i++) load(i);
#pragma unroll
    for (int k = 0; k < DEPTH; k++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            int i = k * EACH + j, n = j / 2;
            if (i + AHEAD < STEPS) load(i + AHEAD);
            if (j == 0 && k + 1 < DEPTH) load_a(k + 1);
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    element<T>::mma((j % 2 ? other : acc)[m][2 * n + e], (j % 2 ? z : x)[k % 2][m], y[i % RING][2 * e],
                                    y[i % RING][2 * e + 1]);
        }
}

#endif
