/* dq of 16 bits: sums that a backward launch makes, rounded as it ends. */
#ifndef RA_KERNEL_CUDA_ROUND_QUERIES_CUH
#define RA_KERNEL_CUDA_ROUND_QUERIES_CUH

#include "kernel/cuda/prepared.cuh"

/* Right behind the call's one launch, which was told `args`: of a kernel that lets the next launch begin, and counts
 * the turns at each block of dq. */
void gpu_round_queries(const ra_backward_call *call, const gpu_backward &args, cudaStream_t stream);

#endif
