/* Tensor-core products of f32 elements as tf32: rounded to 11 bits of mantissa, multiplied exactly, summed in f32.
 *
 * Tiles are of f32, swizzled as in async_copy.cuh. A chunk of 16 bytes is 4 elements, and m16n8k8 takes k in two halves
 * of 4, so what has k along its rows comes by ldmatrix, as 16-bit elements of twice the pitch would: the fragments of
 * sm80/mma.cuh serve. ldmatrix cannot transpose elements of 32 bits: what has k across its rows comes by plain loads.
 *
 * The order of k is free, as long as A and B have the same. Products along rows take it as it is. Products across rows
 * take it as an accumulator holds it, so that P can go from one product to the next in registers, and so that the rows
 * which a warp's load meets are all even or all odd, which with the two chunks of each are all banks:
 *
 *   lane % 4          0     1     2     3
 *   first half of k   0     2     4     6      of every 8 rows
 *   second half       1     3     5     7
 */
#ifndef RA_KERNEL_CUDA_TF32_MMA_TF32_CUH
#define RA_KERNEL_CUDA_TF32_MMA_TF32_CUH

#include "kernel/cuda/async_copy.cuh"
#include "kernel/cuda/sm80/mma.cuh"

/* Nearest, ties away from 0. Infinities and NaNs stay what they are. */
__device__ __forceinline__ uint32_t round_to_tf32(uint32_t x) {
    uint32_t y;
    asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(y) : "f"(__uint_as_float(x)));
    return y;
}

__device__ __forceinline__ uint32_t load_word(uint32_t address) {
    uint32_t x;
    asm volatile("ld.shared.b32 %0, [%1];\n" : "=r"(x) : "r"(address) : "memory");
    return x;
}

template <> struct element<float> {
    static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};\n"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
    /* What the tensor cores see of x. */
    static __device__ __forceinline__ float widen(float x) {
        return __uint_as_float(round_to_tf32(__float_as_uint(x)));
    }
};

/* An address `chunks` chunks further in its row; even, as in sm80/mma.cuh. Only the lowest 8 have a part in the
 * swizzle: adding the rest leaves few addresses for a loop to keep. */
__device__ __forceinline__ uint32_t chunks_on(uint32_t address, int chunks) {
    return (address ^ (chunks & 7) << 4) + (chunks & ~7) * 16;
}

/* A [m, k] and B [n, k], k along rows of PITCH elements. */
template <int PITCH> struct fragment_a_along : fragment_a<2 * PITCH, true> {
    using fragment_a<2 * PITCH, true>::fragment_a;
    __device__ __forceinline__ void load(uint32_t (&x)[4], int m, int k) const {
        load_matrices<false>(x, chunks_on(this->base, k * 2) + m * 16 * PITCH * 4);
    }
};

template <int PITCH> struct fragment_b_along : fragment_b<2 * PITCH, true> {
    using fragment_b<2 * PITCH, true>::fragment_b;
    __device__ __forceinline__ void load(uint32_t (&x)[4], int n, int k) const {
        load_matrices<false>(x, chunks_on(this->base, k * 2) + n * 16 * PITCH * 4);
    }
};

/* Words of rows 8 k + 2 (lane % 4) and the one after. Columns come in eights, two chunks; `chunk` and `word` say where
 * in them this lane's is. */
template <int PITCH> struct fragment_across {
    uint32_t base;
    __device__ __forceinline__ fragment_across(uint32_t tile, int column0, int chunk, int word) {
        int row = ((int)threadIdx.x & 3) * 2;
        base = tile + row * PITCH * 4 + (((column0 / 4 + chunk) ^ row) << 4) + word * 4;
    }
    /* next: of the row after, whose chunks stand the other way round. */
    __device__ __forceinline__ uint32_t word_at(int column, int k, int next) const {
        return load_word(chunks_on(base ^ next << 4, column / 4) + (k * 8 + next) * PITCH * 4);
    }
};

/* B [n, k], k across rows of PITCH elements. */
template <int PITCH> struct fragment_b_across : fragment_across<PITCH> {
    __device__ __forceinline__ fragment_b_across(uint32_t tile, int n0)
        : fragment_across<PITCH>(tile, n0, (int)threadIdx.x % 32 / 16, (int)threadIdx.x / 4 % 4) {
    }
    __device__ __forceinline__ void load(uint32_t (&x)[4], int n, int k) const {
        x[0] = this->word_at(n * 16, k, 0);
        x[1] = this->word_at(n * 16, k, 1);
        x[2] = this->word_at(n * 16 + 8, k, 0);
        x[3] = this->word_at(n * 16 + 8, k, 1);
    }
};

/* A tile of pairs has its columns in the order of k: of every 8 the even ones in the first chunk, the odd ones in the
 * second. Along its rows it is read as any other. */
template <int PITCH> __device__ __forceinline__ int pair_bytes_at(int row, int column) {
    return chunk_bytes_at<PITCH, float>(row, column / 8 * 2 + column % 2) + column % 8 / 2 * 4;
}

/* A [m, k] from a tile of pairs, k across its rows of PITCH elements. */
template <int PITCH> struct fragment_a_across : fragment_across<PITCH> {
    __device__ __forceinline__ fragment_a_across(uint32_t tile, int m0)
        : fragment_across<PITCH>(tile, m0, (int)threadIdx.x / 4 % 2, (int)threadIdx.x % 32 / 8) {
    }
    __device__ __forceinline__ void load(uint32_t (&x)[4], int m, int k) const {
        x[0] = this->word_at(m * 16, k, 0);
        x[1] = this->word_at(m * 16 + 8, k, 0);
        x[2] = this->word_at(m * 16, k, 1);
        x[3] = this->word_at(m * 16 + 8, k, 1);
    }
};

/* A fragment of a tile whose elements are not rounded yet. */
template <class FRAGMENT> struct rounded : FRAGMENT {
    using FRAGMENT::FRAGMENT;
    __device__ __forceinline__ void load(uint32_t (&x)[4], int i, int k) const {
        FRAGMENT::load(x, i, k);
#pragma unroll
        for (int e = 0; e < 4; e++) x[e] = round_to_tf32(x[e]);
    }
};

/* A [16 MT, 8 DEPTH] from accumulators, k across the rows of the other operand. */
template <int MT, int DEPTH> struct fragment_a_held {
    const float (&held)[MT][DEPTH][4];
    __device__ __forceinline__ void load(uint32_t (&x)[4], int m, int k) const {
        x[0] = round_to_tf32(__float_as_uint(held[m][k][0]));
        x[1] = round_to_tf32(__float_as_uint(held[m][k][2]));
        x[2] = round_to_tf32(__float_as_uint(held[m][k][1]));
        x[3] = round_to_tf32(__float_as_uint(held[m][k][3]));
    }
};

/* Rounds the chunks that this thread copied. */
template <int PITCH, int ROWS, int THREADS> __device__ __forceinline__ void round_copied(void *tile) {
    visit_copied<float, PITCH, ROWS, THREADS>(tile, [](uint4 &x) {
        x = make_uint4(round_to_tf32(x.x), round_to_tf32(x.y), round_to_tf32(x.z), round_to_tf32(x.w));
    });
}

#endif
