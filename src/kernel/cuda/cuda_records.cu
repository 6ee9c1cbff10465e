/* Row operations on records, [heads.count, rows.count, batch, dim + dim_v] in C-order: pack, add_rows; and add. */
#include "kernel/cuda/cuda_rows.h"
#include "kernel/cuda/row_warps.cuh"

enum { PACKED_TOGETHER = 4 };

/* Where a record is: of the views, and how many records lie before it. */
struct record_place {
    int64_t b, row, head, at;
};

/* Record number i in the order in which they lie, or in that of a view's rows with their heads side by side: what is
 * written should be in order. */
template <bool BY_ROWS>
static __device__ __forceinline__ record_place record_at(int64_t i, int64_t batch, const ra_span &rows,
                                                         const ra_span &heads) {
    int64_t fast = BY_ROWS ? heads.count : batch, band = quotient(i, fast), first = i - band * fast;
    int64_t slow = quotient(band, rows.count), row = band - slow * rows.count;
    record_place p;
    int64_t head = BY_ROWS ? first : slow;
    p.b = BY_ROWS ? slow : first;
    p.row = rows.first + row * rows.stride;
    p.head = heads.first + head * heads.stride;
    p.at = (head * rows.count + row) * batch + p.b;
    return p;
}

/* UNIT: what is copied at a time. Strides and widths are in units. A warp does several records together: while one is
 * on its way from memory, so are the others. */
template <class UNIT>
static __global__ void __launch_bounds__(BESIDE_THREADS)
    pack_records(UNIT *to, ra_view k, ra_view v, ra_span rows, ra_span heads, int64_t batch, int64_t width,
                 int64_t width_v) {
    int64_t count = batch * rows.count * heads.count, step = row_step(), each = width + width_v;
    for (int64_t i = first_row(); i < count; i += PACKED_TOGETHER * step) {
        const UNIT *x[PACKED_TOGETHER], *y[PACKED_TOGETHER];
#pragma unroll
        for (int n = 0; n < PACKED_TOGETHER; n++) {
            int64_t record = i + n * step < count ? i + n * step : i;
            record_place p = record_at<false>(record, batch, rows, heads);
            x[n] = row_of<UNIT>(k, p.b, p.row, p.head);
            y[n] = row_of<UNIT>(v, p.b, p.row, p.head);
        }
#pragma unroll 1 /* there are 64 registers for each of 1024 threads */
        for (int64_t d = lane(); d < each; d += 32) {
            UNIT z[PACKED_TOGETHER];
#pragma unroll
            for (int n = 0; n < PACKED_TOGETHER; n++) z[n] = d < width ? x[n][d * k.dim] : y[n][(d - width) * v.dim];
#pragma unroll
            for (int n = 0; n < PACKED_TOGETHER; n++)
                if (i + n * step < count) to[(i + n * step) * each + d] = z[n];
        }
    }
}

static ra_view in_units(ra_view view, int64_t each) {
    ra_view units = {view.data, view.batch / each, view.row / each, view.head / each, 1};
    return units;
}

void gpu_rows_pack(const ra_shape *shape, void *to, ra_view k, ra_view v, ra_span rows, ra_span heads,
                   const ra_context *context) {
    int64_t bytes = (int64_t)ra_dtype_bytes(shape->dtype), each = 16 / bytes, dim = shape->dim, dim_v = shape->dim_v;
    int64_t records = shape->batch * rows.count * heads.count;
    int64_t warps = (records + PACKED_TOGETHER - 1) / PACKED_TOGETHER;
    cudaStream_t stream = (cudaStream_t)context->stream;
    if (records == 0) return;
    if (is_whole(k, bytes, dim, (int)each) && is_whole(v, bytes, dim_v, (int)each) && ((uint64_t)to & 15) == 0)
        launch_beside(pack_records<uint4>, warps, stream, (uint4 *)to, in_units(k, each), in_units(v, each), rows,
                      heads, shape->batch, dim / each, dim_v / each);
    else
        WITH_TYPE(shape->dtype, T,
                  launch_beside(pack_records<T>, warps, stream, (T *)to, k, v, rows, heads, shape->batch, dim, dim_v))
}

template <class ACC, int N>
static __global__ void __launch_bounds__(BESIDE_THREADS)
    add_records(ra_view dk, ra_view dv, const ACC *from, ra_span rows, ra_span heads, int64_t batch, int64_t width,
                int64_t width_v) {
    for (int64_t i = first_row(); i < batch * rows.count * heads.count; i += row_step()) {
        record_place p = record_at<true>(i, batch, rows, heads);
        ACC *x = row_of<ACC>(dk, p.b, p.row, p.head), *y = row_of<ACC>(dv, p.b, p.row, p.head);
        const ACC *record = from + p.at * (width + width_v);
#pragma unroll 2
        for (int64_t d = lane() * N; d < width + width_v; d += 32 * N) {
            auto *to = (together<ACC, N> *)(d < width ? x + d * dk.dim : y + (d - width) * dv.dim);
            together<ACC, N> old = *to, more = *(const together<ACC, N> *)(record + d);
#pragma unroll
            for (int e = 0; e < N; e++) old.e[e] += more.e[e];
            *to = old;
        }
    }
}

void gpu_rows_add_rows(const ra_shape *shape, ra_view dk, ra_view dv, const void *from, ra_span rows, ra_span heads,
                       const ra_context *context) {
    int64_t records = shape->batch * rows.count * heads.count, bytes = (int64_t)ra_shape_acc_bytes(shape);
    cudaStream_t stream = (cudaStream_t)context->stream;
    if (records == 0) return;
    WITH_ACC(shape, ACC, {
        constexpr int N = TOGETHER<ACC>;
        bool whole = is_whole(dk, bytes, shape->dim, N) && is_whole(dv, bytes, shape->dim_v, N);
        auto add = whole && ((uint64_t)from & 15) == 0 ? add_records<ACC, N> : add_records<ACC, 1>;
        launch_last(add, records, stream, dk, dv, (const ACC *)from, rows, heads, shape->batch, shape->dim,
                    shape->dim_v);
    })
}

enum { ADDED_TOGETHER = 4 };

/* N elements at a time, and several of those: while some are on their way from memory, so are the others. */
template <class ACC, int N>
static __global__ void __launch_bounds__(BESIDE_THREADS) add_elements(ACC *to, const ACC *from, int64_t count) {
    int64_t step = (int64_t)gridDim.x * blockDim.x, first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t whole = count / N;
    auto *sums = (together<ACC, N> *)to;
    const auto *more = (const together<ACC, N> *)from;
    for (int64_t i = first; i < whole; i += ADDED_TOGETHER * step) {
        together<ACC, N> x[ADDED_TOGETHER], y[ADDED_TOGETHER];
#pragma unroll
        for (int n = 0; n < ADDED_TOGETHER; n++) {
            int64_t at = i + n * step < whole ? i + n * step : i;
            x[n] = sums[at];
            y[n] = more[at];
        }
#pragma unroll
        for (int n = 0; n < ADDED_TOGETHER; n++) {
#pragma unroll
            for (int e = 0; e < N; e++) x[n].e[e] += y[n].e[e];
            if (i + n * step < whole) sums[i + n * step] = x[n];
        }
    }
    if (whole * N + first < count) to[whole * N + first] += from[whole * N + first];
}

void gpu_rows_add(const ra_shape *shape, void *to, const void *from, int64_t count, const ra_context *context) {
    if (count == 0) return;
    WITH_ACC(shape, ACC, {
        constexpr int N = TOGETHER<ACC>;
        int64_t warps = (count + 32 * N * ADDED_TOGETHER - 1) / (32 * N * ADDED_TOGETHER);
        bool whole = (((uint64_t)to | (uint64_t)from) & 15) == 0;
        auto add = whole ? add_elements<ACC, N> : add_elements<ACC, 1>;
        launch_beside(add, warps, context->stream, (ACC *)to, (const ACC *)from, count);
    })
}
