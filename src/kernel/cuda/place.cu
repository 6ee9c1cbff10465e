/* Place: where the arrays of a prepared object lie on the device, and their bytes for the upload.
 *
 *     lists      | parts | queries | index | tiles | units | items | turns | gaps | query blocks | other units | tally
 * | maps | counters   | tickets | chains |        backward | pieces |                  forward, where there is a tally
 *
 * Each array starts at a multiple of RA_LIST_ALIGNMENT, which is more than tensor maps need. No CUDA call is made here.
 */
#include "kernel/cuda/call_parts.cuh"
#include "kernel/cuda/prepared.cuh"

#include <algorithm>
#include <cassert>
#include <cstring>

static size_t aligned(size_t bytes) {
    return (bytes + RA_LIST_ALIGNMENT - 1) / RA_LIST_ALIGNMENT * RA_LIST_ALIGNMENT;
}

template <class X> static size_t bytes_of(const std::vector<X> &x) {
    return x.size() * sizeof(X);
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static size_t list_bytes(const gpu_lists &lists) {
    return aligned(bytes_of(lists.parts)) + aligned(bytes_of(lists.queries)) + aligned(bytes_of(lists.index)) +
           aligned(bytes_of(lists.tiles)) + aligned(bytes_of(lists.units)) + aligned(bytes_of(lists.items)) +
           aligned(bytes_of(lists.turns)) + aligned(bytes_of(lists.gaps)) + aligned(bytes_of(lists.query_blocks)) +
           aligned(bytes_of(lists.other_units)) + aligned(bytes_of(lists.tally)) + aligned(bytes_of(lists.part_maps));
}

/* Of the list of pieces that another kernel does again. */
static size_t piece_bytes(const gpu_lists &lists) {
    unsigned most = 0;
    if (lists.tally.empty()) return 0;
    for (const gpu_launch &launch : lists.launches) most = std::max(most, launch.count);
    return (size_t)most * REDO_PIECES * sizeof(unsigned);
}

static size_t ticket_bytes(const gpu_lists &lists) {
    return lists.items.empty() ? 0 : aligned(lists.launches.size() * sizeof(unsigned));
}

void gpu_keep_lists(ra_prepared *prepared) {
    gpu_lists &lists = prepared->lists;
    prepared->launches = lists.launches;
    prepared->call_parts = parts_come_with_calls(lists.parts) ? lists.parts.size() : 0;
    prepared->query_count = lists.queries.size();
    prepared->overwritten = lists.overwritten;
    prepared->overwritten_queries = lists.overwritten_queries;
    prepared->gap_count = (unsigned)lists.gaps.size();
    prepared->query_block_count = (unsigned)lists.query_blocks.size();
    prepared->maps = lists.maps;
    if (prepared->call_parts || prepared->query_count) {
        prepared->maps.came = std::make_shared<gpu_came>();
        prepared->maps.came->parts.reserve(prepared->call_parts);
        prepared->maps.came->queries.reserve(prepared->query_count);
    }
    prepared->other_launches = lists.other_launches;
    prepared->zero_bytes = ticket_bytes(lists) + (size_t)lists.chains * sizeof(int);
}

/* Without a launch nothing is read. */
ra_list_size gpu_list_size(const ra_prepared *prepared) {
    if (prepared->launches.empty()) return {0, 0};
    return {list_bytes(prepared->lists), prepared->zero_bytes + piece_bytes(prepared->lists)};
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* Hands out device memory from front to back; what is to be there is written to the host's copy. */
struct placer {
    char *device, *host;
    size_t used;

    template <class X> const X *put(const std::vector<X> &from) {
        size_t at = used, bytes = bytes_of(from);
        if (from.empty()) return NULL;
        memcpy(host + at, from.data(), bytes);
        used += aligned(bytes);
        return (const X *)(device + at);
    }
};

/* The tiles point into the index, which so comes first. */
static void put_lists(placer &p, gpu_lists &lists, ra_prepared *to) {
    to->parts = p.put(lists.parts);
    to->queries = p.put(lists.queries);
    const int64_t *index = p.put(lists.index);
    for (gpu_tile &t : lists.tiles)
        if (t.k_index) t.k_index = index + ((uintptr_t)t.k_index - 1);
    to->tiles = p.put(lists.tiles);
    to->units = p.put(lists.units);
    to->items = p.put(lists.items);
    to->turns = p.put(lists.turns);
    to->gaps = p.put(lists.gaps);
    to->query_blocks = p.put(lists.query_blocks);
    to->other_units = p.put(lists.other_units);
    to->tally = (gpu_tally *)p.put(lists.tally);
    to->maps.parts = p.put(lists.part_maps);
}

void gpu_place(ra_prepared *prepared, void *lists, void *counters, void *lists_out) {
    placer p = {(char *)lists, (char *)lists_out, 0};
    if (prepared->launches.empty()) return;
    prepared->tickets = (unsigned *)counters;
    prepared->chains = (int *)((char *)counters + ticket_bytes(prepared->lists));
    prepared->pieces = (unsigned *)((char *)counters + prepared->zero_bytes);
    put_lists(p, prepared->lists, prepared);
    assert(p.used == list_bytes(prepared->lists));
    prepared->lists = gpu_lists();
}
