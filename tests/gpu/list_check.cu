/* The device lists of prepared objects, without a device: where the arrays of random tile lists lie in the block that
 * place is given, that the bytes for the upload are those arrays, with pointers into the block, and what list_checks.h
 * says of items, slots, merged tiles, costs, tensor maps and the order of units. Needs no GPU.
 *
 *     list_check [--seeds 60]
 */
#include "gpu_test.h"
#include "kernel/cuda/prepared.cuh"
#include "kernel/cuda/sm90/backward_turns.cuh"
#include "list_checks.h"

#include <algorithm>
#include <cmath>

extern "C" {
#include "support/rng.h"
#include "support/tiles/tile_case.h"
}

enum { OTHER_ROWS = 32, MULTIPROCESSORS = 4, GUARD = 1000 };

int failures;

void expect(bool right, const char *what, unsigned seed) {
    if (right) return;
    printf("FAILED: %s, seed %u\n", what, seed);
    failures++;
}

/* Memory that stands for the device's, and the bytes that would be copied to it. */
struct block {
    std::vector<unsigned char> device, host;
    unsigned char *lists; /* aligned, in device */
    size_t bytes;

    explicit block(size_t list_bytes) : device(list_bytes + RA_LIST_ALIGNMENT), host(list_bytes + GUARD, 0xaa) {
        uintptr_t at = (uintptr_t)device.data();
        lists = (unsigned char *)((at + RA_LIST_ALIGNMENT - 1) / RA_LIST_ALIGNMENT * RA_LIST_ALIGNMENT);
        bytes = list_bytes;
    }

    void upload() {
        std::copy(host.begin(), host.begin() + (long)bytes, lists);
    }

    bool guard_is_whole() const {
        return std::all_of(host.begin() + (long)bytes, host.end(), [](unsigned char c) { return c == 0xaa; });
    }
};

typedef std::pair<const unsigned char *, const unsigned char *> range;

struct checker {
    const block *b;
    unsigned seed;
    std::vector<range> ranges;

    /* The place of an array, which nothing else has. */
    template <class X> void note(const X *at, const std::vector<X> &want, const char *what) {
        const unsigned char *from = (const unsigned char *)at, *to = (const unsigned char *)(at + want.size());
        expect(want.empty() == (at == NULL), what, seed);
        if (want.empty() || !at) return;
        bool inside = from >= b->lists && to <= b->lists + b->bytes && (uintptr_t)from % RA_LIST_ALIGNMENT == 0;
        expect(inside, what, seed);
        ranges.push_back({from, to});
    }

    template <class X> void bytes(const X *at, const std::vector<X> &want, const char *what) {
        note(at, want, what);
        if (at && !want.empty()) expect(memcmp(at, want.data(), want.size() * sizeof(X)) == 0, what, seed);
    }

    /* But for the address of a tile's index, which is an offset plus 1 before it is placed. */
    void tiles(const gpu_tile *at, const gpu_lists &want) {
        note(at, want.tiles, "tiles");
        for (size_t i = 0; at && i < want.tiles.size(); i++) {
            gpu_tile placed = at[i];
            const gpu_tile &listed = want.tiles[i];
            const unsigned char *index = (const unsigned char *)placed.k_index;
            expect(!placed.k_index == !listed.k_index, "whether a tile has an index", seed);
            placed.k_index = listed.k_index;
            expect(memcmp(&placed, &listed, sizeof placed) == 0, "a tile", seed);
            if (!index) continue;
            size_t bytes_of_index = (size_t)listed.k_count * sizeof(int64_t);
            bool inside = index >= b->lists && index + bytes_of_index <= b->lists + b->bytes;
            expect(inside, "the place of an index", seed);
            const int64_t *keys = want.index.data() + ((uintptr_t)listed.k_index - 1);
            if (inside) expect(memcmp(index, keys, bytes_of_index) == 0, "an index", seed);
        }
    }

    void apart() {
        std::sort(ranges.begin(), ranges.end());
        for (size_t i = 1; i < ranges.size(); i++)
            expect(ranges[i - 1].second <= ranges[i].first, "arrays that overlap", seed);
    }
};

static const ra_kv_rows *parts_of(const tile_case &c) {
    return c.seed % 3 ? c.parts : NULL;
}

/* 1: as kernels have it that do not ask for groups. */
static int turn_group_of(unsigned seed) {
    return seed % 5 ? 1 + (int)(seed % 5) : 1;
}

static void list_all(ra_prepared *p, const tile_case &c, const ra_tile_list &tiles, ra_pass pass) {
    gpu_lists &lists = p->lists;
    const ra_kv_rows *parts = parts_of(c);
    if (parts) lists.parts.assign(parts, parts + TEST_PARTS);
    gpu_list_tiles(&tiles, &lists);
    if (pass == RA_BACKWARD) {
        gpu_list_items(&c.shape, &tiles, parts, ROWS, KEYS, &lists);
        for (size_t i = 0; i < lists.tiles.size(); i++) { /* as tensor maps might have them */
            lists.tiles[i].k_set = {(short)(i * 3), (short)(i % 4)};
            lists.tiles[i].k_at = (int)i * 1000;
            lists.tiles[i].q_set = {(short)(i * 5), (short)(i % 7)};
            lists.tiles[i].q_at = (int)i * 2000;
        }
        gpu_list_key_boxes(KEYS, &lists);
        gpu_list_first_queries(&c.shape, ROWS, KEYS, &lists);
        gpu_list_turn_groups(ROWS, turn_group_of(c.seed), &lists);
        gpu_list_first_turns(ROWS, &lists);
        gpu_interleave_heads(1 + (int)(c.seed / 2 % 2), &lists);
        if (lists.launches.size() == 1) gpu_list_query_blocks(ROWS, KEYS, turn_group_of(c.seed), &lists);
    }
    if (pass == RA_FORWARD) gpu_list_units(&c.shape, &tiles, ROWS, MULTIPROCESSORS, &lists);
    if (pass == RA_FORWARD && c.seed % 2) {
        gpu_lists other;
        gpu_list_units(&c.shape, &tiles, OTHER_ROWS, MULTIPROCESSORS, &other);
        lists.other_units = other.units;
        lists.other_launches = other.launches;
        lists.tally = {gpu_tally()};
    }
    for (unsigned i = 0; i < 128 * (c.seed % 4); i++) lists.part_maps.push_back((unsigned char)(i * 7 + c.seed));
    gpu_keep_lists(p);
}

/* Whether `at` has the keys, heads, queries and band of a tile of the list. */
static bool is_tile(const gpu_tile &at, const ra_tile &tile) {
    if (at.part != tile.part || at.q_count != tile.q_rows.count || at.k_count != tile.k_rows.count) return false;
    if (at.lo != tile.lo || at.hi != tile.hi || at.head_count != tile.heads.count) return false;
    if (at.head_first != tile.heads.first || at.head_stride != tile.heads.stride) return false;
    if (at.q_first != tile.q_rows.first || at.q_stride != tile.q_rows.stride) return false;
    if (at.times != 1 + tile.extra || at.log2_times != std::log2((float)at.times)) return false;
    for (int64_t k = 0; k < tile.k_rows.count; k++) {
        int64_t row = at.k_index ? at.k_index[k] : at.k_first + k * at.k_stride;
        if (row != ra_tile_key(&tile, k)) return false;
    }
    return true;
}

/* What a call gets is the list's own tiles: forward one by one, backward in another order, those in which nothing is
 * visible left out. */
static void check_tiles(const gpu_tile *at, size_t count, const ra_tile_list &tiles, ra_pass pass, unsigned seed) {
    std::vector<bool> taken(count);
    size_t found = 0;
    for (int64_t i = 0; i < tiles.tile_count; i++) {
        const ra_tile &tile = tiles.tiles[i];
        if (pass == RA_FORWARD) {
            expect(is_tile(at[i], tile), "a tile of the list", seed);
            continue;
        }
        if (ra_tile_pairs(&tile) == 0) continue;
        size_t j = 0;
        while (j < count && (taken[j] || !is_tile(at[j], tile))) j++;
        expect(j < count, "a tile of the list", seed);
        if (j < count) taken[j] = true;
        found++;
    }
    expect(found == (pass == RA_FORWARD ? 0 : count), "tiles that the list does not have", seed);
}

static void check(const tile_case &c, const ra_tile_list &tiles, ra_pass pass) {
    ra_prepared p = {};
    list_all(&p, c, tiles, pass);
    gpu_lists want = p.lists;
    ra_list_size size = gpu_list_size(&p);
    if (want.launches.empty()) {
        expect(size.lists + size.counters == 0, "bytes for no launch", c.seed);
        return;
    }
    block b(size.lists);
    std::vector<unsigned char> counters(size.counters + 1);
    gpu_place(&p, b.lists, counters.data(), b.host.data());
    b.upload();
    expect(b.guard_is_whole(), "what lies behind the lists", c.seed);
    expect(p.lists.tiles.empty(), "lists that stay on the host", c.seed);
    checker check = {&b, c.seed, {}};
    check.bytes(p.parts, want.parts, "parts");
    check.tiles(p.tiles, want);
    check.bytes(p.units, want.units, "units");
    check.bytes(p.items, want.items, "items");
    check.bytes(p.turns, want.turns, "turns");
    check.bytes(p.gaps, want.gaps, "gaps");
    check.bytes(p.query_blocks, want.query_blocks, "blocks of dq");
    check.bytes(p.other_units, want.other_units, "other units");
    check.bytes(p.tally, want.tally, "tally");
    check.bytes((const unsigned char *)p.maps.parts, want.part_maps, "tensor maps");
    check.apart();
    check_tiles(p.tiles, want.tiles.size(), tiles, pass, c.seed);
    for (const gpu_launch &launch : want.launches)
        expect(launch.last_entries >= 0 && launch.last_entries < (int)(launch.count / (unsigned)launch.per_entry),
               "how many entries are done last", c.seed);
    if (pass == RA_BACKWARD) check_items_of(want, c.shape, parts_of(c), turn_group_of(c.seed), c.seed);
    size_t tickets = (size_t)((unsigned char *)p.chains - counters.data());
    size_t pieces = size.counters - p.zero_bytes;
    expect((unsigned char *)p.tickets == counters.data(), "tickets", c.seed);
    expect(tickets >= (pass == RA_BACKWARD) * want.launches.size() * sizeof(unsigned), "a ticket for each launch",
           c.seed);
    expect(tickets + (size_t)want.chains * sizeof(int) == p.zero_bytes, "bytes that a pass starts with as zeros",
           c.seed);
    expect((unsigned char *)p.pieces == counters.data() + p.zero_bytes, "pieces behind the chains", c.seed);
    for (const gpu_launch &launch : want.launches)
        expect(pieces >= want.tally.size() * launch.count * REDO_PIECES * sizeof(unsigned), "all pieces of a launch",
               c.seed);
}

static void make_counted(tile_case *c, unsigned seed, ra_dtype dtype, int64_t limit) {
    tile_case_make_counted(c, 0, seed, dtype, limit);
}

int main(int argc, char **argv) {
    unsigned seeds = (unsigned)gpu_number(argc, argv, "--seeds", 60);
    for (unsigned seed = 1; seed <= seeds; seed++) {
        tile_case c;
        (seed % 3 ? tile_case_make : make_counted)(&c, seed, RA_F32, 32);
        for (const test_list &call : c.calls) {
            check(c, call.list, RA_FORWARD);
            check(c, call.list, RA_BACKWARD);
        }
        tile_case_free(&c);
    }
    check_items();
    check_slots();
    check_merges(seeds * 10);
    check_costs(seeds * 10);
    check_maps(seeds * 10);
    check_order();
    if (!failures) printf("lists of %u cases: as they were listed\n", seeds);
    return failures != 0;
}
