/* Merged tiles have the keys that they had, in no more blocks. */
#include "kernel/cuda/prepared.cuh"
#include "list_checks.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

extern "C" {
#include "support/rng.h"
}

enum { MERGE_PARTS = 3, MERGE_TILES = 7 };

/* One group of tiles over spans of several parts: most of them seen by all rows, many behind the one before in the same
 * part, some with a band. */
struct merge_case {
    ra_shape shape;
    std::vector<ra_tile> tiles;
    ra_tile_group group;
    ra_tile_round round;

    explicit merge_case(unsigned seed) : shape(), group(), round() {
        rng r = {seed};
        int64_t rows = 1 + rng_between(&r, 0, 3 * ROWS - 1), used[MERGE_PARTS] = {};
        shape.batch = shape.heads_q = shape.heads_kv = shape.states = 1;
        shape.dim = shape.dim_v = 64;
        shape.rows_q = rows;
        shape.dtype = RA_BF16;
        int64_t stride = 1 + rng_between(&r, 0, 1);
        int part = 0;
        for (int i = (int)rng_between(&r, 0, MERGE_TILES - 1); i >= 0; i--) {
            ra_tile t = {};
            int64_t keys = rng_between(&r, 0, 5) ? 16 * (1 + rng_between(&r, 0, 11)) : 1 + rng_between(&r, 0, 199);
            if (rng_between(&r, 0, 2)) part = (int)rng_between(&r, 0, MERGE_PARTS - 1);
            if (!rng_between(&r, 0, 2)) used[part] += stride * rng_between(&r, 0, 39);
            t.q_rows = {0, 1, rows};
            t.k_rows = {used[part], stride, keys};
            t.heads = {0, 1, 1};
            t.part = part;
            t.lo = rng_between(&r, 0, 4) ? -rows : rng_between(&r, 0, 199) - 100;
            t.hi = rng_between(&r, 0, 2) ? keys : rng_between(&r, 0, 299) - 100;
            t.lo = std::max(-rows, std::min(t.lo, keys));
            t.hi = std::max(-rows, std::min(t.hi, keys));
            t.extra = rng_between(&r, 0, 3) ? 0 : (int)rng_between(&r, 1, 2);
            used[part] += stride * keys;
            tiles.push_back(t);
        }
        group = {0, (int64_t)tiles.size()};
        round = {0, 1, 0};
    }

    ra_tile_list list() const {
        return {tiles.data(), &group, &round, (int64_t)tiles.size(), 1, 1};
    }
};

typedef std::map<std::tuple<int, int, int64_t>, int> keys_met; /* how often (query, part, row) counts */

/* What the rows of a group meet. Returns the blocks of keys that all of them together do. */
static int meet_group(const gpu_lists &lists, const ra_tile_group &group, keys_met *met) {
    int blocks = 0;
    for (int64_t i = group.first; i < group.first + group.count; i++) {
        const gpu_tile &t = lists.tiles[(size_t)i];
        for (int a = 0; a < t.q_count; a++)
            for (int b = std::max(0, a + t.lo); b < t.k_count && b <= a + t.hi; b++)
                met->emplace(std::make_tuple(a, t.part, t.k_first + b * t.k_stride), 0).first->second += t.times;
        blocks += (t.k_count + KEYS - 1) / KEYS;
    }
    return blocks;
}

/* Returns whether something was merged. */
static bool check_merge(unsigned seed) {
    merge_case c(seed);
    ra_tile_list tiles = c.list();
    gpu_lists lists;
    keys_met plain, merged;
    gpu_list_tiles(&tiles, &lists);
    int blocks = meet_group(lists, c.group, &plain);
    gpu_merge_tiles(&tiles, &lists);
    int left = meet_group(lists, c.group, &merged);
    expect(plain == merged, "the keys of merged tiles", seed);
    expect(left <= blocks, "blocks of merged tiles", seed);
    return left < blocks;
}

void check_merges(unsigned seeds) {
    unsigned fewer = 0;
    for (unsigned seed = 1; seed <= seeds; seed++) fewer += check_merge(seed);
    expect(fewer > seeds / 10, "lists with fewer blocks when tiles are merged", fewer);
}
