/* dq becomes the output, block by block. The launch begins when the last CTA of the launch before it has begun: as
 * multiprocessors run out of items, its CTAs come there, and each waits until its block has had all of its turns.
 *
 *   multiprocessor 0   ▇ item ▇▇ item ▇▇▇▇ item ▇▇▇ ▒▒▒▒▒▒▒
 *                  1   ▇▇▇▇ item ▇▇▇▇ item ▇▇▇▇ item ▇▇▇▇▇▇ ▒    ▒ blocks of dq
 *                  2   ▇▇ item ▇▇▇ item ▇▇▇▇ ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
 *
 * All items that a CTA can wait for run already, so it waits for nobody who waits for it. Blocks are mostly in the
 * cache yet. What comes behind this launch is behind the one before as well: the last CTA ends when that is over.
 */
#include "kernel/cuda/round_queries.cuh"

#include "kernel/cuda/call_parts.cuh"
#include "kernel/cuda/dependent_launch.cuh"
#include "kernel/cuda/row_warps.cuh"
#include "kernel/cuda/tile_cursor.cuh"

#include <algorithm>

enum { BLOCKED_THREADS = 256, BLOCKED_TOGETHER = 4 /* rows of a thread that are asked for at once */ };

/* [block, batch, heads]: a CTA has one head of a block. N elements at a time. */
template <class OUT, int N>
static __global__ void __launch_bounds__(BLOCKED_THREADS)
    round_blocks(const gpu_query_block *blocks, int batch, int heads, const int *chains, const ra_query_rows *queries,
                 ra_view dq, ra_view out, int dim) {
    unsigned bands = (unsigned)(batch * heads);
    const gpu_query_block block = blocks[blockIdx.x / bands];
    int band = (int)(blockIdx.x % bands), b = band / heads, head = band % heads;
    if (head < block.head_count) {
        const int *chain = chains + block.chain + ((int64_t)b * block.head_count + head) * block.blocks;
        if (threadIdx.x == 0)
            while (chain_acquire(chain) < block.turns) __nanosleep(200);
        __syncthreads();
        if (queries) dq = queries[gap_queries(block)].dq, out = queries[gap_queries(block)].dq_out;
        int64_t h = head_in_gap(block) + head * block.head_stride;
        int lanes = dim / N, at_once = BLOCKED_THREADS / lanes, first = (int)threadIdx.x / lanes;
        int d = (int)threadIdx.x % lanes * N;
        const float *from = row_of<float>(dq, b, block.first, h) + d * dq.dim;
        OUT *to = row_of<OUT>(out, b, block.first, h) + d * out.dim;
        for (int row = first; row < block.count && first < at_once; row += BLOCKED_TOGETHER * at_once) {
            together<float, N> x[BLOCKED_TOGETHER];
#pragma unroll
            for (int i = 0; i < BLOCKED_TOGETHER; i++) {
                int64_t at = min(row + i * at_once, block.count - 1) * block.stride;
                x[i] = *(const together<float, N> *)(from + at * dq.row);
            }
#pragma unroll
            for (int i = 0; i < BLOCKED_TOGETHER; i++) {
                together<OUT, N> y;
                int64_t at = row + i * at_once;
#pragma unroll
                for (int e = 0; e < N; e++) narrow(&y.e[e], x[i].e[e]);
                if (at < block.count) *(together<OUT, N> *)(to + at * block.stride * out.row) = y;
            }
        }
    }
    if (blockIdx.x == gridDim.x - 1) wait_for_launch_before();
}

template <class OUT, int N>
static void round(const ra_backward_call *call, const gpu_backward &args, cudaStream_t stream) {
    const ra_prepared *prepared = call->prepared;
    const ra_shape *shape = call->shape;
    unsigned ctas = prepared->query_block_count * (unsigned)(shape->batch * shape->heads_q);
    launch_dependent<round_blocks<OUT, N>>(ctas, BLOCKED_THREADS, 0, stream, prepared->query_blocks, (int)shape->batch,
                                           (int)shape->heads_q, (const int *)args.chains, args.queries, args.own.dq,
                                           args.own.dq_out, (int)shape->dim);
}

/* Whether rows of dq and of the output can be read and written n elements at a time: of all ranks' queries, or of the
 * one rank's that there are. */
static bool are_whole(const ra_backward_call *call, const gpu_backward &args, int n) {
    auto is_so = [=](const ra_query_rows &rows) {
        int64_t dim = call->shape->dim, bytes = (int64_t)ra_dtype_bytes(call->shape->out_dtype);
        return is_whole(rows.dq, sizeof(float), dim, n) && is_whole(rows.dq_out, bytes, dim, n);
    };
    if (!args.queries) return is_so(args.own);
    return std::all_of(call->queries, call->queries + call->prepared->query_count, is_so);
}

template <class OUT> static void round_to(const ra_backward_call *call, const gpu_backward &args, cudaStream_t stream) {
    constexpr int N = 4;
    if (are_whole(call, args, N))
        round<OUT, N>(call, args, stream);
    else
        round<OUT, 1>(call, args, stream);
}

void gpu_round_queries(const ra_backward_call *call, const gpu_backward &args, cudaStream_t stream) {
    if (call->shape->out_dtype == RA_BF16)
        round_to<__nv_bfloat16>(call, args, stream);
    else
        round_to<__half>(call, args, stream);
}
