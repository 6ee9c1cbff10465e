/* What a thread of a consumer warpgroup does with its query rows besides products: what they
 * start from, mask, softmax. What follows the last product is in forward_epilogue.cuh.
 *
 * Row r (0 or 1) of a thread is row 16 (warp % 4) + 8 r + lane / 4 of its warpgroup's 64; of every 8 columns it has the
 * two from 2 (lane % 4) on, as x[n][2 r], x[n][2 r + 1].
 */
#ifndef RA_KERNEL_CUDA_SM90_FORWARD_CONSUMER_CUH
#define RA_KERNEL_CUDA_SM90_FORWARD_CONSUMER_CUH

#include "kernel/cuda/sm90/column_bits.cuh"
#include "kernel/cuda/sm90/forward_layout.cuh"
#include "kernel/cuda/state_rows.cuh"

struct row_sums {
    float m[2], l[2]; /* l: this thread's share */
};

/* What a thread's P of a row and a block add up to at most before m follows them. f16 ends at 65504. */
static constexpr float LARGE_SUM = 16384;

/* From here on m does not follow: below it neither the sum of a thread's P nor what they are divided by leaves f32's
 * normal numbers. */
static constexpr float LOST_WEIGHT = 0x1p100f;

template <class S> using output_block = float[S::DIM / 8][4];
template <class S> using score_block = float[S::KEYS / 8][4];
template <class S> using weight_block = uint32_t[S::KEYS / 16][4]; /* P */

/* Of the thread's row 0 among the unit's rows. */
__device__ __forceinline__ int row_in_unit(void) {
    int warp = (int)threadIdx.x / 32 - 4, lane = (int)threadIdx.x % 32;
    return warp * 16 + lane / 4;
}

/* Of the unit's rows. */
__device__ __forceinline__ unit_state state_of(const gpu_forward &args, const unit_note &note) {
    return {args.problem, note.unit, query_rows_of(args, note.queries), note.q_first, note.q_stride};
}

/* ---- prologue ---------------------------------------------------------------------------------------------------- */

/* m and l that the rows start from. Their o starts at 0, whatever is in memory, to which it is added at the end. */
template <class S>
__device__ __forceinline__ void begin_sums(const gpu_forward &args, const unit_note &note,
                                           const forward_memory<S> &memory, row_sums &rows) {
    rows.m[0] = rows.m[1] = -INFINITY;
    rows.l[0] = rows.l[1] = 0;
    if (args.fresh) return;
    unit_state state = state_of(args, note);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        row_place row = state.place(row_in_unit() + r * 8);
        if (row.a < note.unit.a1) rows.m[r] = *row.m;
        if (row.a < note.unit.a1 && threadIdx.x % 4 == 0) {
            rows.l[r] = *row.l;
            memory.maxima()[row_in_unit() + r * 8] = rows.m[r];
        }
    }
}

template <class S> __device__ __forceinline__ void begin_outputs(output_block<S> &o) {
#pragma unroll
    for (int n = 0; n < S::DIM / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[n][e] = 0;
}

/* ---- mask -------------------------------------------------------------------------------------------------------- */

/* Pairs that are not visible get a score of -inf. */
template <class S> __device__ __forceinline__ void mask_block(const key_block &keys, score_block<S> &s) {
    constexpr int COLUMNS = S::KEYS / 4;
    int quad = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = row_in_unit() + r * 8;
        int from = columns_below(row + keys.lo - quad), to = columns_below(min(row + keys.hi, keys.count) - quad);
#pragma unroll
        for (int first = 0; first < COLUMNS; first += 32) {
            uint32_t visible = column_bits(from, to, first);
#pragma unroll
            for (int i = first; i < min(first + 32, COLUMNS); i++)
                if (!(visible >> (i - first) & 1)) s[i / 2][r * 2 + i % 2] = -INFINITY;
        }
    }
}

/* ---- P ------------------------------------------------------------------------------------------------------------ */

/* P as the products take it from registers: of keys [16 k, 16 k + 16) of row r. */
template <class S>
__device__ __forceinline__ void pack_keys(const score_block<S> &s, int r, int k, weight_block<S> &p) {
    using E = element<typename S::T>;
    p[k][r] = E::pack(s[2 * k][r * 2], s[2 * k][r * 2 + 1]);
    p[k][2 + r] = E::pack(s[2 * k + 1][r * 2], s[2 * k + 1][r * 2 + 1]);
}

template <class S> __device__ __forceinline__ void pack_scores(const score_block<S> &s, weight_block<S> &p) {
#pragma unroll
    for (int k = 0; k < S::KEYS / 16; k++)
#pragma unroll
        for (int r = 0; r < 2; r++) pack_keys<S>(s, r, k, p);
}

/* Beside the exponentials of row 1, columns n: an even share of what has been exponentiated when n is PACKED_FROM. */
template <class S> __device__ __forceinline__ void pack_share(const score_block<S> &s, int n, weight_block<S> &p) {
    constexpr int FROM = S::PACKED_FROM, SHARES = S::KEYS / 8 - FROM;
#pragma unroll
    for (int k = 0; k < S::KEYS / 16; k++) {
        if (k * SHARES / (S::KEYS / 16) == n - FROM) pack_keys<S>(s, 0, k, p);
        if (k < FROM / 2 && k * SHARES / (FROM / 2) == n - FROM) pack_keys<S>(s, 1, k, p);
    }
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* P of a dot. LARGE: m may be large. log2_times: of how often the pair counts. */
template <class S, bool LARGE>
__device__ __forceinline__ float weight_of(const gpu_score<float> &score, float dot, float m, float log2_times) {
    if (S::COUNTS)
        return LARGE ? score_weight(score_of(score, dot), m, log2_times) : score_weight_of(score, dot, m, log2_times);
    return LARGE ? score_weight(score_of(score, dot), m) : score_weight_of(score, dot, m);
}

/* Columns [8 from, 8 to) of row r: scores become P, relative to m, and are added to sum. */
template <class S, bool LARGE>
__device__ __forceinline__ void weigh(score_block<S> &s, int r, int from, int to, float m,
                                      const gpu_score<float> &score, float log2_times, float (&sum)[2]) {
#pragma unroll
    for (int n = from; n < to; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float x = s[n][r * 2 + e];
            float p = weight_of<S, LARGE>(score, x, m, log2_times);
            s[n][r * 2 + e] = p;
            sum[e] += p;
        }
}

/* Scores become P, relative to m, and are added to l; packed, if P is packed beside exponentials and none are large
 * before that begins. Returns whether some of the warp's P are large: then m has to follow.
 *
 *   row 0 ........ row 1 ......│ large? free() │.... row 1, beside it P is packed │ large?
 *
 * free() returns when P may be written: until then products may be reading the P before. What it waits for is waited
 * for there because of the branch: without one, the compiler moves the wait to the front of the exponentials. */
template <class S, bool LARGE, class FREE>
__device__ __forceinline__ bool exponentiate(score_block<S> &s, row_sums &rows, const gpu_score<float> &score,
                                             float log2_times, weight_block<S> &p, FREE free) {
    constexpr int FROM = S::PACKED_FROM, COLUMNS = S::KEYS / 8;
    float m[2], sum[2][2] = {};
#pragma unroll
    for (int r = 0; r < 2; r++) {
        m[r] = rows.m[r] == -INFINITY ? 0 : rows.m[r];
        weigh<S, LARGE>(s, r, 0, r ? FROM : COLUMNS, m[r], score, log2_times, sum[r]);
    }
    bool above = __any_sync(~0u, sum[0][0] + sum[0][1] > LARGE_SUM || sum[1][0] + sum[1][1] > LARGE_SUM);
    if (S::PACKS_BESIDE && above) {
        free();
        weigh<S, LARGE>(s, 1, FROM, COLUMNS, m[1], score, log2_times, sum[1]);
    } else if (S::PACKS_BESIDE) {
        free();
#pragma unroll
        for (int n = FROM; n < COLUMNS; n++) {
            weigh<S, LARGE>(s, 1, n, n + 1, m[1], score, log2_times, sum[1]);
            pack_share<S>(s, n, p);
        }
#pragma unroll
        for (int k = FROM / 2; k < COLUMNS / 2; k++) pack_keys<S>(s, 1, k, p);
        above = __any_sync(~0u, sum[1][0] + sum[1][1] > LARGE_SUM);
    }
#pragma unroll
    for (int r = 0; r < 2; r++) rows.l[r] += sum[r][0] + sum[r][1];
    return above;
}

/* The largest of a row, of scores or of P. */
template <class S> __device__ __forceinline__ float largest_of(const score_block<S> &s, int r) {
    float x = s[0][r * 2], y = s[0][r * 2 + 1];
#pragma unroll
    for (int n = 1; n < S::KEYS / 8; n++) {
        x = fmaxf(x, s[n][r * 2]);
        y = fmaxf(y, s[n][r * 2 + 1]);
    }
    return quad_max(fmaxf(x, y));
}

/* m becomes the maximum, before scores are exponentiated. */
template <class S>
__device__ __forceinline__ void find_maxima(const score_block<S> &s, row_sums &rows, const gpu_score<float> &score,
                                            float (&keep)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        keep[r] = move_maximum(rows.m[r], fmaxf(rows.m[r], score_of(score, largest_of<S>(s, r))));
        rows.l[r] *= keep[r];
    }
}

/* m follows P that are large: the largest of a row becomes about 1. A row that has a P of LOST_WEIGHT or more becomes
 * NaN, which is seen at the end. */
template <class S> __device__ __forceinline__ void follow_weights(score_block<S> &s, row_sums &rows, float (&keep)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = largest_of<S>(s, r);
        float by = NAN;
        if (most < LOST_WEIGHT) by = move_maximum(rows.m[r], most > 1 ? rows.m[r] + __logf(most) : rows.m[r]);
        keep[r] *= by;
        rows.l[r] *= by;
#pragma unroll
        for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) s[n][r * 2 + e] *= by;
    }
}

/* Scores have become P, of which some are large: m follows, and P is packed, when free() has returned if that has not
 * been waited for. o has to be multiplied by `keep` then. */
template <class S, class FREE>
__device__ __forceinline__ void catch_up(score_block<S> &s, row_sums &rows, weight_block<S> &p, FREE free,
                                         float (&keep)[2]) {
    keep[0] = keep[1] = 1;
    follow_weights<S>(s, rows, keep);
    if (!S::PACKS_BESIDE) free();
    pack_scores<S>(s, p);
}

/* Scores become P, packed when free() has returned; l, and m where it has to, follow. Returns whether it has, in this
 * warp: then o has to be multiplied by `keep`. m is a row's maximum of the first block that it sees something of. From
 * then on no maximum is looked for, unless a row's m is large or -inf, which `large` says: what P add up to tells where
 * scores are far above m. log2_times: of how often pairs count. */
template <class S, class FREE>
__device__ __forceinline__ bool accumulate_scores(score_block<S> &s, row_sums &rows, const gpu_score<float> &score,
                                                  bool large, float log2_times, weight_block<S> &p, FREE free,
                                                  float (&keep)[2]) {
    bool moved = large, above;
    keep[0] = keep[1] = 1;
    if (moved) find_maxima<S>(s, rows, score, keep);
    if (moved && some_are_large(rows.m))
        above = exponentiate<S, true>(s, rows, score, log2_times, p, free);
    else
        above = exponentiate<S, false>(s, rows, score, log2_times, p, free);
    if (above) {
        follow_weights<S>(s, rows, keep);
        moved = true;
    }
    if (!S::PACKS_BESIDE) free();
    if (!S::PACKS_BESIDE || above) pack_scores<S>(s, p);
    return moved;
}

template <class S> __device__ __forceinline__ void rescale(output_block<S> &o, const float (&keep)[2]) {
#pragma unroll
    for (int n = 0; n < S::DIM / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[n][e] *= keep[e / 2];
}

#endif
