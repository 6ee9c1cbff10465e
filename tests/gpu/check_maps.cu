/* The tensor maps of random tile lists: what they say is where the tiles' and the items' rows are, none has a row that
 * is not there, and there are at most two for each stride of a part. */
#include "kernel/cuda/prepared.cuh"
#include "list_checks.h"

#include <algorithm>
#include <climits>
#include <map>
#include <vector>

extern "C" {
#include "support/rng.h"
}

enum { MAP_RANKS = 3, MAP_GROUPS = 8, MAP_TILES = 4 };

/* Groups of queries of several ranks, each of which sees spans of several parts, with strides of up to 20; some tiles
 * have one row, or none, or keys that follow those before. */
struct map_case {
    ra_shape shape;
    std::vector<ra_tile> tiles;
    std::vector<ra_tile_group> groups;
    ra_tile_round round;

    static ra_span random_span(rng *r) {
        static const int64_t strides[] = {1, 1, 2, 3, 4, 8, 16, 20};
        int64_t count = rng_one_in(r, 5) ? rng_between(r, 1, 2) : rng_between(r, 1, 4 * ROWS);
        return {rng_between(r, 0, 200), strides[rng_between(r, 0, 7)], count};
    }

    explicit map_case(unsigned seed) : shape(), round() {
        rng r = {seed};
        shape.batch = shape.states = 1;
        shape.heads_q = shape.heads_kv = 2;
        shape.dim = shape.dim_v = 64;
        shape.dtype = RA_BF16;
        for (int64_t g = rng_between(&r, 1, MAP_GROUPS); g > 0; g--) {
            ra_tile t = {};
            int64_t count = rng_between(&r, 1, MAP_TILES);
            t.q_rows = random_span(&r);
            t.queries = (int)rng_between(&r, 0, MAP_RANKS - 1);
            t.heads = {0, 1, 2};
            groups.push_back({(int64_t)tiles.size(), count});
            for (int64_t i = 0; i < count; i++) {
                bool follows = i > 0 && rng_one_in(&r, 2);
                int64_t next = ra_span_at(t.k_rows, t.k_rows.count), stride = t.k_rows.stride;
                t.k_rows = random_span(&r);
                if (follows) t.k_rows.first = next;
                if (follows) t.k_rows.stride = stride;
                if (!follows) t.part = (int)rng_between(&r, 0, MAP_RANKS - 1);
                if (rng_one_in(&r, 10)) t.k_rows.count = 0;
                t.lo = -t.q_rows.count;
                t.hi = rng_one_in(&r, 3) ? rng_between(&r, -t.q_rows.count, t.k_rows.count) : t.k_rows.count;
                tiles.push_back(t);
            }
        }
        round = {0, (int64_t)groups.size(), 0};
    }

    ra_tile_list list() const {
        return {tiles.data(), groups.data(), &round, (int64_t)tiles.size(), (int64_t)groups.size(), 1};
    }
};

/* The row that is number i of a set. */
static int64_t row_of(const std::vector<gpu_map_rows> &maps, gpu_row_set set, int64_t i) {
    return set.remainder + i * maps[(size_t)set.map].stride;
}

static bool is_there(const std::vector<gpu_map_rows> &maps, gpu_row_set set, int part, int64_t last) {
    if (set.map < 0 || set.map >= (int)maps.size()) return false;
    const gpu_map_rows &map = maps[(size_t)set.map];
    return map.part == part && set.remainder >= 0 && set.remainder < map.remainders && last < map.count;
}

/* All rows of a tile, from number `at` of its set on. */
static void check_rows(const std::vector<gpu_map_rows> &maps, gpu_row_set set, int64_t at, int part, ra_span rows,
                       unsigned seed) {
    bool there = is_there(maps, set, part, at + rows.count - 1), right = there;
    for (int64_t i = 0; i < rows.count && right; i++) right = row_of(maps, set, at + i) == ra_span_at(rows, i);
    expect(there, "rows of a tile that its tensor map has", seed);
    expect(right, "which rows of a tensor map are a tile's", seed);
}

/* Against the spans that are used, by part: a map's last row is one of them or lies before one, no two maps are the
 * same, and each is somebody's. */
static void check_list(const std::vector<gpu_map_rows> &maps, const std::vector<std::pair<int, ra_span>> &used,
                       const std::vector<gpu_row_set> &sets, unsigned seed) {
    std::map<std::pair<int, int64_t>, int> count;
    for (size_t m = 0; m < maps.size(); m++) {
        const gpu_map_rows &map = maps[m];
        int64_t last = map.remainders - 1 + (map.count - 1) * map.stride, end = -1;
        for (const auto &[part, rows] : used)
            if (part == map.part) end = std::max(end, ra_span_last(rows));
        expect(last <= end, "a tensor map's row beyond the last", seed);
        expect(map.count > 0 && map.remainders > 0 && map.remainders <= map.stride, "a tensor map of no rows", seed);
        expect(++count[std::make_pair(map.part, map.stride)] <= 2, "tensor maps of a stride", seed);
        bool needed = std::any_of(sets.begin(), sets.end(), [&](gpu_row_set set) { return set.map == (int)m; });
        expect(needed, "a tensor map that is nobody's", seed);
    }
}

static void check_tile_maps(const gpu_lists &lists, unsigned seed) {
    std::vector<std::pair<int, ra_span>> q_used, k_used;
    std::vector<gpu_row_set> q_sets, k_sets;
    for (const gpu_tile &t : lists.tiles) {
        if (t.q_count == 0 || t.k_count == 0) continue;
        ra_span q_rows = {t.q_first, t.q_stride, t.q_count}, k_rows = {t.k_first, t.k_stride, t.k_count};
        check_rows(lists.maps.q, t.q_set, t.q_at, t.queries, q_rows, seed);
        check_rows(lists.maps.k, t.k_set, t.k_at, t.part, k_rows, seed);
        q_used.push_back({t.queries, q_rows});
        k_used.push_back({t.part, k_rows});
        q_sets.push_back(t.q_set);
        k_sets.push_back(t.k_set);
    }
    check_list(lists.maps.q, q_used, q_sets, seed);
    check_list(lists.maps.k, k_used, k_sets, seed);
}

/* Returns how many of the items have first queries. */
static int check_item_maps(const gpu_lists &lists, unsigned seed) {
    int listed = 0;
    for (const gpu_item &item : lists.items) {
        const gpu_tile &t = lists.tiles[(size_t)item.first];
        const gpu_first_queries &q = item.queries;
        expect(is_there(lists.maps.k, item.k_set, t.part, item.k_row) &&
                   row_of(lists.maps.k, item.k_set, item.k_row) == t.k_first + (int64_t)item.block * KEYS * t.k_stride,
               "an item's keys in their tensor map", seed);
        if (!q.count) continue;
        expect(is_there(lists.maps.q, set_of(q), q.queries, q.row + q.count - 1) &&
                   row_of(lists.maps.q, set_of(q), q.row) == q.first,
               "an item's first queries in their tensor map", seed);
        listed++;
    }
    return listed;
}

/* Rates 1, 2, 4, 8 and 16 with all their remainders: a map for each where they divide the rows, two where they do not,
 * but for rate 1. */
static void check_dilated(int64_t rows, size_t maps) {
    gpu_lists lists;
    for (int rate = 1; rate <= 16; rate *= 2)
        for (int r = 0; r < rate; r++) {
            gpu_tile t = {};
            t.q_first = t.k_first = r;
            t.q_stride = t.k_stride = rate;
            t.q_count = t.k_count = (int)((rows - 1 - r) / rate + 1);
            lists.tiles.push_back(t);
        }
    bool listed = gpu_list_maps(&lists);
    expect(listed && lists.maps.q.size() == maps && lists.maps.k.size() == maps, "tensor maps of dilated rows", 0);
    expect(lists.maps.key_rows == rows, "rows of keys", 0);
    check_tile_maps(lists, 0);
}

/* What has no maps: keys that are listed, and a remainder that does not fit. */
static void check_unlisted(void) {
    gpu_tile t = {};
    t.q_count = t.k_count = 2;
    t.q_stride = t.k_stride = 1;
    for (int kind = 0; kind < 4; kind++) {
        gpu_lists lists;
        lists.tiles = {t};
        if (kind == 1) lists.tiles[0].k_index = (const int64_t *)(uintptr_t)1;
        if (kind >= 2) lists.tiles[0].k_stride = SHRT_MAX + 2;
        if (kind >= 2) lists.tiles[0].k_first = kind == 2 ? SHRT_MAX : SHRT_MAX + 1;
        expect(gpu_list_maps(&lists) == (kind % 2 == 0), "whether there are tensor maps", (unsigned)kind);
        if (kind % 2 == 0) check_tile_maps(lists, (unsigned)kind);
    }
}

void check_maps(unsigned seeds) {
    int items = 0;
    for (unsigned seed = 1; seed <= seeds; seed++) {
        map_case c(seed);
        ra_tile_list tiles = c.list();
        gpu_lists forward, backward;
        gpu_list_tiles(&tiles, &forward);
        gpu_merge_tiles(&tiles, &forward);
        expect(gpu_list_maps(&forward), "tensor maps of a forward pass", seed);
        check_tile_maps(forward, seed);
        gpu_list_tiles(&tiles, &backward);
        gpu_list_items(&c.shape, &tiles, NULL, ROWS, KEYS, &backward);
        expect(gpu_list_maps(&backward), "tensor maps of a backward pass", seed);
        gpu_list_key_boxes(KEYS, &backward);
        gpu_list_first_queries(&c.shape, ROWS, KEYS, &backward);
        check_tile_maps(backward, seed);
        items += check_item_maps(backward, seed);
    }
    expect(seeds == 0 || items > 0, "items whose first queries are listed", 0);
    check_dilated(16 * 40, 5);
    check_dilated(16 * 40 + 3, 9);
    check_unlisted();
}
