/* Prepare: a kernel's variant is chosen, and a tile list becomes the arrays that it reads, once, at plan time. */
#include "base/status.h"
#include "kernel/cuda/call_parts.cuh"
#include "kernel/cuda/prepared.cuh"

#include <algorithm>
#include <climits>
#include <cuda_runtime.h>
#include <new>

extern "C" {
#include "core/join_rounds.h"
}

static ra_status device_failed(cudaError_t error, const char *what) {
    ra_status status = error == cudaErrorMemoryAllocation ? RA_ERR_MEMORY : RA_ERR_INTERNAL;
    cudaGetLastError(); /* said here, so that no later check says it again */
    return ra_fail(status, "%s: %s", what, cudaGetErrorString(error));
}

/* Indices inside a tile are ints on the device. */
static ra_status check_sizes(const ra_shape *shape, const ra_tile_list *tiles) {
    const int64_t most = INT_MAX / 2;
    for (int64_t i = 0; i < tiles->tile_count; i++)
        if (tiles->tiles[i].q_rows.count > most || tiles->tiles[i].k_rows.count > most)
            return ra_fail(RA_ERR_UNSUPPORTED,
                           "a rank has more rows than the CUDA kernels can number (%lld); use more ranks",
                           (long long)most);
    if (shape->batch * shape->heads_q > 1 << 24 || tiles->tile_count > most)
        return ra_fail(RA_ERR_UNSUPPORTED, "more heads or tiles than the CUDA kernels can number");
    return RA_OK;
}

static int width_index(const ra_shape *shape) {
    int64_t width = shape->dim > shape->dim_v ? shape->dim : shape->dim_v;
    return width <= 64 ? 0 : width <= 128 ? 1 : width <= 256 ? 2 : -1;
}

/* Once more, in the order of the same launches, for a kernel that has units of other sizes. */
static void list_units(const ra_shape *shape, const ra_tile_list *tiles, const gpu_forward_variant *variant,
                       int multiprocessors, gpu_lists *lists) {
    gpu_lists other;
    gpu_list_units(shape, tiles, variant->rows, multiprocessors, lists);
    if (!variant->other_rows) return;
    gpu_list_units(shape, tiles, variant->other_rows, multiprocessors, &other);
    lists->other_units = other.units;
    lists->other_launches = other.launches;
    lists->tally = {gpu_tally()};
}

/* ---- choice of a variant ----------------------------------------------------------------------------------------- */

struct device_limits {
    int multiprocessors, smem_bytes; /* of a block */
};

static cudaError_t limits_of_device(device_limits *limits_out) {
    int device;
    cudaError_t error = cudaGetDevice(&device);
    if (!error) error = cudaDeviceGetAttribute(&limits_out->multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (!error)
        error = cudaDeviceGetAttribute(&limits_out->smem_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return error;
}

/* The first of the chain that needs no more than so many bytes; NULL: none does. */
template <class VARIANT> static const VARIANT *that_fits(const VARIANT *variant, int smem_bytes) {
    while (variant && variant->smem_bytes > smem_bytes) variant = variant->smaller;
    return variant;
}

static ra_status choose(const gpu_variants *variants, const ra_shape *shape, ra_pass pass, ra_prepared *to) {
    int width = width_index(shape), type = (int)shape->dtype - (int)RA_F32;
    if (width < 0 || type < 0 || type > 3)
        return ra_fail(RA_ERR_UNSUPPORTED, "there is no CUDA kernel for rows of that type and width");
    device_limits limits;
    cudaError_t error = limits_of_device(&limits);
    if (error) return device_failed(error, "asking a device for its limits");
    int smem_bytes = std::min(limits.smem_bytes, variants->smem_bytes);
    to->multiprocessors = limits.multiprocessors;
    to->forward = that_fits(variants->forward[type][width], smem_bytes);
    to->backward = that_fits(variants->backward[type][width], smem_bytes);
    if (pass == RA_FORWARD ? !to->forward : !to->backward)
        return ra_fail(RA_ERR_UNSUPPORTED,
                       "%s has no %s kernel for rows of %lld elements of %s in %d KB of shared memory", variants->name,
                       pass == RA_FORWARD ? "forward" : "backward", (long long)std::max(shape->dim, shape->dim_v),
                       ra_dtype_name(shape->dtype), smem_bytes / 1024);
    return RA_OK;
}

/* The variant may be launched on the device in use. */
static ra_status allow(const ra_prepared *to, ra_pass pass) {
    cudaError_t error = pass == RA_FORWARD ? to->forward->allow() : to->backward->allow();
    return error ? device_failed(error, "setting up a CUDA kernel") : RA_OK;
}

/* How many ranks' queries the tiles are of, up to the last; 0: one rank's alone. */
static size_t count_queries(const ra_tile_list *tiles) {
    int last = 0;
    for (int64_t i = 0; i < tiles->tile_count; i++) last = std::max(last, tiles->tiles[i].queries);
    return last ? (size_t)last + 1 : 0;
}

/* What is allocated for a plan's lists and not for the plan. */
struct list_pool {
    ra_pool pool = {};
    ~list_pool() {
        ra_pool_free(&pool);
    }
};

/* Whether a launch has tensor maps of Q and O, or of Q, dO and dQ, for all queries, and of K and V for all keys. Those
 * of parts that are known now lie in device memory, and may be any number. */
static bool has_maps(const ra_tile_list *tiles, const std::vector<ra_kv_rows> &parts, ra_pass pass) {
    gpu_lists lists;
    gpu_list_tiles(tiles, &lists);
    if (!gpu_list_maps(&lists)) return false;
    size_t queries = (pass == RA_FORWARD ? 2 : 3) * lists.maps.q.size(), keys = 2 * lists.maps.k.size();
    bool with_calls = parts.empty() || parts_come_with_calls(parts);
    return queries + (with_calls ? keys : 0) <= TENSOR_MAPS;
}

/* The forward pass's variant, or the one with larger units, which has no advantage where rows are copied one by one. */
static const gpu_forward_variant *cheaper(const ra_shape *shape, const ra_tile_list *tiles, const ra_prepared *to) {
    const gpu_forward_variant *variant = to->forward, *taller = variant->taller;
    auto cost_of = [&](const gpu_forward_variant *of) {
        return gpu_units_cost(shape, tiles, to->lists, of->rows, of->cost, to->multiprocessors);
    };
    if (!taller || taller->smem_bytes > variant->smem_bytes || shape->dim % 8 || shape->dim_v % 8) return variant;
    if (!has_maps(tiles, to->lists.parts, RA_FORWARD)) return variant;
    return cost_of(taller) < cost_of(variant) ? taller : variant;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* What a block of queries could go through in the time that a tile takes to begin, that its own beginning and end take,
 * and a launch's: keys. Of the forward kernels on Hopper, D = 128: about 900, 5,000 and 15,000 clocks, where 128 keys
 * take 2,400. */
enum { KEYS_OF_STEP = 128, KEYS_OF_TILE = 48, KEYS_OF_BLOCK = 256, KEYS_OF_LAUNCH = 768 };

/* Backward, a block of keys: queries, of which 64 take 3,600 clocks; a tile's beginning is mostly hidden, a block's
 * ends take 10,000, and the first items of a launch wait for one another. */
enum { QUERIES_OF_TILE = 4, QUERIES_OF_BLOCK = 192, QUERIES_OF_LAUNCH = 448 };

/* The rounds of a dilated problem's branches become one where that is less work. Backward only where heads do not share
 * keys: each of them has cells of its own. */
static ra_status join_pass(const ra_shape *shape, const ra_tile_list *tiles, ra_pass pass, const ra_prepared *to,
                           ra_pool *pool, ra_tile_list *tiles_out) {
    /* Blocks are counted for one batch, and a launch is all batches'. */
    double launches = (double)to->multiprocessors / (double)std::max(shape->batch, (int64_t)1);
    if (pass == RA_FORWARD) {
        const ra_work_costs costs = {to->forward->rows, KEYS_OF_STEP, KEYS_OF_TILE, KEYS_OF_BLOCK,
                                     KEYS_OF_LAUNCH * launches};
        return ra_join_rounds(pool, tiles, &costs, tiles_out);
    }
    const ra_work_costs costs = {to->backward->keys, to->backward->rows, QUERIES_OF_TILE, QUERIES_OF_BLOCK,
                                 QUERIES_OF_LAUNCH * launches};
    return shape->heads_q == shape->heads_kv ? ra_join_rounds_by_keys(pool, tiles, &costs, tiles_out) : RA_OK;
}

/* The same, unless there would be too few tensor maps then, and are enough as it is. */
static ra_status join_rounds(const ra_shape *shape, const ra_tile_list *tiles, ra_pass pass, const ra_prepared *to,
                             list_pool *pool, ra_tile_list *tiles_out) {
    const std::vector<ra_kv_rows> &parts = to->lists.parts;
    bool has_list = pass == RA_FORWARD ? to->forward->list_maps : to->backward->list_maps;
    *tiles_out = *tiles;
    RA_TRY(join_pass(shape, tiles, pass, to, &pool->pool, tiles_out));
    bool joined = tiles_out->round_count < tiles->round_count;
    if (joined && has_list && !has_maps(tiles_out, parts, pass) && has_maps(tiles, parts, pass)) *tiles_out = *tiles;
    return RA_OK;
}

static ra_status prepare(const gpu_variants *variants, const ra_shape *shape, const ra_tile_list *given,
                         const ra_kv_rows *parts, int64_t part_count, ra_pass pass, ra_prepared *to) {
    gpu_lists &lists = to->lists;
    list_pool pool;
    ra_tile_list joined = *given;
    const ra_tile_list *tiles = &joined;
    RA_TRY(choose(variants, shape, pass, to));
    if (parts) lists.parts.assign(parts, parts + part_count);
    RA_TRY(join_rounds(shape, given, pass, to, &pool, &joined));
    RA_TRY(check_sizes(shape, tiles));
    gpu_list_tiles(tiles, &lists);
    lists.queries.resize(count_queries(tiles));
    if (pass == RA_FORWARD) {
        gpu_merge_tiles(tiles, &lists);
        to->forward = cheaper(shape, tiles, to);
        list_units(shape, tiles, to->forward, to->multiprocessors, &lists);
    } else {
        gpu_list_items(shape, tiles, parts, to->backward->rows, to->backward->keys, &lists);
    }
    auto list_maps = pass == RA_FORWARD ? to->forward->list_maps : to->backward->list_maps;
    if (list_maps) list_maps(shape, tiles, parts, &lists);
    if (pass == RA_BACKWARD) gpu_interleave_heads(to->backward->together, &lists);
    gpu_keep_lists(to);
    return allow(to, pass);
}

ra_status gpu_prepare(const gpu_variants *variants, const ra_shape *shape, const ra_tile_list *tiles,
                      const ra_kv_rows *parts, int64_t part_count, ra_pass pass, ra_prepared **prepared_out) {
    ra_prepared *made = new (std::nothrow) ra_prepared();
    if (!made) return ra_fail(RA_ERR_MEMORY, "no memory for a plan");
    ra_status status;
    try {
        status = prepare(variants, shape, tiles, parts, part_count, pass, made);
    } catch (const std::bad_alloc &) {
        status = ra_fail(RA_ERR_MEMORY, "no memory for a plan");
    }
    if (status == RA_OK)
        *prepared_out = made;
    else
        gpu_discard(made);
    return status;
}

void gpu_discard(ra_prepared *prepared) {
    delete prepared;
}
