/* What becomes of a row of the state when nobody adds to it any more: o / l, and lse. */
#ifndef RA_KERNEL_CUDA_FINISHED_ROWS_CUH
#define RA_KERNEL_CUDA_FINISHED_ROWS_CUH

#include "kernel/cuda/state_rows.cuh"

/* What a row's o is multiplied by, and its lse. */
struct row_end {
    float by, lse;
};

static __device__ __forceinline__ row_end end_of_row(float m, float l, double weight) {
    if (m == -INFINITY) return {0, -INFINITY};
    return {(float)weight / l, m + logf(l)};
}

/* Element 0 of row q of the pass's rows in a view of them. */
template <class T> __device__ __forceinline__ T *query_row(const unit_place &unit, const ra_view &view, int64_t q) {
    return (T *)view.data + unit.b * view.batch + q * view.row + unit.h * view.head;
}

/* One row of a state that is in memory, by a warp. The output may be the state's o: an element is written by the lane
 * that read it. */
template <class OUT>
__device__ __forceinline__ void finish_row(const gpu_forward &args, const unit_place &unit, int row) {
    unit_state state = state_of_unit(args, unit);
    row_place from = state.place(row);
    const ra_view &o = state.rows.state.o, &o_out = state.rows.o_out, &lse_out = state.rows.lse_out;
    int64_t q = state.q_first + from.a * state.q_stride;
    OUT *to = query_row<OUT>(unit, o_out, q);
    row_end end = end_of_row(*from.m, *from.l, args.weight);
    bool none = end.lse == -INFINITY;
    for (int d = (int)threadIdx.x % 32; d < args.problem.dim_v; d += 32)
        to[d * o_out.dim] = (OUT)(none ? 0 : from.o[d * o.dim] * end.by);
    if (lse_out.data && threadIdx.x % 32 == 0) *query_row<float>(unit, lse_out, q) = end.lse;
}

/* The rows of a unit, or of a piece of one, by the CTA that has written their state. T: of outputs that are not f32. */
template <class T> __device__ __forceinline__ void finish_rows(const gpu_forward &args, const unit_place &unit) {
    __syncthreads();
    for (int row = (int)threadIdx.x / 32; unit.a0 + row < unit.a1; row += (int)blockDim.x / 32) {
        if (args.out_is_f32)
            finish_row<float>(args, unit, row);
        else
            finish_row<T>(args, unit, row);
    }
}

#endif
