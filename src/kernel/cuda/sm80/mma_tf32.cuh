/* Tensor-core products of f32 elements as tf32: rounded to 11 bits of mantissa, multiplied exactly, summed in f32. As
 * one number, the rest of an element's 24 bits is lost. Split, it is the sum of two such numbers, to within 2^-23 of
 * it:
 *
 *   x = hi + lo     x y ~ hi hi + hi lo + lo hi     what is left out, lo lo, is at most 2^-22
 *
 * Tensor cores cut their sums off where they should round, which adds up in long ones: split products sum a few
 * terms there, and those sums in the FMA units.
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

/* Whether it does, or is one, or is no number. */
__device__ __forceinline__ bool rounds_to_infinity(float x) {
    return (__float_as_uint(x) & 0x7fffffff) >= 0x7f7ff000;
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

/* A [16 MT, 8 NT] from accumulators, k across the rows of the other operand. */
template <int MT, int NT> struct fragment_a_held<float, MT, NT> {
    const float (&held)[MT][NT][4];
    __device__ __forceinline__ fragment_a_held(const float (&x)[MT][NT][4]) : held(x) {
    }
    __device__ __forceinline__ void load(uint32_t (&x)[4], int m, int k) const {
        x[0] = __float_as_uint(held[m][k][0]);
        x[1] = __float_as_uint(held[m][k][2]);
        x[2] = __float_as_uint(held[m][k][1]);
        x[3] = __float_as_uint(held[m][k][3]);
    }
};

/* Rounds the chunks that this thread copied. */
template <int PITCH, int ROWS, int THREADS> __device__ __forceinline__ void round_copied(void *tile) {
    visit_copied<float, PITCH, ROWS, THREADS>(tile, [](uint4 &x) {
        x = make_uint4(round_to_tf32(x.x), round_to_tf32(x.y), round_to_tf32(x.z), round_to_tf32(x.w));
    });
}

/* ---- split into two ---------------------------------------------------------------------------------------------- */

/* What rounds to an infinity, or is one, or is no number, makes a NaN of every product: the sum of hi and lo is none.
 */
struct split_element {
    uint32_t hi[4], lo[4];
    __device__ __forceinline__ void split(const uint32_t (&x)[4]) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            hi[e] = (x[e] + 0x1000) & 0xffffe000;
            lo[e] = __float_as_uint(__uint_as_float(x[e]) - __uint_as_float(hi[e]));
        }
    }
};

/* acc [m] += a [m] . b for a column of blocks, the least first. */
template <int MT, int NT>
__device__ __forceinline__ void add_split(float (&acc)[MT][NT][4], int n, const split_element (&a)[MT],
                                          const split_element &b) {
#pragma unroll
    for (int turn = 0; turn < 3; turn++) {
        const uint32_t(&y)[4] = turn == 1 ? b.lo : b.hi;
#pragma unroll
        for (int m = 0; m < MT; m++) {
            const uint32_t(&x)[4] = turn == 0 ? a[m].lo : a[m].hi;
            element<float>::mma(acc[m][n], x, y[0], y[1]);
            element<float>::mma(acc[m][n + 1], x, y[2], y[3]);
        }
    }
}

/* acc, columns of blocks from n on, += x. */
template <int MT, int NT, int COLUMNS>
__device__ __forceinline__ void add_blocks(float (&acc)[MT][NT][4], int n, const float (&x)[MT][COLUMNS][4]) {
#pragma unroll
    for (int i = 0; i < MT * COLUMNS * 4; i++)
        acc[i / (COLUMNS * 4)][n + i / 4 % COLUMNS][i % 4] += x[i / (COLUMNS * 4)][i / 4 % COLUMNS][i % 4];
}

/* acc += A . B^T for steps [from, from + DEPTH) of k; x and y have the operands of the first of them, and of the one
 * after the last if there is one. */
template <int DEPTH, int MT, int NT, class A, class B>
__device__ __forceinline__ void add_split_steps(float (&acc)[MT][NT][4], const A &a, const B &b, int from, bool last,
                                                uint32_t (&x)[MT][4], uint32_t (&y)[2][4]) {
    static_assert(NT % 2 == 0 && DEPTH * NT / 2 % 2 == 0, "columns come in pairs of 8, and y has its place again");
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        split_element left[MT], right;
#pragma unroll
        for (int m = 0; m < MT; m++) left[m].split(x[m]);
#pragma unroll
        for (int n = 0; n < NT / 2; n++) {
            int at = (k * (NT / 2) + n) % 2;
            if (n + 1 < NT / 2) {
                b.load(y[at ^ 1], n + 1, from + k);
            } else if (k + 1 < DEPTH || !last) {
                b.load(y[at ^ 1], 0, from + k + 1);
#pragma unroll
                for (int m = 0; m < MT; m++) a.load(x[m], m, from + k + 1);
            }
            right.split(y[at]);
            add_split(acc, 2 * n, left, right);
        }
    }
}

/* add_product of sm80/mma.cuh of split elements: a few steps of k have a sum of their own. */
template <int DEPTH, int MT, int NT, class A, class B>
__device__ __forceinline__ void add_split_product(float (&acc)[MT][NT][4], const A &a, const B &b) {
    constexpr int EACH = 4;
    static_assert(DEPTH % EACH == 0, "sums of as many steps");
    uint32_t x[MT][4], y[2][4];
#pragma unroll
    for (int m = 0; m < MT; m++) a.load(x[m], m, 0);
    b.load(y[0], 0, 0);
#pragma unroll
    for (int from = 0; from < DEPTH; from += EACH) {
        float sum[MT][NT][4] = {};
        add_split_steps<EACH>(sum, a, b, from, from + EACH == DEPTH, x, y);
        add_blocks(acc, 0, sum);
    }
}

/* acc += A . B^T with A from registers, of which AT_ONCE steps of k are split at a time. Two columns of acc at a time
 * have sums of their own. */
template <int DEPTH, int AT_ONCE, int MT, int NT, class A, class B>
__device__ __forceinline__ void add_split_held(float (&acc)[MT][NT][4], const A &a, const B &b) {
    static_assert(DEPTH % AT_ONCE == 0 && AT_ONCE % 2 == 0, "steps come in twos");
    uint32_t y[2][4];
    b.load(y[0], 0, 0);
#pragma unroll
    for (int k0 = 0; k0 < DEPTH; k0 += AT_ONCE) {
        split_element left[AT_ONCE][MT];
#pragma unroll
        for (int i = 0; i < AT_ONCE * MT; i++) {
            uint32_t x[4];
            a.load(x, i % MT, k0 + i / MT);
            left[i / MT][i % MT].split(x);
        }
#pragma unroll
        for (int n = 0; n < NT / 2; n++) {
            float sum[MT][2][4] = {};
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                bool last_column = n + 1 == NT / 2, last = last_column && k0 + AT_ONCE == DEPTH;
                split_element right;
                if (k + 1 < AT_ONCE)
                    b.load(y[(k + 1) % 2], n, k0 + k + 1);
                else if (!last)
                    b.load(y[0], last_column ? 0 : n + 1, last_column ? k0 + AT_ONCE : k0);
                right.split(y[k % 2]);
                add_split(sum, 0, left[k], right);
            }
            add_blocks(acc, 2 * n, sum);
        }
    }
}

/* x [16 MT, 8 NT] = A [m0 on, DIM] . B [n0 on, DIM]^T on the FMA units, for what split elements cannot multiply. Seldom
 * needed, and so kept out of the way of the registers: a function of its own, on a copy in local memory. */
template <int DIM, int MT, int NT>
__device__ __noinline__ void multiply_copy_unsplit(float *x, const unsigned char *a, int m0, const unsigned char *b,
                                                   int n0) {
    int lane = (int)threadIdx.x % 32;
#pragma unroll 1
    for (int i = 0; i < MT * NT * 4; i++) {
        int m = m0 + i / (NT * 4) * 16 + i / 2 % 2 * 8 + lane / 4, n = n0 + i / 4 % NT * 8 + lane % 4 * 2 + i % 2;
        float sum = 0;
        for (int d = 0; d < DIM; d++)
            sum = fmaf(*(const float *)(a + chunk_bytes_at<DIM, float>(m, d / 4) + d % 4 * 4),
                       *(const float *)(b + chunk_bytes_at<DIM, float>(n, d / 4) + d % 4 * 4), sum);
        x[i] = sum;
    }
}

template <int DIM, int MT, int NT>
__device__ __forceinline__ void multiply_unsplit(float (&x)[MT][NT][4], const unsigned char *a, int m0,
                                                 const unsigned char *b, int n0) {
    float copy[MT * NT * 4];
    multiply_copy_unsplit<DIM, MT, NT>(copy, a, m0, b, n0);
#pragma unroll
    for (int i = 0; i < MT * NT * 4; i++) x[i / (NT * 4)][i / 4 % NT][i % 4] = copy[i];
}

#endif
