/* What a thread of a consumer warpgroup does with its query rows besides products: mask, softmax, epilogue.
 *
 * Row r (0 or 1) of a thread is row 16 (warp % 4) + 8 r + lane / 4 of its warpgroup's 64; of every 8 columns it has the
 * two from 2 (lane % 4) on, as x[n][2 r], x[n][2 r + 1].
 */
#ifndef RA_KERNEL_CUDA_SM90_FORWARD_CONSUMER_CUH
#define RA_KERNEL_CUDA_SM90_FORWARD_CONSUMER_CUH

#include "kernel/cuda/sm90/forward_rows.cuh"
#include "kernel/cuda/sm90/forward_tma_layout.cuh"

/* ---- prologue -------------------------------------------------------------------------------------------------------
 */

/* o = the row's, one element after the other by steps that the compiler does not compute ahead: registers are short. */
template <class S>
__device__ __forceinline__ void read_outputs(const gpu_forward &args, const row_place &row, int r, output_block<S> &o) {
    int quad = (int)threadIdx.x % 4 * 2, width = args.problem.dim_v;
    const float *from = row.o + quad * args.o.dim;
    if (comes_in_pairs(args, row)) {
#pragma unroll
        for (int n = 0; n < S::DIM / 8; n++)
            if (n * 8 + quad < width) {
                float2 x = *(const float2 *)(from + n * 8);
                o[n][r * 2] = x.x;
                o[n][r * 2 + 1] = x.y;
            }
        return;
    }
#pragma unroll
    for (int n = 0; n < S::DIM / 8; n++) {
        if (n * 8 + quad < width) o[n][r * 2] = *from;
        if (n * 8 + quad + 1 < width) o[n][r * 2 + 1] = from[args.o.dim];
        from = keep_pointer(from + 8 * args.o.dim);
    }
}

/* The state that the rows start from: m, l, and, in begin_state, o. A row that has seen nothing has o = 0, whatever is
 * in memory. */
__device__ __forceinline__ void begin_sums(const gpu_forward &args, const unit_place &unit, row_sums &rows) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        row_place row = place_in_state(args, unit, row_in_unit() + r * 8);
        rows.m[r] = row.a < unit.a1 ? ((const float *)args.m)[row.at] : -INFINITY;
        rows.l[r] = row.a < unit.a1 && threadIdx.x % 4 == 0 ? ((const float *)args.l)[row.at] : 0;
    }
}

template <class S>
__device__ __forceinline__ void begin_state(const gpu_forward &args, const unit_place &unit, const row_sums &rows,
                                            output_block<S> &o) {
#pragma unroll
    for (int n = 0; n < S::DIM / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[n][e] = 0;
#pragma unroll
    for (int r = 0; r < 2; r++)
        if (rows.m[r] != -INFINITY) read_outputs<S>(args, place_in_state(args, unit, row_in_unit() + r * 8), r, o);
}

/* ---- mask -----------------------------------------------------------------------------------------------------------
 */

/* Pairs that are not visible get a score of -inf. */
template <class S> __device__ __forceinline__ void mask_block(const key_block &keys, score_block<S> &s) {
    int quad = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = row_in_unit() + r * 8, from = row + keys.lo - quad, to = min(row + keys.hi, keys.count) - quad;
#pragma unroll
        for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (n * 8 + e < from || n * 8 + e >= to) s[n][r * 2 + e] = -INFINITY;
    }
}

/* ---- epilogue -------------------------------------------------------------------------------------------------------
 */

/* A barrier of a warpgroup that says whether one of its threads said so. */
__device__ __forceinline__ bool warpgroup_any(int id, bool mine) {
    int any;
    asm volatile(
        "{\n.reg .pred p, q;\nsetp.ne.b32 p, %2, 0;\nbar.red.or.pred q, %1, 128, p;\nselp.b32 %0, 1, 0, q;\n}\n"
        : "=r"(any)
        : "r"(id), "r"((int)mine)
        : "memory");
    return any != 0;
}

/* Whether a row of this thread's ends with an infinity or a NaN: 0 times it is no number. */
template <class S> __device__ __forceinline__ bool ends_odd(const unit_place &unit, const output_block<S> &o) {
    bool odd = false;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = 0;
#pragma unroll
        for (int n = 0; n < S::DIM / 8; n++) sum = fmaf(o[n][r * 2], 0, fmaf(o[n][r * 2 + 1], 0, sum));
        odd |= sum != 0 && unit.a0 + row_in_unit() + r * 8 < unit.a1;
    }
    return odd;
}

/* An infinity or a NaN in V becomes a NaN in rows that do not see it, 0 times it being no number. So rows that end with
 * one are left as they were, and are put on the list of those that are done again by a kernel that looks after that. */
template <class S>
__device__ __forceinline__ void finish_rows(const gpu_forward &args, const unit_place &unit, unsigned number, int group,
                                            const row_sums &rows, const output_block<S> &o) {
    if (!warpgroup_any(5 + group, ends_odd<S>(unit, o))) {
        write_state<S>(args, unit, rows, o);
    } else if (threadIdx.x % 128 == 0) {
        unsigned at = atomicAdd(args.ticket + 2, 1u);
        args.ticket[3 + at] = number * REDO_PIECES + (unsigned)group;
    }
}

#endif
