/* What a consumer does with a unit's rows when the last product has come.
 *
 *   state    m and l are written; o is added to the o that is there, where rows had seen something before
 *   finish   nobody has these rows later: o / l and lse are written instead
 *
 * The unit's o is relative to m as it is at the end. Where the m of carried rows has not moved, which is the rule, o
 * has only to be added: the copy engine does that, and the consumer goes on with the next unit (forward_layout.cuh says
 * where o lies meanwhile, and who starts the copies). A warp whose m has moved, or whose 16 rows are not all of the
 * tile's or not all alike, writes its rows itself.
 */
#ifndef RA_KERNEL_CUDA_SM90_FORWARD_EPILOGUE_CUH
#define RA_KERNEL_CUDA_SM90_FORWARD_EPILOGUE_CUH

#include "kernel/cuda/sm90/forward_staging.cuh"

/* ---- non-finite -------------------------------------------------------------------------------------------------- */

/* The barrier, which says whether one of the threads said so. */
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
template <class S> __device__ __forceinline__ bool ends_odd(const unit_note &note, const output_block<S> &o) {
    bool odd = false;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum[2] = {0, 0};
#pragma unroll
        for (int n = 0; n < S::DIM / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) sum[e] = fmaf(o[n][r * 2 + e], 0, sum[e]);
        odd |= sum[0] + sum[1] != 0 && note.unit.a0 + row_in_unit() + r * 8 < note.unit.a1;
    }
    return odd;
}

/* An infinity or a NaN in V becomes a NaN in rows that do not see it, 0 times it being no number. So rows that end with
 * one are left as they were (but for lse), and are put on the list of those that are done again by a kernel that looks
 * after that. */
static __device__ __forceinline__ void list_rows_again(const gpu_forward &args, const unit_note &note, int group) {
    if (args.fresh && threadIdx.x % 4 == 0) {
        unit_state state = state_of(args, note);
        for (int r = 0; r < 2; r++) {
            row_place row = state.place(row_in_unit() + r * 8);
            if (row.a >= note.unit.a1) continue;
            *row.m = -INFINITY;
            *row.l = 0;
        }
    }
    if (threadIdx.x % 128) return;
    args.pieces[atomicAdd(&args.tally->pieces, 1u)] = note.number * REDO_PIECES + (unsigned)group;
}

/* ---- m and l ----------------------------------------------------------------------------------------------------- */

/* l becomes the sum over the row's four threads. Where only NaN scores were seen the maximum is still -inf, and has to
 * say that something was. */
static __device__ __forceinline__ void end_sums(row_sums &rows) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        rows.l[r] = quad_sum(rows.l[r]);
        if (rows.m[r] == -INFINITY && rows.l[r] != rows.l[r]) rows.m[r] = rows.l[r];
    }
}

static __device__ __forceinline__ void write_sums(const gpu_forward &args, const unit_note &note,
                                                  const row_sums &rows) {
    if (threadIdx.x % 4) return;
    unit_state state = state_of(args, note);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        row_place row = state.place(row_in_unit() + r * 8);
        if (row.a >= note.unit.a1) continue;
        *row.m = rows.m[r];
        *row.l = rows.l[r];
    }
}

/* x / y, correctly rounded, for y that are far from the ends of f32's range. Without the branch that others take, rows
 * are finished side by side. */
__device__ __forceinline__ float quotient(float x, float y) {
    float inverse = __fdividef(1, y);
    inverse = fmaf(inverse, fmaf(-y, inverse, 1), inverse);
    float near = x * inverse;
    return fmaf(inverse, fmaf(-y, near, x), near);
}

/* lse is written, of rows that are done again later too: that writes it anew. by: what makes o what is put out. l is
 * about 1 or more, however small P are. */
static __device__ __forceinline__ void finish_sums(const gpu_forward &args, const unit_note &note, const row_sums &rows,
                                                   float (&by)[2]) {
    int a = note.unit.a0 + row_in_unit();
    float *lse = note.lse + row_in_unit() * note.lse_step, end[2];
    float weight = (float)args.weight;
    bool writes = note.lse && threadIdx.x % 4 == 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        end[r] = rows.m[r] + logf(rows.l[r]);
        by[r] = quotient(weight, rows.l[r]);
        asm volatile("" : "+f"(end[r]), "+f"(by[r])); /* both rows', and for those that have seen nothing as well */
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        bool none = rows.m[r] == -INFINITY;
        if (none) by[r] = 0;
        if (writes && a + r * 8 < note.unit.a1) lse[r * 8 * note.lse_step] = none ? -INFINITY : end[r];
    }
}

/* All that needs l alone. by: of finish_sums. */
static __device__ __forceinline__ void end_rows(const gpu_forward &args, const unit_note &note, row_sums &rows,
                                                float (&by)[2]) {
    end_sums(rows);
    if (args.finish) finish_sums(args, note, rows, by);
}

/* ---- rows that a thread writes itself ---------------------------------------------------------------------------- */

/* Tells the compiler not to compute addresses ahead, for which there are no registers. */
template <class T> __device__ __forceinline__ T *keep_pointer(T *p) {
    asm volatile("" : "+l"(p)::"memory");
    return p;
}

/* The thread's elements of a row in memory; all of them are asked for before any is used. */
template <class S>
__device__ __forceinline__ void read_row_there(const unit_state &state, const row_place &row,
                                               float2 (&old)[S::DIM / 8]) {
    int quad = (int)threadIdx.x % 4 * 2, width = state.problem.dim_v - quad;
    int64_t dim = state.rows.state.o.dim;
    const float *from = keep_pointer(row.o + quad * dim);
    if (has_float2(state.problem, dim, row)) {
#pragma unroll
        for (int n = 0; n < S::DIM / 8; n++)
            if (n * 8 < width) old[n] = *(const float2 *)(from + n * 8);
    } else {
#pragma unroll
        for (int n = 0; n < S::DIM / 8; n++) {
            if (n * 8 < width) old[n].x = *from;
            if (n * 8 + 1 < width) old[n].y = from[dim];
            from = keep_pointer(from + 8 * dim);
        }
    }
}

/* o += what is in memory, where rows had seen something before, relative to the m that they have now. Both of a
 * thread's rows are asked for at once, where there are registers for it. */
template <class S>
__device__ __forceinline__ void add_rows_there(const gpu_forward &args, const unit_note &note,
                                               const forward_memory<S> &memory, const row_sums &rows,
                                               output_block<S> &o) {
    constexpr int AT_ONCE = S::DIM <= 128 ? 2 : 1;
    unit_state state = state_of(args, note);
#pragma unroll
    for (int first = 0; first < 2; first += AT_ONCE) {
        float2 old[AT_ONCE][S::DIM / 8] = {};
        float keep[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int r = first + i;
            row_place row = state.place(row_in_unit() + r * 8);
            float m = memory.maxima()[row_in_unit() + r * 8];
            keep[i] = m == rows.m[r] ? 1 : score_weight(m, rows.m[r]);
            if (row.a < note.unit.a1 && m != -INFINITY) read_row_there<S>(state, row, old[i]);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
            for (int n = 0; n < S::DIM / 8; n++) {
                o[n][(first + i) * 2] = fmaf(old[i][n].x, keep[i], o[n][(first + i) * 2]);
                o[n][(first + i) * 2 + 1] = fmaf(old[i][n].y, keep[i], o[n][(first + i) * 2 + 1]);
            }
    }
}

/* Two neighbours at once. */
__device__ __forceinline__ void write_two(float *to, float x, float y) {
    *(float2 *)to = make_float2(x, y);
}

template <class T> __device__ __forceinline__ void write_two(T *to, float x, float y) {
    *(uint32_t *)to = element<T>::pack(x, y);
}

/* T: of the view's elements. */
template <class S, class T>
__device__ __forceinline__ void write_row(T *row, int64_t dim, int width, int r, const output_block<S> &o) {
    int quad = (int)threadIdx.x % 4 * 2;
    bool by_twos = dim == 1 && width % 2 == 0 && (uint64_t)row % (2 * sizeof(T)) == 0;
    T *to = keep_pointer(row + quad * dim);
    width -= quad;
    if (by_twos) {
#pragma unroll
        for (int n = 0; n < S::DIM / 8; n++)
            if (n * 8 < width) write_two(to + n * 8, o[n][r * 2], o[n][r * 2 + 1]);
        return;
    }
#pragma unroll
    for (int n = 0; n < S::DIM / 8; n++) {
        if (n * 8 < width) *to = (T)o[n][r * 2];
        if (n * 8 + 1 < width) to[dim] = (T)o[n][r * 2 + 1];
        to = keep_pointer(to + 8 * dim);
    }
}

template <class S>
__device__ __forceinline__ void write_rows(const gpu_forward &args, const unit_note &note, const output_block<S> &o) {
    int width = args.problem.dim_v;
    unit_state state = state_of(args, note);
    const ra_view &o_out = state.rows.o_out;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int a = note.unit.a0 + row_in_unit() + r * 8;
        if (a >= note.unit.a1) continue;
        int64_t q = note.q_first + a * note.q_stride;
        if (args.finish && !args.out_is_f32) {
            write_row<S>(query_row<typename S::T>(note.unit, o_out, q), o_out.dim, width, r, o);
            continue;
        }
        if (args.finish) {
            write_row<S>(query_row<float>(note.unit, o_out, q), o_out.dim, width, r, o);
            continue;
        }
        write_row<S>(state.place(row_in_unit() + r * 8).o, state.rows.state.o.dim, width, r, o);
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* What the warp's rows had seen before. */
enum { ROWS_FRESH, ROWS_CARRIED, ROWS_NOT_ALIKE };

/* Of all 16 rows; those whose m has moved are not alike, and neither are those that the tile does not have. */
template <class S>
__device__ __forceinline__ int rows_before(const gpu_forward &args, const unit_note &note,
                                           const forward_memory<S> &memory, const row_sums &rows) {
    int row0 = row_in_unit() / 16 * 16;
    if (note.unit.a0 + row0 + 16 > note.unit.a1) return ROWS_NOT_ALIKE;
    if (args.finish) return ROWS_FRESH;
    bool fresh = true, same = true;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float m = memory.maxima()[row_in_unit() + r * 8];
        fresh &= m == -INFINITY;
        same &= m != -INFINITY && m == rows.m[r];
    }
    return __all_sync(~0u, fresh) ? ROWS_FRESH : __all_sync(~0u, same) ? ROWS_CARRIED : ROWS_NOT_ALIKE;
}

/* What the copy engine does with rows that had seen that before. */
__device__ __forceinline__ int way_of(int before) {
    return before == ROWS_NOT_ALIKE ? SEND_NOTHING : before == ROWS_CARRIED ? SEND_ADD : SEND_STORE;
}

/* m and l are written, and o becomes what is to be written or sent: of a warp's rows, which are written where they are
 * not sent. sends: there is a map of the output's rows. Returns how they are sent. */
template <class S>
__device__ __forceinline__ int put_rows(const gpu_forward &args, const unit_note &note, bool sends,
                                        const forward_memory<S> &memory, const row_sums &rows, const float (&by)[2],
                                        output_block<S> &o) {
    int before = S::STAGED && sends ? rows_before<S>(args, note, memory, rows) : ROWS_NOT_ALIKE;
    if (S::FREE) before = __shfl_sync(~0u, before, 0); /* it is the same in all lanes, as the compiler should know */
    if (!args.fresh && (args.finish || before == ROWS_NOT_ALIKE)) add_rows_there<S>(args, note, memory, rows, o);
    if (args.finish)
        rescale<S>(o, by);
    else
        write_sums(args, note, rows);
    if (before == ROWS_NOT_ALIKE) write_rows<S>(args, note, o);
    return way_of(before);
}

/* o of 16 bits becomes what is put out, and is staged: of a warp's rows, which are written here where they are not all
 * there. Whether a row ends with an infinity or a NaN is asked of the rounded numbers, two at a time. Returns how they
 * are sent. */
template <class S>
__device__ __forceinline__ int put_rounded(const gpu_forward &args, const unit_note &note,
                                           const forward_memory<S> &memory, int group, int stage, const row_sums &rows,
                                           const float (&by)[2], output_block<S> &o) {
    int first = note.unit.a0 + row_in_unit(), row0 = row_in_unit() / 16 * 16;
    bool there = __shfl_sync(~0u, note.unit.a0 + row0 + 16 <= note.unit.a1, 0);
    uint32_t seen[2];
    if (!args.fresh) add_rows_there<S>(args, note, memory, rows, o);
    rescale<S>(o, by);
    stage_rounded<S>(place_of_warp<S>(memory, group, stage), o, seen);
    bool odd = (some_were_nonfinite(seen[0]) && first < note.unit.a1) ||
               (some_were_nonfinite(seen[1]) && first + 8 < note.unit.a1);
    bool again = warpgroup_any(group_barrier(group), odd);
    if (again)
        list_rows_again(args, note, group);
    else if (!there)
        write_rows<S>(args, note, o);
    return !again && there ? SEND_STORE : SEND_NOTHING;
}

/* The unit's rows go to device memory. stage: that of its last step. outputs: the tensor maps of the rows that o is
 * written to, as those of the queries are numbered; NULL: none. parity: of hand_outputs. */
template <class S>
__device__ __forceinline__ void
end_unit(const gpu_forward &args, const CUtensorMap *outputs, const forward_memory<S> &memory, const unit_note &note,
         int group, int stage, const row_sums &rows, const float (&by)[2], output_block<S> &o, uint32_t &parity) {
    int how = SEND_NOTHING;
    bool rounds = S::STAGED && outputs && puts_out_half(args);
    wait_for_place<S>(group);
    if (rounds)
        how = put_rounded<S>(args, note, memory, group, stage, rows, by, o);
    else if (warpgroup_any(group_barrier(group), ends_odd<S>(note, o)))
        list_rows_again(args, note, group);
    else
        how = put_rows<S>(args, note, outputs != NULL, memory, rows, by, o);
    if (S::FREE && rounds) send_part<S>(args, outputs, memory, note, group, 0, S::DIM, how);
    if (S::FREE && !rounds) send_by_parts<S>(args, outputs, memory, note, group, how, o);
    if (S::SENDER && !rounds && how != SEND_NOTHING)
        stage_f32<S, 0, S::DIM / 8>(place_of_warp<S>(memory, group, stage), o);
    if (S::SENDER) hand_outputs<S>(memory, group, stage, how, parity);
}

#endif
