/* The row operation merge: two partial states of the same rows become one, as rows_merge.c does it. A warp does a row.
 */
#include "kernel/cuda/cuda_rows.h"
#include "kernel/cuda/row_warps.cuh"

/* What l and o are multiplied by: e^{m - most}, or nothing at all for what has seen nothing. */
static __device__ __forceinline__ double state_factor(double m, double l, double most) {
    return l == 0 ? 0 : m == most ? 1 : exp(m - most);
}

template <class ACC, int N>
static __global__ void merge_rows(ra_shape shape, ra_state state, ra_span rows, ra_state from, int64_t count) {
    for (int64_t i = first_row(); i < count; i += row_step()) {
        row_number n = row_number_of(i, shape.heads_q, rows.count); /* b: of states and batch */
        int64_t s = quotient(n.b, shape.batch), b = n.b - s * shape.batch, row = rows.first + n.row * rows.stride;
        int64_t at = (n.b * shape.heads_q + n.h) * shape.rows_q + row;
        ACC *m = (ACC *)state.m + at, *l = (ACC *)state.l + at;
        double here = *m, old_l = *l, came = ((const ACC *)from.m)[i], more_l = ((const ACC *)from.l)[i];
        if (more_l == 0) continue;
        double most = isnan(here) || here > came ? here : came;
        double keep = state_factor(here, old_l, most), take = state_factor(came, more_l, most);
        ACC *o = row_of<ACC>(state.o, b, row, n.h) + s * state.o_state;
        const ACC *more = row_of<ACC>(from.o, b, n.row, n.h) + s * from.o_state;
        for (int64_t d = lane() * N; d < shape.dim_v; d += 32 * N) {
            auto *to = (together<ACC, N> *)(o + d * state.o.dim);
            together<ACC, N> old = {}, add = *(const together<ACC, N> *)(more + d * from.o.dim);
            if (old_l != 0) old = *to;
#pragma unroll
            for (int e = 0; e < N; e++) old.e[e] = (ACC)(widen(old.e[e]) * keep + widen(add.e[e]) * take);
            *to = old;
        }
        __syncwarp(); /* every lane has read m and l */
        if (lane() == 0) {
            *l = (ACC)(old_l * keep + more_l * take);
            *m = (ACC)most;
        }
    }
}

void gpu_rows_merge(const ra_shape *shape, ra_state state, ra_span rows, ra_state from, const ra_context *context) {
    int64_t count = shape->states * shape->batch * shape->heads_q * rows.count;
    int64_t bytes = (int64_t)ra_shape_acc_bytes(shape);
    if (count == 0) return;
    WITH_ACC(shape, ACC, {
        constexpr int N = TOGETHER<ACC>;
        bool whole = is_whole(state.o, bytes, shape->dim_v, N) && is_whole(from.o, bytes, shape->dim_v, N) &&
                     (state.o_state | from.o_state) % N == 0;
        auto merge = whole ? merge_rows<ACC, N> : merge_rows<ACC, 1>;
        launch_rows(merge, row_blocks(count), context->stream, *shape, state, rows, from, count);
    })
}
