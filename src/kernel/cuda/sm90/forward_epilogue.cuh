/* What a consumer does with a unit's rows when the last product has come.
 *
 *   state    m and l are written; o is added to the o that is there, where rows had seen something before
 *   finish   nobody has these rows later: o / l and lse are written instead
 *
 * The unit's o is relative to m as it is at the end. Where the m of carried rows has not moved, which is the rule, o
 * has only to be added: the copy engine does that, and the consumer goes on with the next unit (forward_layout.cuh says
 * where o lies meanwhile). A warp whose m has moved, or whose 16 rows are not all of the tile's or not all alike,
 * writes its rows itself.
 */
#ifndef RA_KERNEL_CUDA_SM90_FORWARD_EPILOGUE_CUH
#define RA_KERNEL_CUDA_SM90_FORWARD_EPILOGUE_CUH

#include "kernel/cuda/finished_rows.cuh"
#include "kernel/cuda/sm90/forward_consumer.cuh"

/* ---- non-finite -------------------------------------------------------------------------------------------------- */

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

/* ---- rows that the copy engine takes ----------------------------------------------------------------------------- */

/* A warp's o in boxes of 16 rows of 128 bytes, one behind the other. */
enum { OUTPUT_BOX_ROWS = 16, OUTPUT_BOX = OUTPUT_BOX_ROWS * 128 };

/* Odd rows have their second 64 bytes written first: then no two of the lanes meet in a bank. */
template <class S> __device__ __forceinline__ void stage_f32(uint32_t to, const output_block<S> &o) {
    int lane = (int)threadIdx.x % 32, row = lane / 4;
    bool odd = row & 1;
    int swizzle = row ^ (odd ? 4 : 0);
    to += row * 128 + lane % 2 * 8;
#pragma unroll
    for (int n = 0; n < S::DIM / 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float x = odd ? o[n ^ 2][r * 2] : o[n][r * 2], y = odd ? o[n ^ 2][r * 2 + 1] : o[n][r * 2 + 1];
            uint32_t at = to + n / 4 * OUTPUT_BOX + r * 1024 + (((n % 4 * 2 + lane % 4 / 2) ^ swizzle) << 4);
            asm volatile("st.shared.v2.f32 [%0], {%1, %2};\n" ::"r"(at), "f"(x), "f"(y) : "memory");
        }
}

template <class S> __device__ __forceinline__ void stage_half(uint32_t to, const output_block<S> &o) {
    int lane = (int)threadIdx.x % 32, row = lane / 4;
    to += row * 128 + lane % 4 * 4;
#pragma unroll
    for (int n = 0; n < S::DIM / 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint32_t x = element<typename S::T>::pack(o[n][r * 2], o[n][r * 2 + 1]);
            uint32_t at = to + n / 8 * OUTPUT_BOX + r * 1024 + ((n % 8 ^ row) << 4);
            asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(at), "r"(x) : "memory");
        }
}

/* Whether o is put out in 16 bits. */
__device__ __forceinline__ bool puts_out_half(const gpu_forward &args) {
    return args.finish && !args.out_is_f32;
}

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

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* The warp's rows are written, or put into `staging`, out of which the copy engine is to do with them what is returned.
 * sends: there is a map of the output's rows. */
template <class S>
__device__ __forceinline__ int put_rows(const gpu_forward &args, const unit_note &note, bool sends,
                                        const forward_memory<S> &memory, uint32_t staging, const row_sums &rows,
                                        const float (&by)[2], output_block<S> &o) {
    int before = S::STAGED && sends ? rows_before<S>(args, note, memory, rows) : ROWS_NOT_ALIKE;
    if (!args.fresh && (args.finish || before == ROWS_NOT_ALIKE)) add_rows_there<S>(args, note, memory, rows, o);
    if (args.finish)
        rescale<S>(o, by);
    else
        write_sums(args, note, rows);
    if (before == ROWS_NOT_ALIKE) {
        write_rows<S>(args, note, o);
        return SEND_NOTHING;
    }
    if (puts_out_half(args))
        stage_half<S>(staging, o);
    else
        stage_f32<S>(staging, o);
    shared_writes_to_products();
    __syncwarp();
    return before == ROWS_CARRIED ? SEND_ADD : SEND_STORE;
}

/* By one lane: the boxes of `from` that have columns of the view go to row `row` of the unit on. map: of the output's
 * rows. */
template <class S>
__device__ __forceinline__ void send_boxes(const gpu_forward &args, const CUtensorMap *map, uint32_t from,
                                           const unit_note &note, int row, int how) {
    int columns = puts_out_half(args) ? 64 : 32;
    for (int column = 0; column < args.problem.dim_v; column += columns, from += OUTPUT_BOX) {
        if (how == SEND_ADD)
            add_box<S::PLAIN>(map, from, column, note.set.remainder, note.row + row, note.unit.h, note.unit.b);
        else
            store_box<S::PLAIN>(map, from, column, note.set.remainder, note.row + row, note.unit.h, note.unit.b);
    }
    bulk_commit();
}

/* The o that a warp has staged: how it is known when its place may be written again. */
template <class S> struct staged_outputs {
    uint32_t empty;  /* where the warp sends it itself: the mbarrier to arrive at when it has been read; 0: none */
    uint32_t parity; /* where the sender does: of the phase of o_empty that is over when it has been sent */
    __device__ __forceinline__ void release(void) {
        if (!S::SENDER && empty) {
            if (threadIdx.x % 32 == 0) bulk_wait_read<0>();
            leave_stage(empty);
        }
        empty = 0;
    }
};

/* The warp's o goes to the sender. */
template <class S>
__device__ __forceinline__ void hand_outputs(const forward_memory<S> &memory, int group, int stage, int how,
                                             staged_outputs<S> &staged) {
    mbarrier_wait(memory.o_empty(group), staged.parity);
    staged.parity ^= 1;
    if (threadIdx.x % 32) return;
    memory.sending_of(group).how[threadIdx.x / 32 % 4] = how;
    memory.sending_of(group).stage = stage;
    mbarrier_arrive(memory.o_full(group));
}

/* The unit's rows go to device memory. stage: that of its last step. outputs: the tensor maps of the rows that o is
 * written to, as those of the queries are numbered; NULL: none. */
template <class S>
__device__ __forceinline__ void end_unit(const gpu_forward &args, const CUtensorMap *outputs,
                                         const forward_memory<S> &memory, const unit_note &note, int group, int stage,
                                         const row_sums &rows, const float (&by)[2], output_block<S> &o,
                                         staged_outputs<S> &staged) {
    uint32_t staging = memory.outputs(group, stage) + (int)threadIdx.x / 32 % 4 * (S::OUTPUT_TILE / 4);
    int how = SEND_NOTHING;
    if (S::STAGED && group == 0) {
        named_barrier(K_READ_BARRIER, 256);
        named_barrier_arrive(V_READ_BARRIER, 256);
    } else if (S::STAGED) {
        named_barrier(V_READ_BARRIER, 256);
    }
    if (warpgroup_any(5 + group, ends_odd<S>(note, o)))
        list_rows_again(args, note, group);
    else
        how = put_rows<S>(args, note, outputs != NULL, memory, staging, rows, by, o);
    if (S::SENDER) {
        hand_outputs<S>(memory, group, stage, how, staged);
    } else if (how != SEND_NOTHING) {
        if (threadIdx.x % 32 == 0) send_boxes<S>(args, outputs + note.set.map, staging, note, row_in_unit(), how);
        staged.empty = memory.outputs_empty(group, stage);
    } else if (S::STAGED) {
        leave_stage(memory.outputs_empty(group, stage));
    }
}

#endif
