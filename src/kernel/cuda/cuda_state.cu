/* Row operations on states and outputs: begin, finish, delta, resume, store, fill. */
#include "kernel/cuda/cuda_rows.h"
#include "kernel/cuda/row_warps.cuh"

/* The places of [states, batch, heads_q, rows_q]. */
static int64_t state_rows(const ra_shape *shape) {
    return shape->batch * shape->heads_q * shape->rows_q;
}

/* ---- begin ----------------------------------------------------------------------------------------------------------
 */

template <class ACC> static __global__ void begin_rows(ra_shape shape, ra_state state, int64_t each) {
    for (int64_t i = first_row(); i < each * shape.states; i += row_step()) {
        row_number n = row_number_of(i % each, shape.heads_q, shape.rows_q);
        ACC *o = row_of<ACC>(state.o, n.b, n.row, n.h) + i / each * state.o_state;
        for (int64_t d = lane(); d < shape.dim_v; d += 32) o[d * state.o.dim] = 0;
        if (lane() == 0) {
            ((ACC *)state.m)[i] = -(ACC)INFINITY;
            ((ACC *)state.l)[i] = 0;
        }
    }
}

void gpu_rows_begin(const ra_shape *shape, ra_state state, const ra_launch *launch) {
    int64_t each = state_rows(shape), rows = each * shape->states;
    if (rows == 0) return;
    WITH_ACC(shape, ACC,
             begin_rows<ACC><<<row_blocks(rows), ROW_THREADS, 0, (cudaStream_t)launch->stream>>>(*shape, state, each))
}

/* ---- finish ---------------------------------------------------------------------------------------------------------
 */

/* What normalises a row of softmax s: o * by is its output. A maximum that is not finite has nothing to normalise by:
 * -inf, nothing was seen; +inf, a score overflowed. Such a row has o = 0 and lse = the maximum. */
struct softmax_end {
    double by, lse;
    bool none;
};

template <class ACC> static __device__ __forceinline__ softmax_end end_of(const ra_state &state, int64_t i) {
    double m = ((const ACC *)state.m)[i], l = ((const ACC *)state.l)[i];
    softmax_end end;
    end.none = isinf(m);
    end.by = end.none ? 0 : 1 / l;
    end.lse = end.none ? m : m + log(l);
    return end;
}

/* log(e^a + e^b) */
static __device__ __forceinline__ double log_add(double a, double b) {
    double most = a > b ? a : b, least = a > b ? b : a;
    return isinf(most) ? most : most + log1p(exp(least - most));
}

/* o_out may be the state's own o: an element is written by the lane that read it. */
template <class ACC, class OUT>
static __global__ void finish_rows(ra_shape shape, ra_state state, ra_view o_out, ACC *lse_out, int64_t each) {
    for (int64_t i = first_row(); i < each; i += row_step()) {
        row_number n = row_number_of(i, shape.heads_q, shape.rows_q);
        const ACC *o = row_of<ACC>(state.o, n.b, n.row, n.h);
        OUT *to = row_of<OUT>(o_out, n.b, n.row, n.h);
        if (shape.states == 1) {
            softmax_end end = end_of<ACC>(state, i);
            for (int64_t d = lane(); d < shape.dim_v; d += 32)
                narrow(&to[d * o_out.dim], end.none ? 0 : widen(o[d * state.o.dim]) * end.by * shape.weight);
            if (lse_out && lane() == 0) lse_out[i] = (ACC)end.lse;
            continue;
        }
        for (int64_t d = lane(); d < shape.dim_v; d += 32) {
            double sum = 0;
            for (int64_t s = 0; s < shape.states; s++) {
                softmax_end end = end_of<ACC>(state, s * each + i);
                sum += end.none ? 0 : widen(o[s * state.o_state + d * state.o.dim]) * end.by;
            }
            narrow(&to[d * o_out.dim], sum * shape.weight);
        }
        if (lse_out && lane() == 0) {
            double lse = end_of<ACC>(state, i).lse;
            for (int64_t s = 1; s < shape.states; s++) lse = log_add(lse, end_of<ACC>(state, s * each + i).lse);
            lse_out[i] = (ACC)lse;
        }
    }
}

void gpu_rows_finish(const ra_shape *shape, ra_state state, ra_view o_out, void *lse_out, const ra_launch *launch) {
    int64_t rows = state_rows(shape);
    cudaStream_t stream = (cudaStream_t)launch->stream;
    if (rows == 0) return;
    if (shape->dtype == RA_F64) {
        WITH_TYPE(shape->out_dtype, OUT,
                  finish_rows<double, OUT>
                  <<<row_blocks(rows), ROW_THREADS, 0, stream>>>(*shape, state, o_out, (double *)lse_out, rows))
    } else {
        WITH_TYPE(shape->out_dtype, OUT,
                  finish_rows<float, OUT>
                  <<<row_blocks(rows), ROW_THREADS, 0, stream>>>(*shape, state, o_out, (float *)lse_out, rows))
    }
}

/* ---- delta ----------------------------------------------------------------------------------------------------------
 */

template <class IN, class OUT, class ACC>
static __global__ void delta_rows(ra_shape shape, ra_view dout, ra_view o, ACC *delta_out, int64_t each) {
    for (int64_t i = first_row(); i < each; i += row_step()) {
        row_number n = row_number_of(i, shape.heads_q, shape.rows_q);
        const IN *x = row_of<IN>(dout, n.b, n.row, n.h);
        const OUT *y = row_of<OUT>(o, n.b, n.row, n.h);
        double sum = 0;
        for (int64_t d = lane(); d < shape.dim_v; d += 32) sum += widen(x[d * dout.dim]) * widen(y[d * o.dim]);
        sum = warp_sum(sum);
        if (lane() == 0) delta_out[i] = (ACC)(sum / shape.weight);
    }
}

/* Outputs have the inputs' type or the accumulation type. */
void gpu_rows_delta(const ra_shape *shape, ra_view dout, ra_view o, void *delta_out, const ra_launch *launch) {
    int64_t rows = state_rows(shape);
    cudaStream_t stream = (cudaStream_t)launch->stream;
    if (rows == 0) return;
    if (shape->dtype == RA_F64) {
        WITH_TYPE(shape->out_dtype, OUT,
                  delta_rows<double, OUT, double>
                  <<<row_blocks(rows), ROW_THREADS, 0, stream>>>(*shape, dout, o, (double *)delta_out, rows))
    } else {
        WITH_TYPE(shape->dtype, IN,
                  WITH_TYPE(shape->out_dtype, OUT,
                            delta_rows<IN, OUT, float>
                            <<<row_blocks(rows), ROW_THREADS, 0, stream>>>(*shape, dout, o, (float *)delta_out, rows)))
    }
}

template <class IN, class ACC>
static __global__ void resume_rows(ra_shape shape, ra_state state, ra_view dout, ACC *lse_out, ACC *delta_out,
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

void gpu_rows_resume(const ra_shape *shape, ra_state state, ra_view dout, void *lse_out, void *delta_out,
                     const ra_launch *launch) {
    int64_t each = state_rows(shape), rows = each * shape->states;
    cudaStream_t stream = (cudaStream_t)launch->stream;
    if (rows == 0) return;
    if (shape->dtype == RA_F64)
        resume_rows<double, double><<<row_blocks(rows), ROW_THREADS, 0, stream>>>(
            *shape, state, dout, (double *)lse_out, (double *)delta_out, each);
    else
        WITH_TYPE(shape->dtype, IN,
                  resume_rows<IN, float><<<row_blocks(rows), ROW_THREADS, 0, stream>>>(
                      *shape, state, dout, (float *)lse_out, (float *)delta_out, each))
}

/* ---- outputs --------------------------------------------------------------------------------------------------------
 */

template <class ACC, class OUT>
static __global__ void store_rows(ra_view to, ra_view from, int64_t batch, int64_t rows, int64_t heads, int64_t width,
                                  double weight) {
    for (int64_t i = first_row(); i < batch * rows * heads; i += row_step()) {
        row_number n = row_number_of(i, heads, rows);
        OUT *y = row_of<OUT>(to, n.b, n.row, n.h);
        const ACC *x = row_of<ACC>(from, n.b, n.row, n.h);
        for (int64_t d = lane(); d < width; d += 32) narrow(&y[d * to.dim], widen(x[d * from.dim]) * weight);
    }
}

void gpu_rows_store(const ra_shape *shape, ra_view to, ra_view from, int64_t rows, int64_t heads, int64_t width,
                    const ra_launch *launch) {
    unsigned blocks = row_blocks(shape->batch * rows * heads);
    cudaStream_t stream = (cudaStream_t)launch->stream;
    if (blocks == 0) return;
    if (shape->dtype == RA_F64) {
        WITH_TYPE(shape->out_dtype, OUT,
                  store_rows<double, OUT>
                  <<<blocks, ROW_THREADS, 0, stream>>>(to, from, shape->batch, rows, heads, width, shape->weight))
    } else {
        WITH_TYPE(shape->out_dtype, OUT,
                  store_rows<float, OUT>
                  <<<blocks, ROW_THREADS, 0, stream>>>(to, from, shape->batch, rows, heads, width, shape->weight))
    }
}

template <class OUT>
static __global__ void fill_rows(ra_view to, int64_t batch, int64_t rows, int64_t heads, int64_t width, double value) {
    for (int64_t i = first_row(); i < batch * rows * heads; i += row_step()) {
        row_number n = row_number_of(i, heads, rows);
        OUT *y = row_of<OUT>(to, n.b, n.row, n.h);
        for (int64_t d = lane(); d < width; d += 32) narrow(&y[d * to.dim], value);
    }
}

void gpu_rows_fill(const ra_shape *shape, ra_view to, int64_t rows, int64_t heads, int64_t width, double value,
                   const ra_launch *launch) {
    unsigned blocks = row_blocks(shape->batch * rows * heads);
    if (blocks == 0) return;
    WITH_TYPE(shape->out_dtype, OUT,
              fill_rows<OUT>
              <<<blocks, ROW_THREADS, 0, (cudaStream_t)launch->stream>>>(to, shape->batch, rows, heads, width, value))
}
