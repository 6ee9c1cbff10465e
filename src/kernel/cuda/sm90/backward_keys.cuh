/* The rows of an item's keys: where they are in device memory, and what a consumer adds to them at the end. */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_KEYS_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_KEYS_CUH

#include "kernel/cuda/tile_cursor.cuh"

template <class S> struct key_sums { float dk[S::WIDTH / 8][4], dv[S::WIDTH / 8][4]; };

/* Rows [first, first + 16) of `to` += by * x, or = that where they are overwritten; a thread has what it has of an
 * accumulator. All of a row is asked for before any of it is written: one after the other, each would wait for the one
 * before. */
template <class S, int TILES>
__device__ __forceinline__ void add_to_rows(const row_source &to, int first, int limit, int width,
                                            const float (&x)[TILES][4], float by, bool overwrite, int lane) {
    bool by_twos = to.aligned && width % 2 == 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = first + r * 8 + lane / 4, d0 = lane % 4 * 2;
        if (row >= limit) continue;
        float *at = (float *)(to.base + row_offset<float>(to, row));
        float2 old[TILES] = {};
        if (by_twos && !overwrite) {
#pragma unroll
            for (int n = 0; n < TILES; n++)
                if (n * 8 + d0 < width) old[n] = __ldcg((const float2 *)(at + n * 8 + d0));
        } else if (!overwrite) {
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                int d = n * 8 + d0;
                if (d < width) old[n].x = __ldcg(at + d * to.dim);
                if (d + 1 < width) old[n].y = __ldcg(at + (d + 1) * to.dim);
            }
        }
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            old[n].x += by * x[n][r * 2];
            old[n].y += by * x[n][r * 2 + 1];
        }
        if (by_twos) {
#pragma unroll
            for (int n = 0; n < TILES; n++)
                if (n * 8 + d0 < width) __stcg((float2 *)(at + n * 8 + d0), old[n]);
        } else {
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                int d = n * 8 + d0;
                if (d < width) __stcg(at + d * to.dim, old[n].x);
                if (d + 1 < width) __stcg(at + (d + 1) * to.dim, old[n].y);
            }
        }
    }
}

#endif
