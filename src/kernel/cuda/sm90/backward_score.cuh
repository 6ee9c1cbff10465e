/* The score stage (score.cuh) as the Hopper backward kernels take it: whatever is the same for a row is done once for
 * the row, by who brings it, and a factor that many numbers would be multiplied by later is put into P.
 *
 *   P' = f P = e^{score - lse + log f}   dP - delta: dP's sum starts at - delta   dS' = P' (dP - delta) = f dS
 *
 *   dV = (P'^T dO) / f   dK = dS'^T Q scale / f   dQ = dS' K scale / f
 *
 * f is the scale where elements have the range for it, so that dQ and dK need no factor any more, and dV one at the
 * end. P of f16, of which many are near the least that there is, would lose bits: 1 there.
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_SCORE_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_SCORE_CUH

#include "kernel/cuda/score.cuh"
#include "kernel/cuda/work.cuh"

#include <cmath>
#include <cuda_bf16.h>
#include <type_traits>

/* The factor f. */
struct score_fold {
    float log2;
    float dq_left, dv_left; /* scale / f, which is mostly 1, and 1 / f */
};

/* What a kernel is told. */
struct folded_backward : gpu_backward {
    score_fold fold;
};

template <class T> static inline folded_backward fold_scale(const gpu_backward &args) {
    float scale = (float)args.problem.scale;
    bool folds = std::is_same<T, __nv_bfloat16>::value && scale > 0x1p-16 && scale < 0x1p16;
    double f = folds ? scale : 1;
    return {args, {(float)std::log2(f), folds ? 1 : scale, (float)(1 / f)}};
}

/* What an lse that is not large adds to the exponents of its row. */
__device__ __forceinline__ float score_shift(const score_fold &fold, float lse) {
    return fmaf(lse, -LOG2_E, fold.log2);
}

/* P' of a dot, as score_weight_of has P. */
__device__ __forceinline__ float score_weight_shifted(const gpu_score<float> &s, float dot, float shift) {
    return exp2_fast(fmaf(dot, s.scale * LOG2_E, shift));
}

/* P' of a score, as score_weight_to_one has P. log2: of f, and of how often the pair counts. */
__device__ __forceinline__ float score_weight_folded(float log2, float score, float lse) {
    float x = score - lse;
    return exp2_fast(fmaf(x > 0 ? x - x : x, LOG2_E, log2));
}

/* dS'. rise: dP - delta. */
__device__ __forceinline__ float score_slope(float p, float rise) {
    return p * rise;
}

#endif
