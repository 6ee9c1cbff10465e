/* The steps of an item of the backward kernel for 16-bit elements, and the copies that each of them needs. */
#ifndef RA_KERNEL_CUDA_SM80_BACKWARD_HALF_PLAN_CUH
#define RA_KERNEL_CUDA_SM80_BACKWARD_HALF_PLAN_CUH

#include "kernel/cuda/sm80/backward_half_layout.cuh"
#include "kernel/cuda/sm80/copy_tiles.cuh"

/* ---- plan: by one thread ----------------------------------------------------------------------------------------- */

/* Step j is the cursor's. */
template <class S>
__device__ __forceinline__ void put_queries(const gpu_problem &p, half_plan &plan, int j, int source) {
    planned_queries &step = plan.steps[j % PLANNED];
    const query_source<float> &from = plan.sources[source];
    int block = plan.cursor.block, a0 = block * S::ROWS, a1 = a0 + S::ROWS, b0 = plan.item.block * S::KEYS;
    step.block = block;
    step.source = source;
    step.masked =
        b0 + S::KEYS > from.keys || !block_is_full(from.lo, from.hi, a0, a1, b0, b0 + S::KEYS) || from.times > 1;
    step.chain = from.chain + block;
    step.whole = from.dq.aligned && a1 <= from.count && p.dim == S::DIM;
}

/* Step j is the first of a tile and of heads that are done together, from the cursor's on; or there is none. source0:
 * that of the first of them. Not inline: seldom needed. */
template <class S>
__device__ __noinline__ void put_other_queries(const gpu_backward &args, half_plan &plan, int j, int source0) {
    const query_cursor &c = plan.cursor;
    plan.steps[j % PLANNED].block = -1;
    if (c.at >= plan.item.first + plan.item.count) return;
    plan.head0 = c.head;
    plan.head1 = min(c.heads, c.head + HEADS_TOGETHER);
    plan.source0 = source0;
    for (int h = plan.head0; h < plan.head1; h++)
        set_queries<typename S::T, float, S::ROWS>(&plan.sources[(source0 + h - plan.head0) % SOURCES], args,
                                                   plan.item.b, c.at, h);
    put_queries<S>(args.problem, plan, j, source0);
}

/* To the tile's next heads, or to the next tile. */
template <class S> __device__ __noinline__ void move_on(const gpu_backward &args, half_plan &plan) {
    query_cursor &c = plan.cursor;
    c.block = c.first;
    if (c.head >= c.heads) c = first_queries<S::ROWS, S::KEYS>(args, plan.item, c.at + 1);
}

/* A block of all heads that are done together, then the next block: so the items of a key/value head come to a block of
 * queries one behind the other. Head by head, an item with fewer blocks would wait at each head for those with more, in
 * whose turns it adds to dQ. */
template <class S> __device__ __forceinline__ void plan_queries(const gpu_backward &args, half_plan &plan, int j) {
    const planned_queries &last = plan.steps[(j - 1) % PLANNED];
    if (last.block < 0) {
        plan.steps[j % PLANNED].block = -1;
    } else if (++plan.cursor.head < plan.head1) {
        put_queries<S>(args.problem, plan, j, (last.source + 1) % SOURCES);
    } else if (last.block > plan.cursor.last) {
        plan.cursor.head = plan.head0;
        plan.cursor.block = last.block - 1;
        put_queries<S>(args.problem, plan, j, plan.source0);
    } else {
        move_on<S>(args, plan);
        put_other_queries<S>(args, plan, j, (last.source + 1) % SOURCES);
    }
}

template <class S> __device__ __forceinline__ void plan_item(const gpu_backward &args, half_plan &plan) {
    plan.item = item_at(args, atomicAdd(args.ticket, 1u));
    plan.cursor = first_queries<S::ROWS, S::KEYS>(args, plan.item, plan.item.first);
    put_other_queries<S>(args, plan, 0, 0);
    plan_queries<S>(args, plan, 1);
}

/* ---- turns: by one thread ---------------------------------------------------------------------------------------- */

/* As chain_wait, by loads that acquire, which cost less than a fence. */
__device__ __forceinline__ void turn_wait(const int *chain, int turn) {
    while (chain_acquire(chain) < turn) __nanosleep(20);
}

/* ---- copies: by all threads, or by those of one role -------------------------------------------------------------- */

/* The thread's number among those that copy what it copies. */
template <class S> __device__ __forceinline__ int copier(void) {
    return (int)threadIdx.x % S::COPIERS;
}

template <class S>
__device__ __forceinline__ void copy_query_rows(unsigned char *to, const row_source &s, int first, int limit,
                                                int width) {
    copy_tile<typename S::T, S::PITCH, S::ROWS, S::COPIERS>(to, s, first, limit, width, copier<S>());
}

template <class S>
__device__ __forceinline__ void copy_dout(const gpu_problem &p, const half_memory<S> &memory, int j) {
    const planned_queries &step = memory.plan().steps[j % PLANNED];
    const query_source<float> &s = memory.plan().sources[step.source];
    copy_query_rows<S>(memory.dout(), s.dout, step.block * S::ROWS, s.count, p.dim_v);
}

/* Step j's Q, lse and delta. Rows beyond the last look as if they had seen nothing. */
template <class S>
__device__ __forceinline__ void copy_queries(const gpu_problem &p, const half_memory<S> &memory, int j) {
    const half_plan &plan = memory.plan();
    const planned_queries &step = plan.steps[j % PLANNED];
    const query_source<float> &s = plan.sources[step.source];
    int a0 = step.block * S::ROWS, stage = j % 2, row = S::COPIERS - 1 - copier<S>();
    copy_query_rows<S>(memory.q(stage), s.q, a0, s.count, p.dim);
    if (row >= S::ROWS) return;
    int64_t at = (a0 + row) * s.each;
    if (a0 + row < s.count) {
        copy_4(shared_address(memory.lse(stage) + row), s.lse + at);
        copy_4(shared_address(memory.delta(stage) + row), s.delta + at);
    } else {
        memory.lse(stage)[row] = -INFINITY;
        memory.delta(stage)[row] = 0;
    }
}

/* The copies of step j have come. A large lse, which the thread that copied it looks for, makes it a masked one. */
template <class S> __device__ __forceinline__ void queries_wait(const half_memory<S> &memory, int j) {
    int row = S::COPIERS - 1 - copier<S>();
    copies_wait();
    if (row < S::ROWS && is_large(memory.lse(j % 2)[row])) memory.plan().steps[j % PLANNED].masked = 1;
}

#endif
