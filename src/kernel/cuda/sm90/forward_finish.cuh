/* Rows that a launch should have finished and had to be done again (forward_epilogue.cuh): their state is there now. */
#ifndef RA_KERNEL_CUDA_SM90_FORWARD_FINISH_CUH
#define RA_KERNEL_CUDA_SM90_FORWARD_FINISH_CUH

#include "kernel/cuda/sm90/forward_epilogue.cuh"

/* One row, by a warp. The output may be the state's o: an element is written by the lane that read it. */
template <class OUT>
__device__ __forceinline__ void finish_row(const gpu_forward &args, const unit_place &unit, int row) {
    row_place from = place_in_state(args, unit, row);
    OUT *to = query_row<OUT>(args, unit, args.out, from.a);
    row_end end = end_of_row(((const float *)args.m)[from.at], ((const float *)args.l)[from.at], args.weight);
    bool none = end.lse == -INFINITY;
    for (int d = (int)threadIdx.x % 32; d < args.problem.dim_v; d += 32)
        to[d * args.out.dim] = (OUT)(none ? 0 : from.o[d * args.o.dim] * end.by);
    if (args.lse.data && threadIdx.x % 32 == 0) *query_row<float>(args, unit, args.lse, from.a) = end.lse;
}

/* The pieces that args.redo lists; normally there are none. */
template <class T> __global__ void finish_again(const __grid_constant__ gpu_forward args) {
    unsigned count = args.redo[0];
    for (unsigned piece = blockIdx.x; piece < count; piece += gridDim.x) {
        unit_place unit = unit_at(args, piece, args.redo_rows);
        for (int row = (int)threadIdx.x / 32; unit.a0 + row < unit.a1; row += (int)blockDim.x / 32) {
            if (args.out_is_f32)
                finish_row<float>(args, unit, row);
            else
                finish_row<T>(args, unit, row);
        }
    }
}

template <class T> static void launch_finish_again(const gpu_forward *args, unsigned ctas, cudaStream_t stream) {
    finish_again<T><<<ctas, 256, 0, stream>>>(*args);
}

#endif
