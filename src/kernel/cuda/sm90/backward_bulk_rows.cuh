/* Rows that the copy engine takes from shared to device memory, one by one, where there is no tensor map of
 * them. Rows and their bytes are at multiples of 16. When a copy has been read and when it is in memory: bulk_copy.cuh.
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_BULK_ROWS_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_BULK_ROWS_CUH

#include <stdint.h>

/* to [bytes / 4] += from. */
__device__ __forceinline__ void add_row(float *to, uint32_t from, int bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}

/* to [bytes] = from. */
__device__ __forceinline__ void write_row(void *to, uint32_t from, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n" ::"l"(to), "r"(from), "r"(bytes)
                 : "memory");
}

#endif
