/* A row of the forward state between device memory and a quad of lanes: lane q of four has elements 8 n + 2 q and the
 * one after, for every n, as the tensor cores' accumulators have them. */
#ifndef RA_KERNEL_CUDA_STATE_ROWS_CUH
#define RA_KERNEL_CUDA_STATE_ROWS_CUH

#include "kernel/cuda/sm80/mma.cuh"
#include "kernel/cuda/tile_cursor.cuh"

/* The maximum that P is relative to moves only when it is exceeded by this many powers of 2. */
static constexpr float RESCALE_ABOVE = 8;

__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

/* Whether one of the warp's maxima is large, or has seen nothing, which is seldom and does no harm. */
template <int ROWS> __device__ __forceinline__ bool some_are_large(const float (&m)[ROWS]) {
    bool large = false;
#pragma unroll
    for (int r = 0; r < ROWS; r++) large |= is_large(m[r]);
    return __any_sync(~0u, large);
}

/* m becomes `most`; returns what multiplies that which was relative to m. */
__device__ __forceinline__ float move_maximum(float &m, float most) {
    float keep = m == most ? 1 : score_weight(m, most);
    m = most;
    return keep;
}

/* Where row number `row` of a unit is: its index a among the tile's queries, its m, l and o. */
struct row_place {
    int a;
    float *m, *l, *o;
};

/* Of a rank's rows, of which row a of the tile is q_first + a q_stride. */
__device__ __forceinline__ row_place place_in_state(const gpu_problem &problem, const ra_query_rows &rows,
                                                    const unit_place &unit, int64_t q_first, int64_t q_stride,
                                                    int row) {
    row_place p;
    const ra_view &o = rows.state.o;
    p.a = unit.a0 + row;
    int64_t q = q_first + p.a * q_stride;
    int64_t at = ((int64_t)unit.b * problem.heads_q + unit.h) * rows.rows + q;
    p.m = (float *)rows.state.m + at;
    p.l = (float *)rows.state.l + at;
    p.o = (float *)o.data + unit.b * o.batch + q * o.row + unit.h * o.head;
    return p;
}

/* The state of a unit's rows: of the rank whose queries they are. */
struct unit_state {
    const gpu_problem &problem;
    const unit_place &unit;
    ra_query_rows rows;
    int64_t q_first, q_stride;
    __device__ __forceinline__ row_place place(int row) const {
        return place_in_state(problem, rows, unit, q_first, q_stride, row);
    }
};

__device__ __forceinline__ unit_state state_of_unit(const gpu_forward &args, const unit_place &unit) {
    const gpu_tile &t = args.problem.tiles[unit.tile];
    return {args.problem, unit, query_rows_of(args, t), t.q_first, t.q_stride};
}

/* dim: elements of o from one of a row to the next. */
__device__ __forceinline__ bool has_float2(const gpu_problem &problem, int64_t dim, const row_place &p) {
    return dim == 1 && problem.dim_v % 2 == 0 && ((uint64_t)p.o & 7) == 0;
}

/* m, this lane's share of l, and put(n, two elements of o) for n below TILES. A row that has seen nothing has o = 0,
 * whatever is in memory. */
template <int TILES, class PUT>
__device__ __forceinline__ void read_state_row(const unit_state &state, int row, float &m, float &l, PUT put) {
    int quad = (int)threadIdx.x % 4, dim_v = state.problem.dim_v;
    int64_t dim = state.rows.state.o.dim;
    row_place p = state.place(row);
    bool valid = p.a < state.unit.a1;
    m = valid ? *p.m : -INFINITY;
    l = valid && quad == 0 ? *p.l : 0;
    int width = m != -INFINITY ? dim_v : 0;
    bool by_twos = has_float2(state.problem, dim, p);
#pragma unroll
    for (int n = 0; n < TILES; n++) { /* put outside of branches: products may be under way */
        int d = n * 8 + quad * 2;
        float2 x = make_float2(0, 0);
        if (by_twos && d < width) {
            x = *(const float2 *)(p.o + d);
        } else {
            if (d < width) x.x = p.o[d * dim];
            if (d + 1 < width) x.y = p.o[(d + 1) * dim];
        }
        put(n, x);
    }
}

/* The other way: l, the lane's share, and get(n). Where only NaN scores were seen the maximum is still -inf, and has to
 * say that something was. */
template <int TILES, class GET>
__device__ __forceinline__ void write_state_row(const unit_state &state, int row, float m, float l, GET get) {
    int quad = (int)threadIdx.x % 4, dim_v = state.problem.dim_v;
    int64_t dim = state.rows.state.o.dim;
    row_place p = state.place(row);
    l = quad_sum(l);
    if (p.a >= state.unit.a1) return;
    if (m == -INFINITY && l != l) m = l;
    if (quad == 0) {
        *p.m = m;
        *p.l = l;
    }
    if (has_float2(state.problem, dim, p)) {
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            int d = n * 8 + quad * 2;
            if (d < dim_v) *(float2 *)(p.o + d) = get(n);
        }
    } else {
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            int d = n * 8 + quad * 2;
            if (d < dim_v) p.o[d * dim] = get(n).x;
            if (d + 1 < dim_v) p.o[(d + 1) * dim] = get(n).y;
        }
    }
}

#endif
