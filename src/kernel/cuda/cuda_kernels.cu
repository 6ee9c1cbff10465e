/* The table of the CUDA kernels, and how a call becomes launches: one for each pass, and in the backward pass one for
 * each level of key sets. */
#include "kernel/cuda/cuda_kernels.h"

#include "kernel/cuda/call_parts.cuh"
#include "kernel/cuda/cuda_rows.h"
#include "kernel/cuda/prepared.cuh"
#include "kernel/cuda/round_queries.cuh"
#include "kernel/cuda/variants.cuh"

#include <algorithm>
#include <climits>
#include <cuda_runtime.h>

/* Of the device in use; 0: none. Compute capability 8.0 is 80. */
static int capability(void) {
    int device, major, minor;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
        cudaGetLastError();
        return 0;
    }
    return major * 10 + minor;
}

static int usable_sm80(void) {
    return capability() >= 80;
}

/* Lists and counters are the prepared object's. */
static size_t scratch_bytes(const ra_shape *shape, int threads, int backward) {
    (void)shape, (void)threads, (void)backward;
    return 0;
}

/* ---- choice ------------------------------------------------------------------------------------------------------ */

/* An element type's variants by width: of `narrow` up to 128 elements, of `wide` above. */
#define VARIANTS(pass, narrow, wide)                                                                                   \
    { &gpu_##pass##_##narrow##_64, &gpu_##pass##_##narrow##_128, &gpu_##pass##_##wide##_256 }

/* Those of a pass: of f32, f64, bf16, f16. f32: what multiplies f32 in rows of up to 128 elements; half: what
 * multiplies bf16 and f16. */
#define ALL_VARIANTS(pass, f32, half)                                                                                  \
    {                                                                                                                  \
        VARIANTS(pass, f32, fma_f32), VARIANTS(pass, fma_f64, fma_f64), VARIANTS(pass, half##_bf16, half##_bf16),      \
            VARIANTS(pass, half##_f16, half##_f16)                                                                     \
    }
#define SM75_VARIANTS(pass)                                                                                            \
    { VARIANTS(pass, sm75_f32, sm75_f32), {}, {}, VARIANTS(pass, sm75_f16, sm75_f16) }

/* Declares variants_<name> and prepare_<name>. smem: bytes of shared memory that it may use. */
#define KERNEL_VARIANTS(name, smem, forward, backward)                                                                 \
    static const gpu_variants variants_##name = {"cuda_" #name, smem, forward, backward};                              \
    static ra_status prepare_##name(const ra_shape *shape, const ra_tile_list *tiles, const ra_kv_rows *parts,         \
                                    int64_t part_count, ra_pass pass, ra_prepared **prepared_out) {                    \
        return gpu_prepare(&variants_##name, shape, tiles, parts, part_count, pass, prepared_out);                     \
    }

enum { ALL_SMEM = INT_MAX, SMEM_99_KB = 99 * 1024, SMEM_64_KB = 64 * 1024 };

KERNEL_VARIANTS(tf32, ALL_SMEM, ALL_VARIANTS(forward, mma_tf32, mma), ALL_VARIANTS(backward, mma_tf32, mma))
KERNEL_VARIANTS(fma, ALL_SMEM, ALL_VARIANTS(forward, fma_f32, mma), ALL_VARIANTS(backward, fma_f32, mma))
KERNEL_VARIANTS(sm86, SMEM_99_KB, ALL_VARIANTS(forward, mma_split, mma), ALL_VARIANTS(backward, mma_split, mma))
KERNEL_VARIANTS(sm80, ALL_SMEM, ALL_VARIANTS(forward, mma_split, mma), ALL_VARIANTS(backward, mma_split, mma))

#if RA_HAVE_SM75
static int usable_sm75(void) {
    return capability() >= 75;
}

KERNEL_VARIANTS(sm75, SMEM_64_KB, SM75_VARIANTS(forward), SM75_VARIANTS(backward))
#endif

#if RA_HAVE_SM90
/* Machine code for Hopper runs on Hopper alone. */
static int usable_sm90(void) {
    return capability() == 90;
}

/* Of a type on Hopper, forward, in the largest units that there are. */
#define TALL_VARIANTS(type)                                                                                            \
    { &gpu_forward_wgmma_##type##_64, &gpu_forward_wgmma_##type##_128_tall, &gpu_forward_wgmma_##type##_256 }
#define ALL_TALL_VARIANTS                                                                                              \
    {                                                                                                                  \
        VARIANTS(forward, mma_split, fma_f32), VARIANTS(forward, fma_f64, fma_f64), TALL_VARIANTS(bf16),               \
            TALL_VARIANTS(f16)                                                                                         \
    }

KERNEL_VARIANTS(sm90_tall, ALL_SMEM, ALL_TALL_VARIANTS, ALL_VARIANTS(backward, mma_split, wgmma))
KERNEL_VARIANTS(sm90, ALL_SMEM, ALL_VARIANTS(forward, mma_split, wgmma), ALL_VARIANTS(backward, mma_split, wgmma))
#endif

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* So many of X as parameters of a kernel, which are 4 KB on some devices. */
template <class X> static constexpr int PARAMETERS = std::min<int>(16, 3584 / sizeof(X));
template <class X> struct parameters { X of[PARAMETERS<X>]; };

template <class X> static __global__ void write_some(X *to, int count, parameters<X> from) {
    int i = (int)threadIdx.x;
    if (i < count) to[i] = from.of[i];
}

/* What comes with a call to where its kernels read it. */
template <class X> static void write_all(const X *to, const X *from, size_t total, cudaStream_t stream) {
    for (size_t at = 0; at < total; at += PARAMETERS<X>) {
        parameters<X> some;
        size_t count = std::min(total - at, (size_t)PARAMETERS<X>);
        std::copy(from + at, from + at + count, some.of);
        write_some<<<1, PARAMETERS<X>, 0, stream>>>((X *)to + at, (int)count, some);
    }
}

static bool captures(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

/* Whether it is what the call before has written, which this one is behind: a plan's calls follow one another. One that
 * is captured writes all, and so do those after it. */
static bool is_written(const ra_prepared *prepared, const ra_kv_rows *parts, const ra_query_rows *queries,
                       cudaStream_t stream) {
    gpu_came *came = prepared->maps.came.get();
    if (captures(stream)) came->in_graphs = true;
    return came->keep(parts, prepared->call_parts, queries, prepared->query_count) && !came->in_graphs;
}

/* Before a call's launches. queries: NULL, or those of several ranks. */
static void take(const ra_prepared *prepared, const ra_kv_rows *parts, const ra_query_rows *queries,
                 cudaStream_t stream) {
    if (!prepared->maps.came || is_written(prepared, parts, queries, stream)) return;
    write_all(prepared->parts, parts, prepared->call_parts, stream);
    write_all(prepared->queries, queries, prepared->query_count, stream);
}

static gpu_problem problem_of(const ra_shape *shape, const ra_kv_rows *parts, const ra_prepared *prepared) {
    gpu_problem p = {};
    p.batch = (int)shape->batch;
    p.heads_q = (int)shape->heads_q;
    p.gqa_ratio = (int)(shape->heads_q / shape->heads_kv);
    p.dim = (int)shape->dim;
    p.dim_v = (int)shape->dim_v;
    p.scale = shape->scale;
    if (!prepared->parts) p.own = parts[0];
    p.parts = prepared->parts;
    p.tiles = prepared->tiles;
    return p;
}

/* Element 0 of a state's [batch, heads_q, rows_q]. */
static char *state_array(const void *array, const ra_shape *shape, int64_t state) {
    int64_t rows = shape->batch * shape->heads_q * shape->rows_q;
    return (char *)array + state * rows * (int64_t)ra_shape_acc_bytes(shape);
}

/* The state that a launch accumulates into. */
static ra_state state_of(const ra_forward_call *call, int64_t state) {
    const ra_shape *shape = call->shape;
    ra_state of = call->state;
    of.o.data = (char *)of.o.data + state * of.o_state * (int64_t)ra_shape_acc_bytes(shape);
    of.m = state_array(of.m, shape, state);
    of.l = state_array(of.l, shape, state);
    return of;
}

static void forward(const ra_forward_call *call) {
    const ra_prepared *prepared = call->prepared;
    const ra_shape *shape = call->shape;
    if (prepared->launches.empty()) return;
    take(prepared, call->parts, call->queries, (cudaStream_t)call->context.stream);
    gpu_forward args = {};
    args.problem = problem_of(shape, call->parts, prepared);
    args.tally = prepared->tally;
    args.pieces = prepared->pieces;
    args.own.q = call->q;
    args.own.rows = shape->rows_q;
    args.own.state = call->state;
    args.queries = prepared->queries;
    args.maps = &prepared->maps;
    args.multiprocessors = prepared->multiprocessors;
    if (call->results) {
        args.own.o_out = call->results->o;
        args.own.lse_out = call->results->lse;
        args.out_is_f32 = shape->out_dtype == RA_F32;
        args.weight = shape->weight;
        args.fresh = call->results->begins && prepared->launches.size() == 1;
        if (call->results->begins && !args.fresh) gpu_rows_begin(shape, call->state, &call->context);
    }
    if (call->queries) args.own = call->queries[0];
    for (size_t i = 0; i < prepared->launches.size(); i++) {
        const gpu_launch &launch = prepared->launches[i];
        args.problem.per_entry = launch.per_entry;
        args.last_entries = launch.last_entries;
        args.finish = call->results && i + 1 == prepared->launches.size();
        args.units = prepared->units + launch.first;
        if (!prepared->other_launches.empty()) {
            args.other_units = prepared->other_units + prepared->other_launches[i].first;
            args.other_count = prepared->other_launches[i].count;
        }
        if (!call->queries) args.own.state = state_of(call, launch.state);
        prepared->forward->launch(&args, launch.count, (cudaStream_t)call->context.stream);
    }
}

/* The rows of one launch are written by one item each, so the first launch can write where the others add. */
static int64_t overwrites(const ra_prepared *prepared) {
    return prepared->overwritten;
}

static int64_t overwrites_queries(const ra_prepared *prepared) {
    return prepared->overwritten_queries;
}

/* The last launch has all rows, and its kernel writes outputs as well as states or sums. */
static int finishes(const ra_prepared *prepared) {
    return prepared->maps.finishes;
}

/* The launch that adds to dq counts turns, and another one can round what they have made. */
static int finishes_queries(const ra_prepared *prepared) {
    return prepared->query_block_count > 0;
}

enum { GAP_THREADS = 256 };

/* dq = 0 in the gaps. A block has one head, if the gap has so many, of a gap in a batch: [batch, heads, gaps]. A warp
 * does a row at a time. queries: NULL, or those of several ranks; own: else. */
static __global__ void __launch_bounds__(GAP_THREADS)
    zero_gaps(const gpu_gap *gaps, unsigned count, int heads, const ra_query_rows *queries, ra_view own, int dim) {
    const gpu_gap gap = gaps[blockIdx.x % count];
    const ra_view dq = queries ? queries[gap_queries(gap)].dq : own;
    int band = (int)(blockIdx.x / count), batch = band / heads, head = band % heads;
    if (head >= gap.head_count) return;
    float *rows = (float *)dq.data + batch * dq.batch + (head_in_gap(gap) + head * gap.head_stride) * dq.head;
    for (int i = (int)threadIdx.x / 32; i < gap.count; i += GAP_THREADS / 32)
        for (int d = (int)threadIdx.x % 32; d < dim; d += 32)
            rows[(gap.first + i * gap.stride) * dq.row + d * dq.dim] = 0;
}

static void backward(const ra_backward_call *call) {
    const ra_prepared *prepared = call->prepared;
    const ra_shape *shape = call->shape;
    cudaStream_t stream = (cudaStream_t)call->context.stream;
    if (prepared->launches.empty()) return;
    take(prepared, call->parts, call->queries, stream);
    cudaMemsetAsync(prepared->tickets, 0, prepared->zero_bytes, stream);
    gpu_backward args = {};
    args.problem = problem_of(shape, call->parts, prepared);
    args.turns = prepared->turns;
    args.ticket = prepared->tickets;
    args.chains = prepared->chains;
    args.own.q = call->q;
    args.own.rows = shape->rows_q;
    args.own.dout = call->dout;
    args.own.lse = call->lse;
    args.own.delta = call->delta;
    args.own.dq = call->dq;
    args.own.dq_out = call->dq_out;
    if (call->queries) args.own = call->queries[0];
    args.queries = prepared->queries;
    args.overwrite = call->overwrite;
    args.finish = call->finish;
    if (call->overwrite_queries && prepared->gap_count)
        zero_gaps<<<prepared->gap_count *(unsigned)(shape->batch * shape->heads_q), GAP_THREADS, 0, stream>>>(
            prepared->gaps, prepared->gap_count, (int)shape->heads_q, prepared->queries, args.own.dq, (int)shape->dim);
    args.maps = &prepared->maps;
    for (const gpu_launch &launch : prepared->launches) {
        args.problem.per_entry = launch.per_entry;
        args.items = prepared->items + launch.first;
        args.heads = launch.per_entry / args.problem.batch;
        args.own.lse = state_array(call->queries ? args.own.lse : call->lse, shape, launch.state);
        args.own.delta = state_array(call->queries ? args.own.delta : call->delta, shape, launch.state);
        args.overwrite_queries = call->overwrite_queries && launch.round == 0;
        prepared->backward->launch(&args, launch.count, stream);
        args.ticket++;
        args.overwrite = 0;
    }
    if (call->finish_queries) gpu_round_queries(call, args, stream);
}

/* A call of all ranks is what one rank alone would do. */
enum { BUSY_KEYS = 1 };

#define KERNEL(name, usable)                                                                                           \
    {                                                                                                                  \
        "cuda_" #name, usable, scratch_bytes, prepare_##name, gpu_list_size, gpu_place, gpu_discard, overwrites,       \
            finishes, BUSY_KEYS, forward, backward, gpu_rows_begin, gpu_rows_merge, gpu_rows_finish, gpu_rows_delta,   \
            gpu_rows_carry, gpu_rows_pack, gpu_rows_add_rows, gpu_rows_add, gpu_rows_store, gpu_rows_fill,             \
            overwrites_queries, finishes_queries                                                                       \
    }

/* Best last. tf32 and fma differ from sm80 in f32 alone: tf32 multiplies it with less precision than it has, fma on the
 * FMA units. sm86 is sm80 within the shared memory of smaller GPUs, where sm80 takes the same variants; sm90_tall is
 * sm90 in its largest units alone, of which sm90 takes what costs less. Whoever runs those four can run sm80 or sm90 as
 * well, so they are never chosen but by name. */
static const ra_kernel table[] = {
    KERNEL(tf32, usable_sm80),      KERNEL(fma, usable_sm80),
#if RA_HAVE_SM75
    KERNEL(sm75, usable_sm75),
#endif
    KERNEL(sm86, usable_sm80),      KERNEL(sm80, usable_sm80),
#if RA_HAVE_SM90
    KERNEL(sm90_tall, usable_sm90), KERNEL(sm90, usable_sm90),
#endif
};

extern "C" const ra_kernel *ra_cuda_kernel_at(int index) {
    return index >= 0 && index < (int)(sizeof table / sizeof *table) ? &table[index] : NULL;
}
