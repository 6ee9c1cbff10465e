/* Forward for 16-bit elements on Hopper: FlashAttention-3 (Shah et al., 2024) with the state read first and written
 * last.
 *
 * A CTA stays on its multiprocessor and takes one unit after the other. Its first warpgroup copies (forward_feed.cuh);
 * the others compute, 64 query rows each, without a barrier among them. S of a step is computed together with P V of
 * the step before, so that the tensor cores have work during the softmax:
 *
 *   tensor cores   S(t)   P V(t-1)           S(t+1)   P V(t)
 *   other units           softmax of S(t)             softmax of S(t+1)
 *
 * The maximum that P is relative to follows the true one lazily: as long as no score of a warp's rows is more than 2^8
 * above it, nothing is rescaled. o and l are always relative to the m that is stored.
 */
#ifndef RA_KERNEL_CUDA_SM90_FORWARD_WGMMA_CUH
#define RA_KERNEL_CUDA_SM90_FORWARD_WGMMA_CUH

#include "kernel/cuda/sm90/forward_rows.cuh"

#include <cuda_runtime.h>

/* One arrival for each warp. */
__device__ __forceinline__ void leave(uint32_t gate) {
    if (threadIdx.x % 32 == 0) gate_arrive(gate);
}

/* ---- turns ----------------------------------------------------------------------------------------------------------
 */

__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

/* Reading warpgroup g waits for its turn at barrier 2 + g, which the one before it in the circle lets it pass. */
template <class S> __device__ __forceinline__ void await_turn(int group) {
    if (S::ALTERNATE) named_barrier(2 + group, 256);
}

template <class S> __device__ __forceinline__ void pass_turn(int group) {
    if (S::ALTERNATE) named_barrier_arrive(2 + (group + 1) % S::GROUPS, 256);
}

/* ---- products -------------------------------------------------------------------------------------------------------
 */

/* s = Q K^T, begun. */
template <class S>
__device__ __forceinline__ void begin_scores(const forward_memory<S> &memory, int t, int group, score_block<S> &s) {
    uint32_t q = shared_address(memory.q()), k = shared_address(memory.k(t));
    products_begin();
#pragma unroll
    for (int d = 0; d < S::DIM / 16; d++)
        wgmma<typename S::T, S::KEYS>::template shared<false, false>(s, along_rows<S::ROWS>(q, group * 64, d),
                                                                     along_rows<S::KEYS>(k, 0, d), d == 0);
    products_commit();
}

/* o += P V, begun. */
template <class S>
__device__ __forceinline__ void begin_outputs(const forward_memory<S> &memory, int t,
                                              const uint32_t (&p)[S::KEYS / 16][4], output_block<S> &o) {
    uint32_t v = shared_address(memory.v(t));
    products_begin();
#pragma unroll
    for (int k = 0; k < S::KEYS / 16; k++)
        wgmma<typename S::T, S::DIM>::template registers<true>(o, p[k], across_rows<S::KEYS>(v, 0, k), false);
    products_commit();
}

/* ---- main loop ------------------------------------------------------------------------------------------------------
 */

/* Scores of step t that have been computed become P in s; o follows, once settle() has seen to the products that still
 * change it. */
template <class S, class SETTLE>
__device__ __forceinline__ void fold_step(const gpu_forward &args, const forward_memory<S> &memory, int t, int a0,
                                          float scale, score_block<S> &s, row_sums &rows, output_block<S> &o,
                                          SETTLE settle) {
    const key_step &step = memory.step(t);
    float keep[2];
    leave(memory.k_empty(t));
    if (step.ends) leave(memory.q_empty());
    if (step.masked) mask_scores<S>(step, a0, s);
    bool far = accumulate_scores<S>(s, rows, {scale}, keep);
    settle();
    if (far) rescale<S>(o, keep);
    if (step.masked) {
        gate_wait(memory.v_full(t), forward_memory<S>::parity(t));
        if (__builtin_expect(step.wild, 0)) take_wild_values<S>(step, a0, args.problem.dim_v, o);
    }
}

/* The unit whose first step is t, the K of which is there; t becomes the first of the next. */
template <class S>
__device__ __forceinline__ void read_unit(const gpu_forward &args, const forward_memory<S> &memory, int group,
                                          float scale, int &t) {
    using M = forward_memory<S>;
    unit_place unit = memory.step(t).unit;
    output_block<S> o;
    score_block<S> s;
    row_sums rows;
    uint32_t p[S::KEYS / 16][4];
    await_turn<S>(group);
    begin_scores<S>(memory, t, group, s);
    pass_turn<S>(group);
    read_state<S>(args, unit, rows, o);
    products_wait<0>();
    keep_registers(s);
    fold_step<S>(args, memory, t, unit.a0, scale, s, rows, o, [] {});
    pack_scores<S>(s, p);
#pragma unroll 1
    while (!memory.step(t).ends) {
        t++;
        gate_wait(memory.k_full(t), M::parity(t));
        await_turn<S>(group);
        begin_scores<S>(memory, t, group, s);
        gate_wait(memory.v_full(t - 1), M::parity(t - 1));
        begin_outputs<S>(memory, t - 1, p, o);
        pass_turn<S>(group);
        products_wait<1>();
        keep_registers(s);
        fold_step<S>(args, memory, t, unit.a0, scale, s, rows, o, [&] {
            products_wait<0>();
            keep_registers(o);
            keep_registers(s); /* or P would be packed while the P before is still in use */
            leave(memory.v_empty(t - 1));
        });
        pack_scores<S>(s, p);
    }
    gate_wait(memory.v_full(t), M::parity(t));
    begin_outputs<S>(memory, t, p, o);
    products_wait<0>();
    keep_registers(o);
    leave(memory.v_empty(t));
    t++;
    write_state<S>(args, unit, rows, o);
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1)
    forward_wgmma(const __grid_constant__ gpu_forward args, unsigned count) {
    extern __shared__ __align__(1024) unsigned char shared[];
    forward_memory<S> memory = {shared};
    if (args.redo) count = *args.redo;
    if (threadIdx.x == 0) make_gates(memory);
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_fewer<S::FEEDER_REGISTERS>();
        feed<S>(args, memory, count);
    } else {
        registers_more<S::READER_REGISTERS>();
        /* From one lane, so that the compiler knows it to be the same in all. */
        int group = __shfl_sync(~0u, (int)threadIdx.x / 128 - 1, 0), t = 0;
        float scale = args.problem.scale == 0 ? 1.0f : fabsf((float)args.problem.scale);
        if (group == S::GROUPS - 1) pass_turn<S>(group);
        for (;;) {
            gate_wait(memory.k_full(t), forward_memory<S>::parity(t));
            if (memory.step(t).b0 < 0) break;
            read_unit<S>(args, memory, group, scale, t);
        }
    }
}

template <class S> cudaError_t forward_wgmma_allow(void) {
    return cudaFuncSetAttribute(forward_wgmma<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
}

template <class S> void forward_wgmma_launch(const gpu_forward *args, unsigned count, cudaStream_t stream) {
    int device = 0, multiprocessors = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    unsigned ctas = count < (unsigned)multiprocessors ? count : (unsigned)multiprocessors;
    cudaMemsetAsync(args->ticket, 0, sizeof *args->ticket, stream);
    forward_wgmma<S><<<ctas, S::THREADS, S::BYTES, stream>>>(*args, count);
}

#endif
