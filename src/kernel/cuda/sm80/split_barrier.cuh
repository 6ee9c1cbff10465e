/* A barrier of all warps of a block whose arrival and wait are apart, so that a warp does something else in between and
 * waits only for those that are far behind: an mbarrier in shared memory, used once in every step. */
#ifndef RA_KERNEL_CUDA_SM80_SPLIT_BARRIER_CUH
#define RA_KERNEL_CUDA_SM80_SPLIT_BARRIER_CUH

#include "kernel/cuda/async_copy.cuh"

/* By one thread, before a barrier of the block. */
__device__ __forceinline__ void split_barrier_init(uint64_t *barrier, int warps) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(warps) : "memory");
}

/* What the thread did before it has been done for who waits. */
__device__ __forceinline__ void split_barrier_arrive_alone(uint64_t *barrier) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}\n" ::"r"(shared_address(barrier))
                 : "memory");
}

/* The same of the warp. */
__device__ __forceinline__ void split_barrier_arrive(uint64_t *barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) split_barrier_arrive_alone(barrier);
}

/* From compute capability 9.0 on a warp can be suspended until a barrier's phase ends, or for a while. */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
#define RA_BARRIER_ASK "mbarrier.try_wait.parity.shared.b64"
#else
#define RA_BARRIER_ASK "mbarrier.test_wait.parity.shared.b64"
#endif

/* Until all warps have arrived in step j. */
__device__ __forceinline__ void split_barrier_wait(uint64_t *barrier, int j) {
    uint32_t done, at = shared_address(barrier);
    do {
        asm volatile("{\n.reg .pred p;\n" RA_BARRIER_ASK " p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
                     : "=r"(done)
                     : "r"(at), "r"(j & 1)
                     : "memory");
    } while (!done);
}

#undef RA_BARRIER_ASK

#endif
