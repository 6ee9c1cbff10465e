/* Row operations run by warps, mostly one for each row. Elements that are computed with go through doubles, so that
 * what is written has been rounded once (but for delta of 16-bit numbers); N of them go together where they lie side by
 * side (is_whole). */
#ifndef RA_KERNEL_CUDA_ROW_WARPS_CUH
#define RA_KERNEL_CUDA_ROW_WARPS_CUH

#include "device/cuda/launch.cuh"
#include "kernel/cuda/kernel_table.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

enum { ROW_THREADS = 256, ROW_WARPS = ROW_THREADS / 32 };

/* Blocks for so many rows, a warp to each, or to several: more blocks than a GPU can hold twice over would only be more
 * to start. */
static inline unsigned row_blocks(int64_t rows) {
    const int64_t most = 2048, blocks = (rows + ROW_WARPS - 1) / ROW_WARPS;
    return (unsigned)(blocks < most ? blocks : most);
}

template <class... PARAMETERS, class... ARGUMENTS>
static void launch_rows(void (*kernel)(PARAMETERS...), unsigned blocks, void *stream, ARGUMENTS... arguments) {
    launch_urgent(kernel, blocks, ROW_THREADS, stream, arguments...);
}

/* The rows that this warp does: first, first + step, ... */
static __device__ __forceinline__ int64_t first_row(void) {
    return (int64_t)blockIdx.x * (blockDim.x / 32) + (int)threadIdx.x / 32;
}

static __device__ __forceinline__ int64_t row_step(void) {
    return (int64_t)gridDim.x * (blockDim.x / 32);
}

/* Where a warp does ROWS_AT_ONCE neighbouring rows, so that the memory's answer is waited for once: the first of them
 * is first_group(), then a group_step() on. */
enum { ROWS_AT_ONCE = 4 };

static inline unsigned group_blocks(int64_t rows) {
    return row_blocks((rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE);
}

static __device__ __forceinline__ int64_t first_group(void) {
    return first_row() * ROWS_AT_ONCE;
}

static __device__ __forceinline__ int64_t group_step(void) {
    return row_step() * ROWS_AT_ONCE;
}

static __device__ __forceinline__ int lane(void) {
    return (int)threadIdx.x % 32;
}

static __device__ __forceinline__ double widen(float x) {
    return x;
}
static __device__ __forceinline__ double widen(double x) {
    return x;
}
static __device__ __forceinline__ double widen(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
static __device__ __forceinline__ double widen(__half x) {
    return __half2float(x);
}

static __device__ __forceinline__ void narrow(float *to, double x) {
    *to = (float)x;
}
static __device__ __forceinline__ void narrow(__nv_bfloat16 *to, float x) {
    *to = __float2bfloat16(x);
}
static __device__ __forceinline__ void narrow(__half *to, float x) {
    *to = __float2half(x);
}
static __device__ __forceinline__ void narrow(float *to, float x) {
    *to = x;
}
static __device__ __forceinline__ void narrow(double *to, double x) {
    *to = x;
}
static __device__ __forceinline__ void narrow(__nv_bfloat16 *to, double x) {
    *to = __double2bfloat16(x);
}
static __device__ __forceinline__ void narrow(__half *to, double x) {
    *to = __double2half(x);
}

static __device__ __forceinline__ double warp_sum(double x) {
    for (int step = 16; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
}

/* The sums over all lanes of ROWS_AT_ONCE numbers, one of them in each lane: that of x[r] is in lane r. Lanes that add
 * up different ones exchange what the other needs. */
template <class REAL> static __device__ __forceinline__ REAL warp_sums(const REAL (&x)[ROWS_AT_ONCE]) {
    static_assert(ROWS_AT_ONCE == 4, "halved twice");
    bool odd = lane() & 1, upper = lane() & 2;
    REAL low = (odd ? x[1] : x[0]) + __shfl_xor_sync(~0u, odd ? x[0] : x[1], 1);
    REAL high = (odd ? x[3] : x[2]) + __shfl_xor_sync(~0u, odd ? x[2] : x[3], 1);
    REAL sum = (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, 2);
    for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
}

/* Element [b, row, h, 0]. */
template <class T> static __device__ __forceinline__ T *row_of(const ra_view &view, int64_t b, int64_t row, int64_t h) {
    return (T *)view.data + b * view.batch + row * view.row + h * view.head;
}

/* A number below batch * heads * rows, rows running fastest. */
struct row_number {
    int64_t b, h, row;
};

/* As i / by; divisions of 64 bits take many times longer, and are seldom needed. */
static __device__ __forceinline__ int64_t quotient(int64_t i, int64_t by) {
    return (i | by) >> 32 ? i / by : (int64_t)((uint32_t)i / (uint32_t)by);
}

static __device__ __forceinline__ row_number row_number_of(int64_t i, int64_t heads, int64_t rows) {
    int64_t band = quotient(i, rows);
    row_number n;
    n.row = i - band * rows;
    n.b = quotient(band, heads);
    n.h = band - n.b * heads;
    return n;
}

/* The number of a lane's row of ROWS_AT_ONCE neighbours from i on, below count: lane r has that of row i + r, so that
 * numbers are divided once for all of them. */
static __device__ __forceinline__ row_number row_number_of_lane(int64_t i, int64_t count, int64_t heads, int64_t rows) {
    int64_t mine = i + lane() % ROWS_AT_ONCE;
    return row_number_of(mine < count ? mine : i, heads, rows);
}

/* What lane r has as `mine`, in all lanes, as row r. */
template <class T> static __device__ __forceinline__ void rows_of_lanes(T *(&to)[ROWS_AT_ONCE], T *mine) {
#pragma unroll
    for (int r = 0; r < ROWS_AT_ONCE; r++) to[r] = (T *)__shfl_sync(~0u, (uint64_t)mine, r);
}

/* N elements that are loaded or stored at once. */
template <class T, int N> struct __align__(N * sizeof(T)) together {
    T e[N];
};

/* How many of a type go together: 16 bytes of them. */
template <class T> constexpr int TOGETHER = 16 / (int)sizeof(T);

/* Whether rows of `width` elements of that many bytes can be read and written n at a time. */
static inline bool is_whole(const ra_view &view, int64_t bytes, int64_t width, int n) {
    int64_t strides = view.batch | view.row | view.head | width;
    return view.dim == 1 && strides % n == 0 && (uint64_t)view.data % (uint64_t)(n * bytes) == 0;
}

/* What comes after it, with the C++ type of a dtype as TYPE. */
#define WITH_TYPE(dtype, TYPE, ...)                                                                                    \
    switch (dtype) {                                                                                                   \
    case RA_F32: {                                                                                                     \
        using TYPE = float;                                                                                            \
        __VA_ARGS__;                                                                                                   \
        break;                                                                                                         \
    }                                                                                                                  \
    case RA_F64: {                                                                                                     \
        using TYPE = double;                                                                                           \
        __VA_ARGS__;                                                                                                   \
        break;                                                                                                         \
    }                                                                                                                  \
    case RA_BF16: {                                                                                                    \
        using TYPE = __nv_bfloat16;                                                                                    \
        __VA_ARGS__;                                                                                                   \
        break;                                                                                                         \
    }                                                                                                                  \
    case RA_F16: {                                                                                                     \
        using TYPE = __half;                                                                                           \
        __VA_ARGS__;                                                                                                   \
        break;                                                                                                         \
    }                                                                                                                  \
    }

/* The accumulation type of a shape as TYPE. */
#define WITH_ACC(shape, TYPE, ...)                                                                                     \
    if ((shape)->dtype == RA_F64) {                                                                                    \
        using TYPE = double;                                                                                           \
        __VA_ARGS__;                                                                                                   \
    } else {                                                                                                           \
        using TYPE = float;                                                                                            \
        __VA_ARGS__;                                                                                                   \
    }

#endif
