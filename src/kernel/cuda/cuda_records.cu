/* Row operations on records, [heads.count, rows.count, batch, dim + dim_v] in C-order: pack, add_rows; and add. */
#include "kernel/cuda/cuda_rows.h"
#include "kernel/cuda/row_warps.cuh"

/* The numbers of records: batch runs fastest, so a warp's record is the i-th in memory. */
struct record_place {
    int64_t b, row, head; /* row and head of the views */
};

static __device__ __forceinline__ record_place record_at(int64_t i, int64_t batch, const ra_span &rows,
                                                         const ra_span &heads) {
    record_place p;
    p.b = i % batch;
    p.row = rows.first + i / batch % rows.count * rows.stride;
    p.head = heads.first + i / batch / rows.count * heads.stride;
    return p;
}

/* UNIT: what is copied at a time. Strides and widths are in units. */
template <class UNIT>
static __global__ void pack_records(UNIT *to, ra_view k, ra_view v, ra_span rows, ra_span heads, int64_t batch,
                                    int64_t width, int64_t width_v) {
    for (int64_t i = first_row(); i < batch * rows.count * heads.count; i += row_step()) {
        record_place p = record_at(i, batch, rows, heads);
        const UNIT *x = row_of<UNIT>(k, p.b, p.row, p.head), *y = row_of<UNIT>(v, p.b, p.row, p.head);
        UNIT *record = to + i * (width + width_v);
        for (int64_t d = lane(); d < width; d += 32) record[d] = x[d * k.dim];
        for (int64_t d = lane(); d < width_v; d += 32) record[width + d] = y[d * v.dim];
    }
}

static int is_whole(ra_view view, int64_t bytes, int64_t width) {
    uint64_t all = (uint64_t)view.data | (uint64_t)(view.batch * bytes) | (uint64_t)(view.row * bytes) |
                   (uint64_t)(view.head * bytes) | (uint64_t)(width * bytes);
    return view.dim == 1 && (all & 15) == 0;
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
    if (is_whole(k, bytes, dim) && is_whole(v, bytes, dim_v) && ((uint64_t)to & 15) == 0)
        pack_records<uint4><<<blocks, ROW_THREADS, 0, stream>>>((uint4 *)to, in_units(k, each), in_units(v, each), rows,
                                                                heads, shape->batch, dim / each, dim_v / each);
    else
        WITH_TYPE(shape->dtype, T,
                  pack_records<T>
                  <<<blocks, ROW_THREADS, 0, stream>>>((T *)to, k, v, rows, heads, shape->batch, dim, dim_v))
}

template <class ACC>
static __global__ void add_records(ra_view dk, ra_view dv, const ACC *from, ra_span rows, ra_span heads, int64_t batch,
                                   int64_t width, int64_t width_v) {
    for (int64_t i = first_row(); i < batch * rows.count * heads.count; i += row_step()) {
        record_place p = record_at(i, batch, rows, heads);
        ACC *x = row_of<ACC>(dk, p.b, p.row, p.head), *y = row_of<ACC>(dv, p.b, p.row, p.head);
        const ACC *record = from + i * (width + width_v);
        for (int64_t d = lane(); d < width; d += 32) x[d * dk.dim] += record[d];
        for (int64_t d = lane(); d < width_v; d += 32) y[d * dv.dim] += record[width + d];
    }
}

void gpu_rows_add_rows(const ra_shape *shape, ra_view dk, ra_view dv, const void *from, ra_span rows, ra_span heads,
                       const ra_launch *launch) {
    unsigned blocks = row_blocks(shape->batch * rows.count * heads.count);
    if (blocks == 0) return;
    WITH_ACC(shape, ACC,
             add_records<ACC><<<blocks, ROW_THREADS, 0, (cudaStream_t)launch->stream>>>(
                 dk, dv, (const ACC *)from, rows, heads, shape->batch, shape->dim, shape->dim_v))
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
