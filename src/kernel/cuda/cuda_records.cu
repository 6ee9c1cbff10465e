/* Row operations on records, [heads.count, rows.count, batch, dim + dim_v] in C-order: pack, add_rows; and add. */
#include "kernel/cuda/cuda_rows.h"
#include "kernel/cuda/row_warps.cuh"

/* Warps take the heads of a row side by side, as they usually lie in the views: their memory is then read in order. */
struct record_place {
    int64_t b, row, head; /* of the views */
    int64_t at;           /* records before it */
};

static __device__ __forceinline__ record_place record_at(int64_t i, int64_t batch, const ra_span &rows,
                                                         const ra_span &heads) {
    int64_t band = quotient(i, heads.count), head = i - band * heads.count;
    record_place p;
    p.b = quotient(band, rows.count);
    int64_t row = band - p.b * rows.count;
    p.row = rows.first + row * rows.stride;
    p.head = heads.first + head * heads.stride;
    p.at = (head * rows.count + row) * batch + p.b;
    return p;
}

/* UNIT: what is copied at a time. Strides and widths are in units. */
template <class UNIT>
static __global__ void pack_records(UNIT *to, ra_view k, ra_view v, ra_span rows, ra_span heads, int64_t batch,
                                    int64_t width, int64_t width_v) {
    for (int64_t i = first_row(); i < batch * rows.count * heads.count; i += row_step()) {
        record_place p = record_at(i, batch, rows, heads);
        const UNIT *x = row_of<UNIT>(k, p.b, p.row, p.head), *y = row_of<UNIT>(v, p.b, p.row, p.head);
        UNIT *record = to + p.at * (width + width_v);
        for (int64_t d = lane(); d < width + width_v; d += 32)
            record[d] = d < width ? x[d * k.dim] : y[(d - width) * v.dim];
    }
}

static ra_view in_units(ra_view view, int64_t each) {
    ra_view units = {view.data, view.batch / each, view.row / each, view.head / each, 1};
    return units;
}

void gpu_rows_pack(const ra_shape *shape, void *to, ra_view k, ra_view v, ra_span rows, ra_span heads,
                   const ra_launch *launch) {
    int64_t bytes = (int64_t)ra_dtype_bytes(shape->dtype), each = 16 / bytes, dim = shape->dim, dim_v = shape->dim_v;
    unsigned blocks = row_blocks(shape->batch * rows.count * heads.count);
    cudaStream_t stream = (cudaStream_t)launch->stream;
    if (blocks == 0) return;
    if (is_whole(k, bytes, dim, (int)each) && is_whole(v, bytes, dim_v, (int)each) && ((uint64_t)to & 15) == 0)
        pack_records<uint4><<<blocks, ROW_THREADS, 0, stream>>>((uint4 *)to, in_units(k, each), in_units(v, each), rows,
                                                                heads, shape->batch, dim / each, dim_v / each);
    else
        WITH_TYPE(shape->dtype, T,
                  pack_records<T>
                  <<<blocks, ROW_THREADS, 0, stream>>>((T *)to, k, v, rows, heads, shape->batch, dim, dim_v))
}

template <class ACC, int N>
static __global__ void add_records(ra_view dk, ra_view dv, const ACC *from, ra_span rows, ra_span heads, int64_t batch,
                                   int64_t width, int64_t width_v) {
    for (int64_t i = first_row(); i < batch * rows.count * heads.count; i += row_step()) {
        record_place p = record_at(i, batch, rows, heads);
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
                       const ra_launch *launch) {
    unsigned blocks = row_blocks(shape->batch * rows.count * heads.count);
    int64_t bytes = (int64_t)ra_shape_acc_bytes(shape);
    cudaStream_t stream = (cudaStream_t)launch->stream;
    if (blocks == 0) return;
    WITH_ACC(shape, ACC, {
        constexpr int N = TOGETHER<ACC>;
        bool whole = is_whole(dk, bytes, shape->dim, N) && is_whole(dv, bytes, shape->dim_v, N);
        auto add = whole && ((uint64_t)from & 15) == 0 ? add_records<ACC, N> : add_records<ACC, 1>;
        add<<<blocks, ROW_THREADS, 0, stream>>>(dk, dv, (const ACC *)from, rows, heads, shape->batch, shape->dim,
                                                shape->dim_v);
    })
}

template <class ACC> static __global__ void add_elements(ACC *to, const ACC *from, int64_t count) {
    for (int64_t i = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x; i < count; i += (int64_t)gridDim.x * ROW_THREADS)
        to[i] += from[i];
}

void gpu_rows_add(const ra_shape *shape, void *to, const void *from, int64_t count, const ra_launch *launch) {
    unsigned blocks = row_blocks((count + 31) / 32);
    if (blocks == 0) return;
    WITH_ACC(shape, ACC,
             add_elements<ACC>
             <<<blocks, ROW_THREADS, 0, (cudaStream_t)launch->stream>>>((ACC *)to, (const ACC *)from, count))
}
