/* Products of 16-bit elements on mma.sync, as the kernels of this folder want them: a type of static functions, whose
 * tiles are shared memory swizzled as in async_copy.cuh. tf32_products.cuh is the other such type.
 *
 *   forward    S += Q K^T        O += P V            P in registers
 *   backward   S += Q K^T, dP += dO V^T              pairs to shared memory, for
 *              dV += P^T dO, dK += dS^T Q            products along the queries
 *              dQ += dS K                            and along the keys
 */
#ifndef RA_KERNEL_CUDA_SM80_HALF_PRODUCTS_CUH
#define RA_KERNEL_CUDA_SM80_HALF_PRODUCTS_CUH

#include "kernel/cuda/async_copy.cuh"
#include "kernel/cuda/sm80/mma.cuh"

template <class T> struct half_products {
    /* Whether an infinity makes a NaN of whatever it is multiplied by. */
    static constexpr bool SPREADS = false;

    /* What products see of an element; and what is put in its place where that is not finite. */
    static __device__ __forceinline__ float seen(T x) {
        return element<T>::widen(x);
    }
    static __device__ __forceinline__ T made_finite(T x) {
        return isfinite(seen(x)) ? x : (T)0.0f;
    }

    /* ---- forward ---- */

    /* The maximum of the scores is found before they are scaled, which needs a scale above 0: the sign goes into Q, and
     * a scale of 0 makes Q 0, or NaN where it is not finite. Chunks that this thread copied. */
    template <class S> static __device__ __forceinline__ void prepare_queries(void *q, double scale) {
        if (scale > 0) return;
        visit_copied<T, S::PITCH, S::ROWS, S::THREADS>(q, [=](uint4 &x) {
            x = make_uint4(with_sign_of<T>(x.x, scale), with_sign_of<T>(x.y, scale), with_sign_of<T>(x.z, scale),
                           with_sign_of<T>(x.w, scale));
        });
    }

    /* Of the chunks that this thread copied. */
    template <class S> static __device__ __forceinline__ bool copied_is_nonfinite(void *v) {
        bool nonfinite = false;
        visit_copied<T, S::PITCH, S::KEYS, S::THREADS>(v, [&](const uint4 &x) {
            nonfinite |= either_is_nonfinite<T>(x.x) || either_is_nonfinite<T>(x.y) || either_is_nonfinite<T>(x.z) ||
                         either_is_nonfinite<T>(x.w);
        });
        return nonfinite;
    }

    template <class S>
    static __device__ __forceinline__ void add_scores(float (&s)[S::MT][S::KEYS / 8][4], const unsigned char *q,
                                                      const unsigned char *k) {
        fragment_a<S::PITCH, true> queries(shared_address(q), (int)threadIdx.x / 32 * 16 * S::MT);
        fragment_b<S::PITCH, true> keys(shared_address(k), 0);
        add_product<T, S::DIM / 16>(s, queries, keys);
    }

    template <class S>
    static __device__ __forceinline__ void add_values(float (&o)[S::MT][S::DIM / 8][4],
                                                      const float (&p)[S::MT][S::KEYS / 8][4], const unsigned char *v) {
        add_product<T, S::KEYS / 16>(o, fragment_a_held<T, S::MT, S::KEYS / 8>(p),
                                     fragment_b<S::PITCH, false>(shared_address(v), 0));
    }

    /* ---- backward ---- */

    /* K and V are on their way to shared memory. */
    template <class S> static __device__ __forceinline__ void prepare_keys(unsigned char *k, unsigned char *v) {
        (void)k, (void)v;
    }

    /* x += queries . keys^T; returns whether something was found that makes NaNs of what it meets. */
    template <class S>
    static __device__ __forceinline__ bool add_pairs(float (&x)[S::S_MT][S::S_NT][4], const unsigned char *queries,
                                                     const unsigned char *keys, const pair_place &at) {
        fragment_a<S::DIM, true> a(shared_address(queries), at.row0);
        fragment_b<S::DIM, true> b(shared_address(keys), at.key0);
        add_product<T, S::DIM / 16>(x, a, b);
        return false;
    }

    /* tile [ROWS, KEYS] = x. */
    template <class S>
    static __device__ __forceinline__ void store_pairs(unsigned char *tile, const float (&x)[S::S_MT][S::S_NT][4],
                                                       const pair_place &at) {
#pragma unroll
        for (int r = 0; r < 2 * S::S_MT; r++)
#pragma unroll
            for (int n = 0; n < S::S_NT; n++) {
                int row = at.row0 + r / 2 * 16 + r % 2 * 8 + at.row, chunk = at.key0 / 8 + n;
                *(uint32_t *)(tile + chunk_bytes_at<S::KEYS, T>(row, chunk) + at.key * 2) =
                    element<T>::pack(x[r / 2][n][r % 2 * 2], x[r / 2][n][r % 2 * 2 + 1]);
            }
    }

    template <int KEYS> static __device__ __forceinline__ float pair_at(const unsigned char *tile, int row, int key) {
        return seen(*(const T *)(tile + chunk_bytes_at<KEYS, T>(row, key / 8) + key % 8 * 2));
    }

    /* sum [keys from key0 on] += pairs^T . queries, columns from d0 on. */
    template <class S, int MT, int NT>
    static __device__ __forceinline__ void add_to_keys(float (&sum)[MT][NT][4], const unsigned char *pairs, int key0,
                                                       const unsigned char *queries, int d0) {
        fragment_a<S::KEYS, false> a(shared_address(pairs), key0);
        fragment_b<S::DIM, false> b(shared_address(queries), d0);
        add_product<T, S::ROWS / 16>(sum, a, b);
    }

    /* sum [queries from row0 on] += pairs . keys, columns from d0 on. */
    template <class S, int MT, int NT>
    static __device__ __forceinline__ void add_to_queries(float (&sum)[MT][NT][4], const unsigned char *pairs, int row0,
                                                          const unsigned char *keys, int d0) {
        fragment_a<S::KEYS, true> a(shared_address(pairs), row0);
        fragment_b<S::DIM, false> b(shared_address(keys), d0);
        add_product<T, S::KEYS / 16>(sum, a, b);
    }
};

#endif
