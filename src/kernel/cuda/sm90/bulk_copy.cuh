/* Bulk tensor copies (TMA) and the mbarriers that they complete.
 *
 * One thread starts a copy of a box: 64 elements of ROWS rows of one head, as a tensor map (tensor_maps.cuh) says where
 * they are. It lands as a panel of wgmma.cuh, swizzled by the copy engine; what lies outside of the tensor arrives as
 * zeros, and counts among the bytes that the mbarrier waits for like all others.
 */
#ifndef RA_KERNEL_CUDA_SM90_BULK_COPY_CUH
#define RA_KERNEL_CUDA_SM90_BULK_COPY_CUH

#include <cuda.h>
#include <stdint.h>

/* ---- mbarriers --------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* So many arrivals at once. */
__device__ __forceinline__ void mbarrier_arrive_times(uint32_t barrier, int times) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(times) : "memory");
}

/* After the inits, by the thread that made them: copies by the copy engine find the barriers. */
__device__ __forceinline__ void mbarrier_inits_done(void) {
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

/* Arrives, and lets the phase wait for so many bytes of copies. */
__device__ __forceinline__ void mbarrier_arrive_expecting(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Lets the phase wait for so many bytes, without arriving. */
__device__ __forceinline__ void mbarrier_expect(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Until the phase of this parity is over: parity 0 first. A barrier that nobody has arrived at counts as having just
 * ended a phase of parity 1. */
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Whether it is over. */
__device__ __forceinline__ bool mbarrier_is_over(uint32_t barrier, uint32_t parity) {
    uint32_t over;
    asm volatile("{\n"
                 ".reg .pred over;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 over, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, over;\n"
                 "}\n"
                 : "=r"(over)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return over;
}

/* Where a role stands in a ring of STAGES stages: which one is next, and the parity of the phase that its barriers are
 * in. Whoever waits for full stages waits for `parity`, whoever waits for empty ones for the other one. */
template <int STAGES> struct ring_place {
    int stage;
    uint32_t parity;
    __device__ __forceinline__ void advance(void) {
        stage = stage == STAGES - 1 ? 0 : stage + 1;
        parity ^= stage == 0;
    }
};

/* ---- who starts copies ------------------------------------------------------------------------------------------- */

/* True in one lane of the warp, always the same. By all lanes together.
 *
 * The compiler knows that what depends on it is done by one lane, and the operands of copies go to uniform registers as
 * they are. Where it has to be told by `lane == 0` it does not know that, and makes a loop over lanes that may differ
 * around each copy. */
__device__ __forceinline__ bool elected(void) {
    uint32_t is;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}\n" : "=r"(is));
    return is != 0;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* to, a panel = columns [column, column + 64) of rows [row, ...) of remainder `remainder` of head `head` of batch
 * `batch`. PLAIN: the map has no dimension of remainders. */
template <bool PLAIN = false>
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap *map, int column, int remainder, int row,
                                         int head, int batch, uint32_t barrier) {
    if (PLAIN)
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
                     "%4, %5}], [%6];\n" ::"r"(to),
                     "l"(map), "r"(column), "r"(row), "r"(head), "r"(batch), "r"(barrier)
                     : "memory");
    else
        asm volatile(
            "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
            "%5, %6}], [%7];\n" ::"r"(to),
            "l"(map), "r"(column), "r"(remainder), "r"(row), "r"(head), "r"(batch), "r"(barrier)
            : "memory");
}

/* to, panels of ROWS rows side by side = DIM columns of rows [row, row + ROWS) of a remainder. */
template <int DIM, int ROWS, bool PLAIN = false>
__device__ __forceinline__ void copy_tile(uint32_t to, const CUtensorMap *map, int remainder, int row, int head,
                                          int batch, uint32_t barrier) {
#pragma unroll
    for (int column = 0; column < DIM; column += 64)
        copy_box<PLAIN>(to + column * ROWS * 2, map, column, remainder, row, head, batch, barrier);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* Columns [column, column + 32) of rows [row, ...) of a remainder += from, a panel of f32. PLAIN: as above. */
template <bool PLAIN = false>
__device__ __forceinline__ void add_box(const CUtensorMap *map, uint32_t from, int column, int remainder, int row,
                                        int head, int batch) {
    if (PLAIN)
        asm volatile("cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2, %3, %4}], "
                     "[%5];\n" ::"l"(map),
                     "r"(column), "r"(row), "r"(head), "r"(batch), "r"(from)
                     : "memory");
    else
        asm volatile(
            "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2, %3, %4, %5}], "
            "[%6];\n" ::"l"(map),
            "r"(column), "r"(remainder), "r"(row), "r"(head), "r"(batch), "r"(from)
            : "memory");
}

/* The same, but they become what `from` has, of the map's type: 128 bytes to a row. */
template <bool PLAIN = false>
__device__ __forceinline__ void store_box(const CUtensorMap *map, uint32_t from, int column, int remainder, int row,
                                          int head, int batch) {
    if (PLAIN)
        asm volatile(
            "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];\n" ::"l"(map),
            "r"(column), "r"(row), "r"(head), "r"(batch), "r"(from)
            : "memory");
    else
        asm volatile(
            "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];\n" ::"l"(map),
            "r"(column), "r"(remainder), "r"(row), "r"(head), "r"(batch), "r"(from)
            : "memory");
}

__device__ __forceinline__ void bulk_commit(void) {
    asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}

/* Until all but the LEFT last groups of this thread's have been read from shared memory. */
template <int LEFT> __device__ __forceinline__ void bulk_wait_read(void) {
    asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(LEFT) : "memory");
}

/* Until they are in device memory. */
template <int LEFT> __device__ __forceinline__ void bulk_wait(void) {
    asm volatile("cp.async.bulk.wait_group %0;\n" ::"n"(LEFT) : "memory");
}

/* Orders plain accesses to device memory and those of the copy engine. */
__device__ __forceinline__ void global_proxies_meet(void) {
    asm volatile("fence.proxy.async.global;\n" ::: "memory");
}

#endif
