/* Prepare: a tile list becomes arrays in one block of device memory, once, at plan time. */
#include "base/status.h"
#include "kernel/cuda/prepared.cuh"

#include <algorithm>
#include <climits>
#include <cuda_runtime.h>
#include <new>

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

/* Where each array starts in the block. */
struct carver {
    size_t used;
    size_t take(size_t bytes) {
        size_t at = used;
        used += (bytes + 255) / 256 * 256;
        return at;
    }
};

struct block_layout {
    size_t parts, tiles, index, units, items, by_key, turns, other_units, maps, zeros, bytes;
};

template <class X> static size_t bytes_of(const std::vector<X> &x) {
    return x.size() * sizeof(X);
}

static block_layout lay_out(const gpu_lists &lists, int64_t part_count, size_t zero_bytes) {
    carver c = {0};
    block_layout at;
    at.parts = c.take((size_t)part_count * sizeof(ra_kv_rows));
    at.tiles = c.take(bytes_of(lists.tiles));
    at.index = c.take(bytes_of(lists.index));
    at.units = c.take(bytes_of(lists.units));
    at.items = c.take(bytes_of(lists.items));
    at.by_key = c.take(bytes_of(lists.by_key));
    at.turns = c.take(bytes_of(lists.turns));
    at.other_units = c.take(bytes_of(lists.other_units));
    at.maps = c.take(lists.part_maps.size());
    at.zeros = c.take(zero_bytes);
    at.bytes = c.used;
    return at;
}

static cudaError_t upload(char *to, const void *from, size_t bytes) {
    return bytes ? cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice) : cudaSuccess;
}

static cudaError_t upload_all(char *memory, const block_layout &at, const gpu_lists &lists, const ra_kv_rows *parts,
                              int64_t part_count) {
    cudaError_t error = upload(memory + at.parts, parts, (size_t)part_count * sizeof *parts);
    if (!error) error = upload(memory + at.tiles, lists.tiles.data(), bytes_of(lists.tiles));
    if (!error) error = upload(memory + at.index, lists.index.data(), bytes_of(lists.index));
    if (!error) error = upload(memory + at.units, lists.units.data(), bytes_of(lists.units));
    if (!error) error = upload(memory + at.items, lists.items.data(), bytes_of(lists.items));
    if (!error) error = upload(memory + at.by_key, lists.by_key.data(), bytes_of(lists.by_key));
    if (!error) error = upload(memory + at.turns, lists.turns.data(), bytes_of(lists.turns));
    if (!error) error = upload(memory + at.other_units, lists.other_units.data(), bytes_of(lists.other_units));
    if (!error) error = upload(memory + at.maps, lists.part_maps.data(), lists.part_maps.size());
    /* A copy from pageable memory may return before it has reached the device. */
    return error ? error : cudaStreamSynchronize(0);
}

/* Forward, where another kernel does pieces of units again: behind the ticket, their number and the list of them. */
static size_t redo_bytes(const gpu_lists &lists) {
    unsigned most = 0;
    if (lists.other_launches.empty()) return 0;
    for (const gpu_launch &launch : lists.launches) most = std::max(most, launch.count);
    return (1 + (size_t)most * REDO_PIECES) * sizeof(unsigned);
}

static ra_status place(gpu_lists &lists, const ra_kv_rows *parts, int64_t part_count, ra_prepared *to) {
    int64_t count = parts ? part_count : 0;
    size_t ticket_bytes = (lists.launches.size() * sizeof(unsigned) + redo_bytes(lists) + 255) / 256 * 256;
    to->zero_bytes = ticket_bytes + (size_t)lists.chains * sizeof(int);
    block_layout at = lay_out(lists, count, to->zero_bytes);
    to->launches = lists.launches;
    to->overwritten = lists.overwritten;
    to->maps = lists.maps;
    to->other_launches = lists.other_launches;
    if (lists.launches.empty()) return RA_OK;
    cudaError_t error = cudaMalloc(&to->memory, at.bytes);
    if (error) return device_failed(error, "device memory for a plan's tiles");
    char *memory = (char *)to->memory;
    for (gpu_tile &t : lists.tiles)
        if (t.k_index) t.k_index = (const int64_t *)(memory + at.index) + ((uintptr_t)t.k_index - 1);
    error = upload_all(memory, at, lists, parts, count);
    if (error) return device_failed(error, "uploading a plan's tiles");
    to->parts = parts ? (const ra_kv_rows *)(memory + at.parts) : NULL;
    to->tiles = (const gpu_tile *)(memory + at.tiles);
    to->units = (const gpu_unit *)(memory + at.units);
    to->items = (const gpu_item *)(memory + at.items);
    to->by_key = (const int *)(memory + at.by_key);
    to->turns = (const int *)(memory + at.turns);
    to->other_units = (const gpu_unit *)(memory + at.other_units);
    to->maps.parts = lists.part_maps.empty() ? NULL : memory + at.maps;
    to->tickets = (unsigned *)(memory + at.zeros);
    to->chains = (int *)(memory + at.zeros + ticket_bytes);
    return RA_OK;
}

static int width_index(const ra_shape *shape) {
    int64_t width = shape->dim > shape->dim_v ? shape->dim : shape->dim_v;
    return width <= 64 ? 0 : width <= 128 ? 1 : width <= 256 ? 2 : -1;
}

/* Once more, in the order of the same launches, for a kernel that has units of other sizes. */
static void list_units(const ra_shape *shape, const ra_tile_list *tiles, const gpu_forward_variant *variant,
                       gpu_lists *lists) {
    gpu_lists other;
    gpu_list_units(shape, tiles, variant->rows, lists);
    if (!variant->other_rows) return;
    gpu_list_units(shape, tiles, variant->other_rows, &other);
    lists->other_units = other.units;
    lists->other_launches = other.launches;
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
    error = pass == RA_FORWARD ? to->forward->allow() : to->backward->allow();
    return error ? device_failed(error, "setting up a CUDA kernel") : RA_OK;
}

static ra_status prepare(const gpu_variants *variants, const ra_shape *shape, const ra_tile_list *tiles,
                         const ra_kv_rows *parts, int64_t part_count, ra_pass pass, ra_prepared *to) {
    gpu_lists lists;
    RA_TRY(choose(variants, shape, pass, to));
    RA_TRY(check_sizes(shape, tiles));
    gpu_list_tiles(tiles, &lists);
    if (pass == RA_FORWARD)
        list_units(shape, tiles, to->forward, &lists);
    else
        gpu_list_items(shape, tiles, parts, to->backward->rows, to->backward->keys, &lists);
    auto list_maps = pass == RA_FORWARD ? to->forward->list_maps : to->backward->list_maps;
    if (list_maps) list_maps(shape, tiles, parts, &lists);
    return place(lists, parts, part_count, to);
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
    if (!prepared) return;
    cudaFree(prepared->memory);
    delete prepared;
}
