/* The planner: one lane that walks an item's queries, a few steps ahead of those who load them and add to them, so that
 * nobody waits for what it looks up. */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_PLAN_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_PLAN_CUH

#include "kernel/cuda/sm90/backward_layout.cuh"

__device__ __forceinline__ backward_step step_of(const query_source<float> &s, int a0, int rows, int b0, int keys) {
    bool full = b0 + keys <= s.keys && block_is_full(s.lo, s.hi, a0, a0 + rows, b0, b0 + keys);
    return {a0, s.lo, s.hi, s.keys, full};
}

template <class S> __device__ __forceinline__ void plan_item(const gpu_backward &args, const backward_room<S> &room) {
    backward_plan &plan = room.plan();
    const item_place &item = plan.item;
    query_cursor c = first_queries<S::ROWS, S::KEYS>(args, item, item.first);
    bool moved = true;
#pragma unroll 1
    for (int j = 0;; j++) {
        planned_queries &to = plan.queries[j % PLANS];
        bool there = c.at < item.first + item.count;
        if (j >= PLANS) gate_wait(room.done(j), (j / PLANS - 1) % 2);
        to.block = there ? c.block : -1;
        to.step.a0 = -1;
        if (there) {
            if (moved)
                set_queries<typename S::T, float, S::ROWS>(&to.source, args, item.b, c.at, c.head);
            else
                to.source = plan.queries[(j + PLANS - 1) % PLANS].source;
            to.step = step_of(to.source, c.block * S::ROWS, S::ROWS, item.block * S::KEYS, S::KEYS);
            to.turn = turn_of<S::ROWS, S::KEYS>(to.source, c.block, item.block);
        }
        gate_arrive(room.planned(j));
        if (!there) break;
        query_cursor before = c;
        c = next_queries<S::ROWS, S::KEYS>(args, item, before);
        moved = c.at != before.at || c.head != before.head;
    }
}

#endif
