/* A warp beside the producers that gives o of units that have ended to the copy engine, and waits until it has been
 * read: consumers go on with the next unit meanwhile. Where they are free they send it themselves.
 */
#ifndef RA_KERNEL_CUDA_SM90_FORWARD_SENDER_CUH
#define RA_KERNEL_CUDA_SM90_FORWARD_SENDER_CUH

#include "kernel/cuda/sm90/forward_epilogue.cuh"

/* Lane w sends what warp w of a consumer has left. outputs: the tensor maps of the rows that o is written to, as those
 * of the queries are numbered; NULL: none. */
template <class S>
__device__ __forceinline__ void send_outputs(const gpu_forward &args, const CUtensorMap *outputs,
                                             const forward_memory<S> &memory) {
    int lane = (int)threadIdx.x % 32, slot = 0;
    for (uint32_t parity = 0;; parity ^= 1, slot = next_slot<S>(slot)) {
        const unit_note &note = memory.unit(slot);
#pragma unroll 1
        for (int group = 0; group < S::GROUPS; group++) {
            mbarrier_wait(memory.o_full(group), parity);
            int how = memory.sending_of(group).how[lane % 4], stage = memory.sending_of(group).stage;
            if (how == SEND_NO_MORE) {
                if (lane < 4) bulk_wait<0>();
                return;
            }
            if (lane < 4 && how != SEND_NOTHING) {
                send_boxes<S>(args, outputs + note.set.map, memory.outputs(group, stage) + lane * (S::OUTPUT_TILE / 4),
                              note, group * 64 + lane * 16, 0, S::DIM, how);
                bulk_wait_read<0>();
            }
            if (lane < 4) mbarrier_arrive(memory.outputs_empty(group, stage));
            __syncwarp();
            if (lane == 0) mbarrier_arrive(memory.o_empty(group));
        }
    }
}

#endif
