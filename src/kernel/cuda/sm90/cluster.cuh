/* Clusters of CTAs: addresses in one another's shared memory, and what is done there. */
#ifndef RA_KERNEL_CUDA_SM90_CLUSTER_CUH
#define RA_KERNEL_CUDA_SM90_CLUSTER_CUH

#include <stdint.h>

__device__ __forceinline__ int cluster_rank(void) {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
    return (int)rank;
}

/* What is at `address` here, in the shared memory of CTA `rank`. */
__device__ __forceinline__ uint32_t cluster_address(uint32_t address, int rank) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

/* By all threads of the cluster that have not ended, those of a warp together. */
__device__ __forceinline__ void cluster_sync(void) {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}

/* Behind a cluster_sync, which shows that the other CTA has begun. */
__device__ __forceinline__ uint32_t cluster_load(uint32_t from) {
    uint32_t value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];\n" : "=r"(value) : "r"(from) : "memory");
    return value;
}

__device__ __forceinline__ void cluster_store(uint32_t to, int value) {
    asm volatile("st.shared::cluster.u32 [%0], %1;\n" ::"r"(to), "r"(value) : "memory");
}

/* At an mbarrier of any CTA of the cluster, of which mbarrier_wait can wait for it. It tells the other CTA that
 * products and copies that have been waited for are done, and nothing of what this thread has written: for that,
 * cluster_release, whose fence waits for device memory. */
__device__ __forceinline__ void cluster_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

/* The same, and a thread that has waited with cluster_acquire sees what this one has written. */
__device__ __forceinline__ void cluster_release(uint32_t barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

/* As mbarrier_wait, at an mbarrier of this CTA at which threads of others arrive with cluster_release. */
__device__ __forceinline__ void cluster_acquire(uint32_t barrier, uint32_t parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* So many bytes of this CTA's shared memory to another's, whose mbarrier counts them. */
__device__ __forceinline__ void copy_to_cluster(uint32_t to, uint32_t from, int bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(to),
        "r"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

#endif
