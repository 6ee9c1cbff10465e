/* What a thread of a consumer warpgroup does with its query rows besides products: mask, softmax, epilogue.
 *
 * Row r (0 or 1) of a thread is row 16 (warp % 4) + 8 r + lane / 4 of its warpgroup's 64; of every 8 columns it has the
 * two from 2 (lane % 4) on, as x[n][2 r], x[n][2 r + 1].
 */
#ifndef RA_KERNEL_CUDA_SM90_FORWARD_CONSUMER_CUH
#define RA_KERNEL_CUDA_SM90_FORWARD_CONSUMER_CUH

#include "kernel/cuda/sm90/forward_layout.cuh"
#include "kernel/cuda/state_rows.cuh"

struct row_sums {
    float m[2], l[2]; /* l: this thread's share */
};

template <class S> using output_block = float[S::DIM / 8][4];
template <class S> using score_block = float[S::KEYS / 8][4];

/* Of the thread's row 0 among the unit's rows. */
__device__ __forceinline__ int row_in_unit(void) {
    int warp = (int)threadIdx.x / 32 - 4, lane = (int)threadIdx.x % 32;
    return warp * 16 + lane / 4;
}

/* ---- prologue ---------------------------------------------------------------------------------------------------- */

/* Tells the compiler not to compute addresses ahead, for which there are no registers. */
template <class T> __device__ __forceinline__ const T *keep_pointer(const T *p) {
    asm volatile("" : "+l"(p)::"memory");
    return p;
}

/* o = the row's, one element after the other by steps that the compiler does not compute ahead: registers are short. */
template <class S>
__device__ __forceinline__ void read_outputs(const gpu_forward &args, const row_place &row, int r, output_block<S> &o) {
    int quad = (int)threadIdx.x % 4 * 2, width = args.problem.dim_v;
    const float *from = row.o + quad * args.o.dim;
    if (has_float2(args, row)) {
#pragma unroll
        for (int n = 0; n < S::DIM / 8; n++)
            if (n * 8 + quad < width) {
                float2 x = *(const float2 *)(from + n * 8);
                o[n][r * 2] = x.x;
                o[n][r * 2 + 1] = x.y;
            }
        return;
    }
#pragma unroll
    for (int n = 0; n < S::DIM / 8; n++) {
        if (n * 8 + quad < width) o[n][r * 2] = *from;
        if (n * 8 + quad + 1 < width) o[n][r * 2 + 1] = from[args.o.dim];
        from = keep_pointer(from + 8 * args.o.dim);
    }
}

/* The state that the rows start from: m, l, and, in begin_state, o. A row that has seen nothing has o = 0, whatever is
 * in memory. */
__device__ __forceinline__ void begin_sums(const gpu_forward &args, const unit_place &unit, row_sums &rows) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        row_place row = place_in_state(args, unit, row_in_unit() + r * 8);
        rows.m[r] = row.a < unit.a1 ? ((const float *)args.m)[row.at] : -INFINITY;
        rows.l[r] = row.a < unit.a1 && threadIdx.x % 4 == 0 ? ((const float *)args.l)[row.at] : 0;
    }
}

template <class S>
__device__ __forceinline__ void begin_state(const gpu_forward &args, const unit_place &unit, const row_sums &rows,
                                            output_block<S> &o) {
#pragma unroll
    for (int n = 0; n < S::DIM / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[n][e] = 0;
#pragma unroll
    for (int r = 0; r < 2; r++)
        if (rows.m[r] != -INFINITY) read_outputs<S>(args, place_in_state(args, unit, row_in_unit() + r * 8), r, o);
}

/* ---- mask -------------------------------------------------------------------------------------------------------- */

/* Pairs that are not visible get a score of -inf. */
template <class S> __device__ __forceinline__ void mask_block(const key_block &keys, score_block<S> &s) {
    int quad = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = row_in_unit() + r * 8, from = row + keys.lo - quad, to = min(row + keys.hi, keys.count) - quad;
#pragma unroll
        for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (n * 8 + e < from || n * 8 + e >= to) s[n][r * 2 + e] = -INFINITY;
    }
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* Scores become P, relative to the maxima, and are added to l. LARGE: maxima may be large. */
template <class S, bool LARGE>
__device__ __forceinline__ void exponentiate(score_block<S> &s, row_sums &rows, const gpu_score<float> &score) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float m = rows.m[r] == -INFINITY ? 0 : rows.m[r], sum[2] = {0, 0};
#pragma unroll
        for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float x = s[n][r * 2 + e];
                float p = LARGE ? score_weight(score_of(score, x), m) : score_weight_of(score, x, m);
                s[n][r * 2 + e] = p;
                sum[e] += p;
            }
        rows.l[r] += sum[0] + sum[1];
    }
}

/* Scores become P; l, and where the maximum has moved far enough m, follow. Returns whether it has, in this warp: then
 * o has to be multiplied by `keep`. */
template <class S>
__device__ __forceinline__ bool accumulate_scores(score_block<S> &s, row_sums &rows, const gpu_score<float> &score,
                                                  float (&keep)[2]) {
    float most[2];
    bool far = false;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float x = s[0][r * 2], y = s[0][r * 2 + 1];
#pragma unroll
        for (int n = 1; n < S::KEYS / 8; n++) {
            x = fmaxf(x, s[n][r * 2]);
            y = fmaxf(y, s[n][r * 2 + 1]);
        }
        most[r] = fmaxf(rows.m[r], score_of(score, quad_max(fmaxf(x, y))));
        far |= (most[r] - rows.m[r]) * LOG2_E > RESCALE_ABOVE;
    }
    far = __any_sync(~0u, far);
    keep[0] = keep[1] = 1;
    if (far) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            keep[r] = move_maximum(rows.m[r], most[r]);
            rows.l[r] *= keep[r];
        }
    }
    if (some_are_large(rows.m))
        exponentiate<S, true>(s, rows, score);
    else
        exponentiate<S, false>(s, rows, score);
    return far;
}

template <class S> __device__ __forceinline__ void rescale(output_block<S> &o, const float (&keep)[2]) {
#pragma unroll
    for (int n = 0; n < S::DIM / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[n][e] *= keep[e / 2];
}

/* P as the products take it from registers. */
template <class S>
__device__ __forceinline__ void pack_scores(const score_block<S> &s, uint32_t (&p)[S::KEYS / 16][4]) {
    using E = element<typename S::T>;
#pragma unroll
    for (int k = 0; k < S::KEYS / 16; k++) {
        p[k][0] = E::pack(s[2 * k][0], s[2 * k][1]);
        p[k][1] = E::pack(s[2 * k][2], s[2 * k][3]);
        p[k][2] = E::pack(s[2 * k + 1][0], s[2 * k + 1][1]);
        p[k][3] = E::pack(s[2 * k + 1][2], s[2 * k + 1][3]);
    }
}

/* ---- epilogue ---------------------------------------------------------------------------------------------------- */

/* A barrier of a warpgroup that says whether one of its threads said so. */
__device__ __forceinline__ bool warpgroup_any(int id, bool mine) {
    int any;
    asm volatile(
        "{\n.reg .pred p, q;\nsetp.ne.b32 p, %2, 0;\nbar.red.or.pred q, %1, 128, p;\nselp.b32 %0, 1, 0, q;\n}\n"
        : "=r"(any)
        : "r"(id), "r"((int)mine)
        : "memory");
    return any != 0;
}

/* Whether a row of this thread's ends with an infinity or a NaN: 0 times it is no number. */
template <class S> __device__ __forceinline__ bool ends_odd(const unit_place &unit, const output_block<S> &o) {
    bool odd = false;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = 0;
#pragma unroll
        for (int n = 0; n < S::DIM / 8; n++) sum = fmaf(o[n][r * 2], 0, fmaf(o[n][r * 2 + 1], 0, sum));
        odd |= sum != 0 && unit.a0 + row_in_unit() + r * 8 < unit.a1;
    }
    return odd;
}

template <class S>
__device__ __forceinline__ void write_state(const gpu_forward &args, const unit_place &unit, const row_sums &rows,
                                            const output_block<S> &o) {
#pragma unroll
    for (int r = 0; r < 2; r++)
        write_state_row<S::DIM / 8>(args, unit, row_in_unit() + r * 8, rows.m[r], rows.l[r],
                                    [&](int n) { return make_float2(o[n][r * 2], o[n][r * 2 + 1]); });
}

/* An infinity or a NaN in V becomes a NaN in rows that do not see it, 0 times it being no number. So rows that end with
 * one are left as they were, and are put on the list of those that are done again by a kernel that looks after that. */
template <class S>
__device__ __forceinline__ void finish_rows(const gpu_forward &args, const unit_place &unit, unsigned number, int group,
                                            const row_sums &rows, const output_block<S> &o) {
    if (!warpgroup_any(5 + group, ends_odd<S>(unit, o))) {
        write_state<S>(args, unit, rows, o);
    } else if (threadIdx.x % 128 == 0) {
        unsigned at = atomicAdd(args.ticket + 1, 1u);
        args.ticket[2 + at] = number * REDO_PIECES + (unsigned)group;
    }
}

#endif
