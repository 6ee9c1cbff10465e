/* The rows of an item's keys: where they are in device memory, and what a consumer adds to them at the end. */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_KEYS_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_KEYS_CUH

#include "kernel/cuda/tile_cursor.cuh"

template <class S> struct key_sums { float dk[S::WIDTH / 8][4], dv[S::WIDTH / 8][4]; };

/* The two floats += x, rounded as any sum is: nobody waits for what is there. */
__device__ __forceinline__ void add_there(float *to, float2 x) {
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x.x), "f"(x.y) : "memory");
}

/* Rows [first, first + 16) of `to` += by * x, or = that where they are overwritten; a thread has what it has of an
 * accumulator. Products are rounded before they are added: a sum has the same bits whether they are added to it here or
 * by somebody else afterwards. */
template <class S, int TILES>
__device__ __forceinline__ void add_to_rows(const row_source &to, int first, int limit, int width,
                                            const float (&x)[TILES][4], float by, bool overwrite, int lane) {
    bool by_twos = to.aligned && width % 2 == 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = first + r * 8 + lane / 4, d0 = lane % 4 * 2;
        if (row >= limit) continue;
        float *at = (float *)(to.base + row_offset<float>(to, row));
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            int d = n * 8 + d0;
            float2 more = make_float2(__fmul_rn(by, x[n][r * 2]), __fmul_rn(by, x[n][r * 2 + 1]));
            if (by_twos && d < width) {
                if (overwrite)
                    __stcg((float2 *)(at + d), more);
                else
                    add_there(at + d, more);
            } else if (!by_twos) {
                float *one = at + d * to.dim, *two = one + to.dim;
                if (d < width) __stcg(one, overwrite ? more.x : __fadd_rn(__ldcg(one), more.x));
                if (d + 1 < width) __stcg(two, overwrite ? more.y : __fadd_rn(__ldcg(two), more.y));
            }
        }
    }
}

#endif
