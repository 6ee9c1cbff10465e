/* Row operations on states and outputs: begin, finish, delta, carry, store, fill. */
#include "kernel/cuda/cuda_rows.h"
#include "kernel/cuda/row_warps.cuh"

/* Rows of one state: [batch, heads_q, rows_q]. */
static int64_t state_rows(const ra_shape *shape) {
    return shape->batch * shape->heads_q * shape->rows_q;
}

/* ---- begin ------------------------------------------------------------------------------------------------------- */

/* o is taken for 0 where m is -inf. */
template <class ACC> static __global__ void begin_rows(ACC *m, ACC *l, int64_t rows) {
    int64_t step = (int64_t)gridDim.x * ROW_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x; i < rows; i += step) {
        m[i] = -(ACC)INFINITY;
        l[i] = 0;
    }
}

void gpu_rows_begin(const ra_shape *shape, ra_state state, const ra_context *context) {
    int64_t rows = state_rows(shape) * shape->states;
    if (rows == 0) return;
    WITH_ACC(shape, ACC,
             launch_rows(begin_rows<ACC>, row_blocks((rows + 31) / 32), context->stream, (ACC *)state.m, (ACC *)state.l,
                         rows))
}

/* ---- finish ------------------------------------------------------------------------------------------------------ */

/* What normalises a row of a softmax: o * by is its output. A maximum of -inf: nothing was seen, o = 0 and lse = -inf.
 * One of +inf, or NaN, comes with an l that is NaN, and so do o and lse. */
struct softmax_end {
    double by, lse;
    bool none;
};

template <class ACC> static __device__ __forceinline__ softmax_end end_of(const ra_state &state, int64_t i) {
    double m = ((const ACC *)state.m)[i], l = ((const ACC *)state.l)[i];
    softmax_end end;
    end.none = m == -INFINITY;
    end.by = end.none ? 0 : 1 / l;
    end.lse = end.none ? m : m + log(l);
    return end;
}

/* log(e^a + e^b) */
static __device__ __forceinline__ double log_add(double a, double b) {
    if (isnan(a) || isnan(b)) return a + b;
    double most = a > b ? a : b, least = a > b ? b : a;
    return isinf(most) ? most : most + log1p(exp(least - most));
}

/* Of one softmax. A warp does 32 rows: each lane finds how one of them ends, for all lanes to normalise by. o_out may
 * be the state's own o: an element is written by the lane that read it. */
template <class ACC, class OUT, int N>
static __global__ void finish_one(ra_shape shape, ra_state state, ra_view o_out, ra_view lse_out, int64_t each) {
    for (int64_t i = first_row() * 32; i < each; i += row_step() * 32) {
        int64_t mine = i + lane() < each ? i + lane() : each - 1;
        int rows = (int)(each - i < 32 ? each - i : 32);
        row_number n = row_number_of(mine, shape.heads_q, shape.rows_q);
        softmax_end end = end_of<ACC>(state, mine);
        uint64_t from = (uint64_t)row_of<ACC>(state.o, n.b, n.row, n.h),
                 to = (uint64_t)row_of<OUT>(o_out, n.b, n.row, n.h);
        unsigned none = __ballot_sync(~0u, end.none);
        if (lse_out.data && lane() < rows) *row_of<ACC>(lse_out, n.b, n.row, n.h) = (ACC)end.lse;
#pragma unroll 4
        for (int r = 0; r < rows; r++) {
            const ACC *o = (const ACC *)__shfl_sync(~0u, from, r);
            OUT *out = (OUT *)__shfl_sync(~0u, to, r);
            double by = __shfl_sync(~0u, end.by, r) * shape.weight;
            for (int64_t d = lane() * N; d < shape.dim_v; d += 32 * N) {
                together<ACC, N> x = {};
                together<OUT, N> y;
                if (!(none >> r & 1)) x = *(const together<ACC, N> *)(o + d * state.o.dim);
#pragma unroll
                for (int e = 0; e < N; e++) narrow(&y.e[e], none >> r & 1 ? 0 : widen(x.e[e]) * by);
                *(together<OUT, N> *)(out + d * o_out.dim) = y;
            }
        }
    }
}

/* Of several, whose mean it is. */
template <class ACC, class OUT>
static __global__ void finish_several(ra_shape shape, ra_state state, ra_view o_out, ra_view lse_out, int64_t each) {
    for (int64_t i = first_row(); i < each; i += row_step()) {
        row_number n = row_number_of(i, shape.heads_q, shape.rows_q);
        const ACC *o = row_of<ACC>(state.o, n.b, n.row, n.h);
        OUT *to = row_of<OUT>(o_out, n.b, n.row, n.h);
        for (int64_t d = lane(); d < shape.dim_v; d += 32) {
            double sum = 0;
            for (int64_t s = 0; s < shape.states; s++) {
                softmax_end end = end_of<ACC>(state, s * each + i);
                sum += end.none ? 0 : widen(o[s * state.o_state + d * state.o.dim]) * end.by;
            }
            narrow(&to[d * o_out.dim], sum * shape.weight);
        }
        if (lse_out.data && lane() == 0) {
            double lse = end_of<ACC>(state, i).lse;
            for (int64_t s = 1; s < shape.states; s++) lse = log_add(lse, end_of<ACC>(state, s * each + i).lse);
            *row_of<ACC>(lse_out, n.b, n.row, n.h) = (ACC)lse;
        }
    }
}

template <class ACC, class OUT>
static void finish(const ra_shape *shape, ra_state state, ra_view o_out, ra_view lse_out, int64_t rows,
                   cudaStream_t stream) {
    constexpr int N = TOGETHER<ACC>;
    if (shape->states > 1) {
        launch_rows(finish_several<ACC, OUT>, row_blocks(rows), stream, *shape, state, o_out, lse_out, rows);
        return;
    }
    bool whole = is_whole(state.o, sizeof(ACC), shape->dim_v, N) && is_whole(o_out, sizeof(OUT), shape->dim_v, N);
    auto kernel = whole ? finish_one<ACC, OUT, N> : finish_one<ACC, OUT, 1>;
    launch_rows(kernel, row_blocks((rows + 31) / 32), stream, *shape, state, o_out, lse_out, rows);
}

void gpu_rows_finish(const ra_shape *shape, ra_state state, ra_view o_out, ra_view lse_out, const ra_context *context) {
    int64_t rows = state_rows(shape);
    cudaStream_t stream = (cudaStream_t)context->stream;
    if (rows == 0) return;
    WITH_ACC(shape, ACC, WITH_TYPE(shape->out_dtype, OUT, finish<ACC, OUT>(shape, state, o_out, lse_out, rows, stream)))
}

/* ---- delta ------------------------------------------------------------------------------------------------------- */

/* What delta is summed in. Of 16-bit numbers in f32, whose rounding is far below theirs: doubles would take longer to
 * make than the rows take to be read. */
template <class IN> struct delta_sum { using type = float; };
template <> struct delta_sum<float> { using type = double; };
template <> struct delta_sum<double> { using type = double; };

template <class IN, class OUT, class ACC, int N>
static __global__ void delta_rows(ra_shape shape, ra_view dout, ra_view o, ACC *delta_out, int64_t each) {
    using SUM = typename delta_sum<IN>::type;
    bool by_heads = dout.head < dout.row; /* in the order of memory */
    for (int64_t i = first_group(); i < each; i += group_step()) {
        row_number n;
        if (by_heads) {
            row_number heads = row_number_of_lane(i, each, shape.rows_q, shape.heads_q);
            n = {heads.b, heads.row, heads.h};
        } else {
            n = row_number_of_lane(i, each, shape.heads_q, shape.rows_q);
        }
        const IN *x[ROWS_AT_ONCE];
        const OUT *y[ROWS_AT_ONCE];
        rows_of_lanes(x, (const IN *)row_of<IN>(dout, n.b, n.row, n.h));
        rows_of_lanes(y, (const OUT *)row_of<OUT>(o, n.b, n.row, n.h));
        SUM sum[ROWS_AT_ONCE] = {};
        for (int64_t d = lane() * N; d < shape.dim_v; d += 32 * N) {
            together<IN, N> a[ROWS_AT_ONCE];
            together<OUT, N> b[ROWS_AT_ONCE];
#pragma unroll
            for (int r = 0; r < ROWS_AT_ONCE; r++) {
                a[r] = *(const together<IN, N> *)(x[r] + d * dout.dim);
                b[r] = *(const together<OUT, N> *)(y[r] + d * o.dim);
            }
#pragma unroll
            for (int r = 0; r < ROWS_AT_ONCE; r++)
#pragma unroll
                for (int e = 0; e < N; e++) sum[r] += (SUM)widen(a[r].e[e]) * (SUM)widen(b[r].e[e]);
        }
        double mine = warp_sums(sum);
        if (shape.weight != 1) mine /= shape.weight; /* which takes long */
        if (lane() < ROWS_AT_ONCE && i + lane() < each)
            delta_out[(n.b * shape.heads_q + n.h) * shape.rows_q + n.row] = (ACC)mine;
    }
}

template <class IN, class OUT, class ACC>
static void delta(const ra_shape *shape, ra_view dout, ra_view o, ACC *delta_out, int64_t rows, cudaStream_t stream) {
    constexpr int N = TOGETHER<ACC>;
    bool whole = is_whole(dout, sizeof(IN), shape->dim_v, N) && is_whole(o, sizeof(OUT), shape->dim_v, N);
    auto kernel = whole ? delta_rows<IN, OUT, ACC, N> : delta_rows<IN, OUT, ACC, 1>;
    launch_rows(kernel, group_blocks(rows), stream, *shape, dout, o, delta_out, rows);
}

/* Outputs have the inputs' type or the accumulation type. */
void gpu_rows_delta(const ra_shape *shape, ra_view dout, ra_view o, void *delta_out, const ra_context *context) {
    int64_t rows = state_rows(shape);
    cudaStream_t stream = (cudaStream_t)context->stream;
    if (rows == 0) return;
    if (shape->dtype == RA_F64)
        WITH_TYPE(shape->out_dtype, OUT, delta<double, OUT>(shape, dout, o, (double *)delta_out, rows, stream))
    else
        WITH_TYPE(shape->dtype, IN,
                  WITH_TYPE(shape->out_dtype, OUT, delta<IN, OUT>(shape, dout, o, (float *)delta_out, rows, stream)))
}

template <class IN, class ACC>
static __global__ void carry_rows(ra_shape shape, ra_state state, ra_view dout, ACC *lse_out, ACC *delta_out,
                                  int64_t each) {
    for (int64_t i = first_row(); i < each * shape.states; i += row_step()) {
        row_number n = row_number_of(i % each, shape.heads_q, shape.rows_q);
        const IN *x = row_of<IN>(dout, n.b, n.row, n.h);
        const ACC *o = row_of<ACC>(state.o, n.b, n.row, n.h) + i / each * state.o_state;
        softmax_end end = end_of<ACC>(state, i);
        double sum = 0;
        for (int64_t d = lane(); d < shape.dim_v; d += 32)
            sum += widen(x[d * dout.dim]) * (end.none ? 0 : widen(o[d * state.o.dim]) * end.by);
        sum = warp_sum(sum);
        if (lane() == 0) {
            lse_out[i] = (ACC)end.lse;
            delta_out[i] = (ACC)sum;
        }
    }
}

void gpu_rows_carry(const ra_shape *shape, ra_state state, ra_view dout, void *lse_out, void *delta_out,
                    const ra_context *context) {
    int64_t each = state_rows(shape), rows = each * shape->states;
    cudaStream_t stream = (cudaStream_t)context->stream;
    if (rows == 0) return;
    if (shape->dtype == RA_F64)
        launch_rows(carry_rows<double, double>, row_blocks(rows), stream, *shape, state, dout, (double *)lse_out,
                    (double *)delta_out, each);
    else
        WITH_TYPE(shape->dtype, IN,
                  launch_rows(carry_rows<IN, float>, row_blocks(rows), stream, *shape, state, dout, (float *)lse_out,
                              (float *)delta_out, each))
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

/* WEIGHTED: weight is not 1. Elements that are not multiplied are rounded as they are. */
template <class ACC, class OUT, int N, bool WEIGHTED>
static __global__ void store_rows(ra_view to, ra_view from, int64_t batch, int64_t rows, int64_t heads, int64_t width,
                                  double weight) {
    int64_t count = batch * rows * heads;
    for (int64_t i = first_group(); i < count; i += group_step()) {
        row_number n = row_number_of_lane(i, count, heads, rows);
        OUT *y[ROWS_AT_ONCE];
        const ACC *x[ROWS_AT_ONCE];
        rows_of_lanes(y, row_of<OUT>(to, n.b, n.row, n.h));
        rows_of_lanes(x, (const ACC *)row_of<ACC>(from, n.b, n.row, n.h));
        for (int64_t d = lane() * N; d < width; d += 32 * N) {
            together<ACC, N> a[ROWS_AT_ONCE];
#pragma unroll
            for (int r = 0; r < ROWS_AT_ONCE; r++) a[r] = *(const together<ACC, N> *)(x[r] + d * from.dim);
#pragma unroll
            for (int r = 0; r < ROWS_AT_ONCE; r++) {
                together<OUT, N> b;
#pragma unroll
                for (int e = 0; e < N; e++) {
                    if (WEIGHTED)
                        narrow(&b.e[e], widen(a[r].e[e]) * weight);
                    else
                        narrow(&b.e[e], a[r].e[e]);
                }
                if (i + r < count) *(together<OUT, N> *)(y[r] + d * to.dim) = b;
            }
        }
    }
}

void gpu_rows_store(const ra_shape *shape, ra_view to, ra_view from, int64_t rows, int64_t heads, int64_t width,
                    const ra_context *context) {
    unsigned blocks = group_blocks(shape->batch * rows * heads);
    cudaStream_t stream = (cudaStream_t)context->stream;
    if (blocks == 0) return;
    WITH_ACC(shape, ACC, WITH_TYPE(shape->out_dtype, OUT, {
                 constexpr int N = TOGETHER<ACC>;
                 bool whole = is_whole(to, sizeof(OUT), width, N) && is_whole(from, sizeof(ACC), width, N);
                 auto kernel = shape->weight != 1
                                   ? (whole ? store_rows<ACC, OUT, N, true> : store_rows<ACC, OUT, 1, true>)
                                   : (whole ? store_rows<ACC, OUT, N, false> : store_rows<ACC, OUT, 1, false>);
                 launch_rows(kernel, blocks, stream, to, from, shape->batch, rows, heads, width, shape->weight);
             }))
}

template <class OUT, int N>
static __global__ void fill_rows(ra_view to, int64_t batch, int64_t rows, int64_t heads, int64_t width, double value) {
    together<OUT, N> x;
#pragma unroll
    for (int e = 0; e < N; e++) narrow(&x.e[e], value);
    int64_t count = batch * rows * heads;
    for (int64_t i = first_group(); i < count; i += group_step()) {
        row_number n = row_number_of_lane(i, count, heads, rows);
        OUT *y[ROWS_AT_ONCE]; /* behind the last row: the first again */
        rows_of_lanes(y, row_of<OUT>(to, n.b, n.row, n.h));
        for (int64_t d = lane() * N; d < width; d += 32 * N)
#pragma unroll
            for (int r = 0; r < ROWS_AT_ONCE; r++) *(together<OUT, N> *)(y[r] + d * to.dim) = x;
    }
}

void gpu_rows_fill(const ra_shape *shape, ra_view to, int64_t rows, int64_t heads, int64_t width, double value,
                   const ra_context *context) {
    unsigned blocks = group_blocks(shape->batch * rows * heads);
    cudaStream_t stream = (cudaStream_t)context->stream;
    if (blocks == 0) return;
    WITH_TYPE(shape->out_dtype, OUT, {
        constexpr int N = TOGETHER<OUT>;
        auto kernel = is_whole(to, sizeof(OUT), width, N) ? fill_rows<OUT, N> : fill_rows<OUT, 1>;
        launch_rows(kernel, blocks, stream, to, shape->batch, rows, heads, width, value);
    })
}
