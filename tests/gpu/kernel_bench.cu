/* How fast the CUDA kernels are by themselves, on one tile: medians. Whether they are right kernel_check says.
 *
 *   kernel_bench [--kernel NAME] [--seeds N] [--seed FIRST] [--repeats N] [--listed 0|1]
 *
 * The kernel is the best one that this GPU can run, unless one is named. --repeats: how often each pass is timed,
 * instead of 9 times or, where it takes long, fewer. --listed 1: the keys are listed one by one, in their order, so
 * that no tensor map has them. --seed, --seeds: of the random inputs; every problem is timed with each.
 *
 * Builds without the rest of the project as kernel_check.cu says, in a folder of its own and with kernel_bench.cu in
 * place of kernel_check.cu and check_*.cu.
 */
#include "kernel_setup.h"

extern "C" {
#include "support/tiles/tile_case.h"
}

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

static int listed;

struct bench_problem {
    ra_shape shape;
    ra_view q, dout, dq;
    ra_kv_rows part;
    ra_state state;
    void *lse, *delta;
    ra_tile tile;
    ra_tile_group group;
    ra_tile_round round;
    ra_tile_list list;
    ra_context context;
};

/* [1, rows, heads, dim] with random elements, repeated every 2^20 of them. */
static ra_view random_rows(rng *r, ra_dtype dtype, int64_t rows, int64_t heads, int64_t dim) {
    const int64_t period = 1 << 20, count = rows * heads * dim;
    size_t bytes = ra_dtype_bytes(dtype);
    std::vector<double> wide((size_t)period);
    std::vector<unsigned char> narrow((size_t)period * bytes);
    for (double &x : wide) x = rng_normal(r);
    ra_convert(dtype, narrow.data(), RA_F64, wide.data(), period);
    char *data = (char *)take((size_t)count * bytes);
    for (int64_t at = 0; at < count; at += period)
        CHECK(cudaMemcpy(data + (size_t)at * bytes, narrow.data(), (size_t)std::min(period, count - at) * bytes,
                         cudaMemcpyHostToDevice));
    return {data, 0, heads * dim, dim, 1};
}

static void make_bench(bench_problem *b, ra_dtype dtype, int64_t n, int64_t heads, int64_t dim, int causal,
                       unsigned seed) {
    static std::vector<int64_t> index;
    rng r = {seed};
    ra_dtype acc = dtype == RA_F64 ? RA_F64 : RA_F32;
    *b = {};
    b->shape = {1, heads, heads, dim, dim, n, 1, 1 / std::sqrt((double)dim), 1, dtype, acc};
    b->q = random_rows(&r, dtype, n, heads, dim);
    b->dout = random_rows(&r, dtype, n, heads, dim);
    b->dq = random_rows(&r, acc, n, heads, dim);
    b->part = {random_rows(&r, dtype, n, heads, dim),
               random_rows(&r, dtype, n, heads, dim),
               random_rows(&r, acc, n, heads, dim),
               random_rows(&r, acc, n, heads, dim),
               {0, 1, heads}};
    b->state.o = random_rows(&r, acc, n, heads, dim);
    b->state.m = take((size_t)(n * heads) * ra_dtype_bytes(acc));
    b->state.l = take((size_t)(n * heads) * ra_dtype_bytes(acc));
    b->lse = take((size_t)(n * heads) * ra_dtype_bytes(acc));
    b->delta = take((size_t)(n * heads) * ra_dtype_bytes(acc));
    b->tile.q_rows = b->tile.k_rows = {0, 1, n};
    b->tile.heads = {0, 1, heads};
    b->tile.lo = -n;
    b->tile.hi = causal ? 0 : n;
    b->group = {0, 1};
    b->round = {0, 1, 0};
    b->list = {&b->tile, &b->group, &b->round, 1, 1, 1};
    b->context.threads = 1;
    if (!listed) return;
    index.resize((size_t)n);
    std::iota(index.begin(), index.end(), 0);
    b->tile.k_index = index.data();
}

template <class RUN> static double median_ms(RUN run, int repeats) {
    cudaEvent_t from, to;
    std::vector<float> times;
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&to));
    for (int i = -2; i < repeats; i++) {
        float ms;
        CHECK(cudaEventRecord(from));
        run();
        CHECK(cudaEventRecord(to));
        CHECK(cudaEventSynchronize(to));
        CHECK(cudaEventElapsedTime(&ms, from, to));
        if (i >= 0) times.push_back(ms);
    }
    CHECK(cudaEventDestroy(from));
    CHECK(cudaEventDestroy(to));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

static void bench_one(ra_dtype dtype, int64_t n, int64_t heads, int64_t dim, int causal, unsigned seed, int repeats) {
    static bench_problem b;
    if (!kernel_takes(dtype)) return;
    make_bench(&b, dtype, n, heads, dim, causal, seed);
    ra_prepared *forward = prepared_of(b.shape, b.list, NULL, 1, RA_FORWARD);
    ra_prepared *backward = prepared_of(b.shape, b.list, NULL, 1, RA_BACKWARD);
    ra_forward_call there = {&b.shape, b.q, &b.part, b.list, b.state, b.context, forward};
    ra_backward_call back = {&b.shape, b.q, b.dout, b.lse, b.delta, &b.part, b.list, b.dq, b.context, backward};
    kernel->begin(&b.shape, b.state, &b.context);
    kernel->forward(&there);
    kernel->carry(&b.shape, b.state, b.dout, b.lse, b.delta, &b.context);
    CHECK(cudaDeviceSynchronize());
    double begin = median_ms([&] { kernel->begin(&b.shape, b.state, &b.context); }, repeats);
    double both = median_ms(
        [&] {
            kernel->begin(&b.shape, b.state, &b.context);
            kernel->forward(&there);
        },
        repeats);
    double end = median_ms(
        [&] { kernel->finish(&b.shape, b.state, b.state.o, ra_array_view(&b.shape, b.lse), &b.context); }, repeats);
    kernel->begin(&b.shape, b.state, &b.context);
    kernel->forward(&there);
    kernel->carry(&b.shape, b.state, b.dout, b.lse, b.delta, &b.context);
    double gradients = median_ms([&] { kernel->backward(&back); }, repeats);
    double flops = 4.0 * (double)ra_tile_pairs(&b.tile) * (double)(heads * dim);
    printf("%-5s n %-6d heads %-3d dim %-4d %-7s forward %8.3f ms %7.1f TFLOP/s   backward %8.3f ms %7.1f TFLOP/s   "
           "begin %.3f finish %.3f ms\n",
           ra_dtype_name(dtype), (int)n, (int)heads, (int)dim, causal ? "causal" : "full", both - begin,
           flops / (both - begin) * 1e-9, gradients, 2.5 * flops / gradients * 1e-9, begin, end);
    CHECK(cudaGetLastError());
    kernel->discard(forward);
    kernel->discard(backward);
    give_all_back();
}

static void bench(unsigned seed, int repeats) {
    int many = repeats > 0 ? repeats : 9, fewer = repeats > 0 ? repeats : 5, few = repeats > 0 ? repeats : 3;
    for (int causal = 0; causal < 2; causal++) {
        bench_one(RA_BF16, 16384, 16, 128, causal, seed, many);
        bench_one(RA_F16, 16384, 16, 128, causal, seed, many);
        bench_one(RA_BF16, 16384, 16, 64, causal, seed, many);
        bench_one(RA_BF16, 16384, 8, 256, causal, seed, many);
        bench_one(RA_BF16, 65536, 1, 128, causal, seed, fewer);
        bench_one(RA_F32, 16384, 16, 128, causal, seed, few);
        bench_one(RA_F32, 16384, 16, 64, causal, seed, few);
    }
    bench_one(RA_F64, 4096, 16, 128, 0, seed, few);
}

int main(int argc, char **argv) {
    kernel_options options = {NULL, 7, 1, 0, 0};
    kernel_options_read(&options, "kernel_bench", argc, argv);
    if (!kernel_choose(options.name)) return 0;
    listed = options.listed;
    for (unsigned i = 0; i < options.seeds; i++) bench(options.first + i, options.repeats);
    return 0;
}
