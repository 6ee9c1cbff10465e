/* A warp beside the producers that gives o of units that have ended to the copy engine, and waits until it has been
 * read: consumers go on with the next unit meanwhile. Where they are free they send it themselves.
 */
#ifndef RA_KERNEL_CUDA_SM90_FORWARD_SENDER_CUH
#define RA_KERNEL_CUDA_SM90_FORWARD_SENDER_CUH

#include "kernel/cuda/sm90/forward_staging.cuh"

/* outputs: the tensor maps of the rows that o is written to, as those of the queries are numbered; NULL: none. */
template <class S>
__device__ __forceinline__ void send_outputs(const gpu_forward &args, const CUtensorMap *outputs,
                                             const forward_memory<S> &memory) {
    int slot = 0;
    for (uint32_t parity = 0;; parity ^= 1, slot = next_slot<S>(slot)) {
        const unit_note &note = memory.unit(slot);
#pragma unroll 1
        for (int group = 0; group < S::GROUPS; group++) {
            mbarrier_wait(memory.o_full(group), parity);
            const sending &what = memory.sending_of(group);
            if (what.how[0] == SEND_NO_MORE) {
                bulk_wait<0>();
                return;
            }
            if (elected()) {
                uint32_t from = memory.outputs(group, what.stage), empty = memory.outputs_empty(group, what.stage);
#pragma unroll 1
                for (int warp = 0; warp < 4; warp++, from += S::OUTPUT_TILE / 4)
                    if (what.how[warp] != SEND_NOTHING)
                        send_boxes<S>(args, outputs + note.set.map, from, note, group * 64 + warp * 16, 0, S::DIM,
                                      what.how[warp]);
                bulk_wait_read<0>();
                mbarrier_arrive_times(empty, 4);
                mbarrier_arrive(memory.o_empty(group));
            }
            __syncwarp();
        }
    }
}

#endif
