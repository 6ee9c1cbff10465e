/* Forward for f32 elements multiplied as tf32: sm80/forward_mma.cuh with tiles of f32. State, mask, softmax and plan
 * are its own; here is what depends on how elements lie in memory. Q is rounded once, in shared memory; K and V are
 * rounded as they are read, since every warp reads them once; P is rounded in registers.
 */
#ifndef RA_KERNEL_CUDA_TF32_FORWARD_TF32_CUH
#define RA_KERNEL_CUDA_TF32_FORWARD_TF32_CUH

#include "kernel/cuda/sm80/forward_mma.cuh"
#include "kernel/cuda/tf32/mma_tf32.cuh"

template <int DIM_, int KEYS_, int WARPS_, int MT_, int CTAS_> struct forward_tf32_shape {
    using T = float;
    static constexpr int DIM = DIM_, KEYS = KEYS_, WARPS = WARPS_, MT = MT_, CTAS = CTAS_;
    static constexpr int THREADS = WARPS * 32, ROWS = WARPS * 16 * MT;
    static constexpr int K_AT = ROWS * DIM * 4, V_AT = K_AT + KEYS * DIM * 4, PLAN_AT = V_AT + KEYS * DIM * 4;
    static constexpr int BYTES = PLAN_AT + (int)sizeof(unit_plan);
};

/* ---- things that are not numbers ------------------------------------------------------------------------------------
 */

/* Of the chunks that this thread copied. What rounds to an infinity counts as one. */
template <class S> __device__ __forceinline__ bool copied_is_wild_tf32(float *v) {
    bool wild = false;
    visit_copied<float, S::DIM, S::KEYS, S::THREADS>(v, [&](const uint4 &chunk) {
        const float *x = (const float *)&chunk;
        for (int e = 0; e < 4; e++) wild |= !isfinite(element<float>::widen(x[e]));
    });
    return wild;
}

/* V holds an infinity or a NaN. Rows with p != 0 for that key take it over as it is; then it becomes 0 in V, since 0
 * times it would be NaN for the others. */
template <class S>
__device__ __forceinline__ void take_wild_tf32(const float (&p)[S::MT][S::KEYS / 8][4], float *v,
                                               forward_rows<S> &rows) {
    int quad = (int)threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2 * S::MT; r++) {
        uint32_t seen[S::KEYS / 32] = {}; /* a bit for each key */
#pragma unroll
        for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                seen[n / 4] |= (uint32_t)(p[r / 2][n][r % 2 * 2 + e] != 0) << (n % 4 * 8 + quad * 2 + e);
#pragma unroll
        for (int w = 0; w < S::KEYS / 32; w++) {
            seen[w] |= __shfl_xor_sync(~0u, seen[w], 1);
            seen[w] |= __shfl_xor_sync(~0u, seen[w], 2);
#pragma unroll 1
            for (int bit = 0; bit < 32; bit++) {
                if (!(seen[w] >> bit & 1)) continue;
#pragma unroll
                for (int n = 0; n < S::DIM / 8; n++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        int d = n * 8 + quad * 2 + e;
                        int at = chunk_bytes_at<S::DIM, float>(w * 32 + bit, d / 4) / 4 + d % 4;
                        float x = element<float>::widen(v[at]);
                        if (!isfinite(x)) rows.o[r / 2][n][r % 2 * 2 + e] += x;
                    }
            }
        }
    }
    __syncthreads();
    visit_copied<float, S::DIM, S::KEYS, S::THREADS>(v, [](uint4 &chunk) {
        float *x = (float *)&chunk;
        for (int e = 0; e < 4; e++)
            if (!isfinite(element<float>::widen(x[e]))) x[e] = 0;
    });
    __syncthreads();
}

/* ---- main loop ------------------------------------------------------------------------------------------------------
 */

/* The maximum of the scores is found before they are scaled, which needs a scale above 0: the sign goes into Q, and a
 * scale of 0 makes Q 0, or NaN where it is not finite. Chunks that this thread copied. */
template <class S> __device__ __forceinline__ void round_and_sign_queries(void *q, double scale) {
    float by = scale > 0 ? 1 : scale < 0 ? -1 : 0;
    visit_copied<float, S::DIM, S::ROWS, S::THREADS>(q, [=](uint4 &chunk) {
        float *x = (float *)&chunk;
        for (int e = 0; e < 4; e++) x[e] = element<float>::widen(x[e]) * by;
    });
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, S::CTAS) forward_tf32(const __grid_constant__ gpu_forward args) {
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned char *q = shared, *k = shared + S::K_AT, *v = shared + S::V_AT;
    unit_plan &plan = *(unit_plan *)(shared + S::PLAN_AT);
    const gpu_problem &p = args.problem;
    if (threadIdx.x == 0) plan_unit<S>(args, plan);
    __syncthreads();
    const unit_place &unit = plan.unit;
    if (plan.steps[0].b0 < 0) return;
    {
        const gpu_tile &t = p.tiles[unit.tile];
        row_source rows = source_of<float>(args.q, unit.b, unit.h, t.q_first, t.q_stride, NULL);
        copy_rows<float, S::DIM, S::ROWS, S::THREADS>(q, rows, unit.a0, unit.a1, p.dim);
    }
    copy_block<S>(k, plan.sources[0].k, plan.sources[0], plan.steps[0].b0, p.dim);
    forward_rows<S> rows;
    read_state<S>(args, unit, rows);
    copies_wait();
    round_and_sign_queries<S>(q, p.scale);

    float scale = p.scale == 0 ? 1.0f : fabsf((float)p.scale);
    fragment_a_along<S::DIM> queries(shared_address(q), (int)threadIdx.x / 32 * 16 * S::MT);
    rounded<fragment_b_along<S::DIM>> keys(shared_address(k), 0);
    rounded<fragment_b_across<S::DIM>> values(shared_address(v), 0);
#pragma unroll 1
    for (int j = 0;; j++) {
        copies_wait();
        __syncthreads();
        const planned_keys &step = plan.steps[j % 4];
        const key_source &source = plan.sources[step.source];
        copy_block<S>(v, source.v, source, step.b0, p.dim_v);
        if (threadIdx.x == 0) plan_keys<S>(args, plan, j + 2);

        float s[S::MT][S::KEYS / 8][4] = {};
        add_product<float, S::DIM / 8>(s, queries, keys);

        bool wild = false;
        copies_wait();
        if (step.masked) {
            wild = __syncthreads_or(copied_is_wild_tf32<S>((float *)v));
            mask_scores<S>(unit, source, step.b0, s);
        } else {
            __syncthreads();
        }
        planned_keys next = plan.steps[(j + 1) % 4];
        if (next.b0 >= 0) copy_block<S>(k, plan.sources[next.source].k, plan.sources[next.source], next.b0, p.dim);
        fold_scores<S>(s, rows, scale);
        if (wild) take_wild_tf32<S>(s, (float *)v, rows);
        add_product<float, S::KEYS / 8>(rows.o, fragment_a_held<S::MT, S::KEYS / 8>{s}, values);
        if (next.b0 < 0) break;
    }
    write_state<S>(args, unit, rows);
}

template <class S> cudaError_t forward_tf32_allow(void) {
    return cudaFuncSetAttribute(forward_tf32<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
}

template <class S> void forward_tf32_launch(const gpu_forward *args, unsigned count, cudaStream_t stream) {
    forward_tf32<S><<<count, S::THREADS, S::BYTES, stream>>>(*args);
}

#endif
