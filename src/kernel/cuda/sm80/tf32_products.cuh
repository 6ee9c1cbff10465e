/* Products of f32 elements on mma.sync, for the kernels of sm80/ (half_products.cuh says what they are): as one
 * number of tf32, or split into two, with the precision of f32.
 *
 * As one number, elements are rounded once where that is possible: Q forward, K and V backward in shared memory; P and
 * dS when they are made; the rest as it is read. Those that are split are split as they are read.
 *
 * P and dS lie as tiles of pairs (mma_tf32.cuh), which serve both as rows (dQ) and as columns (dK, dV).
 */
#ifndef RA_KERNEL_CUDA_TF32_TF32_PRODUCTS_CUH
#define RA_KERNEL_CUDA_TF32_TF32_PRODUCTS_CUH

#include "kernel/cuda/sm80/mma_tf32.cuh"

#include <type_traits>

template <int NUMBERS> struct tf32_products {
    static constexpr bool SPREADS = NUMBERS == 2;

    /* A fragment of a tile that is not rounded yet, as it is multiplied. */
    template <class FRAGMENT> using taken = typename std::conditional<NUMBERS == 1, rounded<FRAGMENT>, FRAGMENT>::type;

    static __device__ __forceinline__ float seen(float x) {
        return NUMBERS == 1 ? element<float>::widen(x) : x;
    }
    /* What rounds to an infinity counts as one, for one number; for two it becomes the largest number that does not. */
    static __device__ __forceinline__ float made_finite(float x) {
        constexpr uint32_t LARGEST = 0x7f7fefff;
        if (!isfinite(seen(x))) return 0;
        return isfinite(element<float>::widen(x)) ? x : copysignf(__uint_as_float(LARGEST), x);
    }

    template <int DEPTH, int MT, int NT, class A, class B>
    static __device__ __forceinline__ void add(float (&acc)[MT][NT][4], const A &a, const B &b) {
        if constexpr (NUMBERS == 1)
            add_product<float, DEPTH>(acc, a, b);
        else
            add_split_product<DEPTH>(acc, a, b);
    }

    /* ---- forward ---- */

    /* The sign of the scale goes into Q, and a scale of 0 makes Q 0, or NaN where it is not finite. */
    template <class S> static __device__ __forceinline__ void prepare_queries(void *q, double scale) {
        float by = scale > 0 ? 1 : scale < 0 ? -1 : 0;
        if (NUMBERS == 2 && scale > 0) return;
        visit_copied<float, S::DIM, S::ROWS, S::THREADS>(q, [=](uint4 &chunk) {
            float *x = (float *)&chunk;
            for (int e = 0; e < 4; e++) x[e] = seen(x[e]) * by;
        });
    }

    template <class S> static __device__ __forceinline__ bool copied_is_nonfinite(void *v) {
        bool nonfinite = false;
        visit_copied<float, S::DIM, S::KEYS, S::THREADS>(v, [&](const uint4 &chunk) {
            const float *x = (const float *)&chunk;
            for (int e = 0; e < 4; e++) nonfinite |= rounds_to_infinity(x[e]);
        });
        return nonfinite;
    }

    template <class S>
    static __device__ __forceinline__ void add_scores(float (&s)[S::MT][S::KEYS / 8][4], const unsigned char *q,
                                                      const unsigned char *k) {
        int row0 = (int)threadIdx.x / 32 * 16 * S::MT;
        fragment_a_along<S::DIM> queries(shared_address(q), row0);
        taken<fragment_b_along<S::DIM>> keys(shared_address(k), 0);
        add<S::DIM / 8>(s, queries, keys);
        if (NUMBERS == 2 && __any_sync(~0u, some_are_nonfinite(s))) multiply_unsplit<S::DIM>(s, q, row0, k, 0);
    }

    template <class S>
    static __device__ __forceinline__ void add_values(float (&o)[S::MT][S::DIM / 8][4],
                                                      const float (&p)[S::MT][S::KEYS / 8][4], const unsigned char *v) {
        using held = fragment_a_held<float, S::MT, S::KEYS / 8>;
        taken<fragment_b_across<S::DIM>> values(shared_address(v), 0);
        if constexpr (NUMBERS == 1)
            add_product<float, S::KEYS / 8>(o, rounded<held>(p), values);
        else
            add_split_held<S::KEYS / 8, (S::DIM > 64 ? 2 : 4)>(o, held(p), values); /* registers are short */
    }

    /* ---- backward ---- */

    template <class S> static __device__ __forceinline__ void prepare_keys(unsigned char *k, unsigned char *v) {
        if (NUMBERS == 2) return;
        copies_wait();
        round_copied<S::DIM, S::KEYS, S::THREADS>(k);
        round_copied<S::DIM, S::KEYS, S::THREADS>(v);
    }

    /* Where elements are split, what an infinity spoils is multiplied anew. */
    template <class S>
    static __device__ __forceinline__ bool add_pairs(float (&x)[S::S_MT][S::S_NT][4], const unsigned char *queries,
                                                     const unsigned char *keys, const pair_place &at) {
        taken<fragment_a_along<S::DIM>> a(shared_address(queries), at.row0);
        fragment_b_along<S::DIM> b(shared_address(keys), at.key0);
        add<S::DIM / 8>(x, a, b);
        if (NUMBERS == 1 || !__any_sync(~0u, some_are_nonfinite(x))) return false;
        multiply_unsplit<S::DIM>(x, queries, at.row0, keys, at.key0);
        return true;
    }

    template <class S>
    static __device__ __forceinline__ void store_pairs(unsigned char *tile, const float (&x)[S::S_MT][S::S_NT][4],
                                                       const pair_place &at) {
#pragma unroll
        for (int r = 0; r < 2 * S::S_MT; r++)
#pragma unroll
            for (int n = 0; n < S::S_NT; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    int row = at.row0 + r / 2 * 16 + r % 2 * 8 + at.row, key = at.key0 + n * 8 + at.key + e;
                    *(float *)(tile + pair_bytes_at<S::KEYS>(row, key)) = seen(x[r / 2][n][r % 2 * 2 + e]);
                }
    }

    template <int KEYS> static __device__ __forceinline__ float pair_at(const unsigned char *tile, int row, int key) {
        return *(const float *)(tile + pair_bytes_at<KEYS>(row, key));
    }

    template <class S, int MT, int NT>
    static __device__ __forceinline__ void add_to_keys(float (&sum)[MT][NT][4], const unsigned char *pairs, int key0,
                                                       const unsigned char *queries, int d0) {
        fragment_a_across<S::KEYS> a(shared_address(pairs), key0);
        taken<fragment_b_across<S::DIM>> b(shared_address(queries), d0);
        add<S::ROWS / 8>(sum, a, b);
    }

    template <class S, int MT, int NT>
    static __device__ __forceinline__ void add_to_queries(float (&sum)[MT][NT][4], const unsigned char *pairs, int row0,
                                                          const unsigned char *keys, int d0) {
        fragment_a_along<S::KEYS> a(shared_address(pairs), row0);
        fragment_b_across<S::DIM> b(shared_address(keys), d0);
        add<S::KEYS / 8>(sum, a, b);
    }
};

#endif
