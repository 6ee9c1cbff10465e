/* Tiles in their device form, and the forward units: blocks of a group's query rows, the ones with most work first, so
 * that what is left when multiprocessors run out of work is short. Where heads are done in sections, that is so within
 * a section, and a launch would end with the few units of the last one. So the shortest units of all heads are kept for
 * the end:
 *
 *   section 0: ▇▇▆▆▅▅▄▄▃▃ │ section 1: ▇▇▆▆▅▅▄▄▃▃ │ ... │ last entries, all heads: ▂▂▂▂▂▂ ... ▁▁▁▁▁▁
 */
#include "kernel/cuda/prepared.cuh"

#include <algorithm>
#include <cmath>
#include <map>

void gpu_list_tiles(const ra_tile_list *tiles, gpu_lists *lists) {
    std::map<std::pair<const int64_t *, int64_t>, size_t> known;
    for (int64_t i = 0; i < tiles->tile_count; i++) {
        const ra_tile *from = &tiles->tiles[i];
        gpu_tile t = {};
        t.q_first = from->q_rows.first;
        t.q_stride = from->q_rows.stride;
        t.q_count = (int)from->q_rows.count;
        t.k_first = from->k_rows.first;
        t.k_stride = from->k_rows.stride;
        t.k_count = (int)from->k_rows.count;
        t.lo = (int)from->lo;
        t.hi = (int)from->hi;
        t.head_first = (int)from->heads.first;
        t.head_stride = (int)from->heads.stride;
        t.head_count = (int)from->heads.count;
        t.part = from->part;
        t.queries = from->queries;
        t.times = 1 + from->extra;
        t.log2_times = std::log2((float)t.times);
        if (from->k_index) {
            auto key = std::make_pair(from->k_index, from->k_rows.count);
            auto found = known.find(key);
            size_t at = found == known.end() ? lists->index.size() : found->second;
            if (found == known.end()) {
                known[key] = at;
                lists->index.insert(lists->index.end(), from->k_index, from->k_index + from->k_rows.count);
            }
            t.k_index = (const int64_t *)(uintptr_t)(at + 1);
        }
        lists->tiles.push_back(t);
    }
}

/* Whether all of the tile's queries see keys [0, count). */
static bool all_see(const gpu_tile &t, int count) {
    return t.lo <= 1 - t.q_count && t.hi >= count - 1;
}

/* b's keys follow a's in memory, and what is visible of both is a band. */
static bool is_continued(const gpu_tile &a, const gpu_tile &b) {
    return a.part == b.part && a.times == b.times && !a.k_index && !b.k_index && a.k_stride == b.k_stride &&
           a.k_first + a.k_count * a.k_stride == b.k_first && all_see(a, a.k_count) && all_see(b, 0);
}

/* a becomes the tile of both, and nothing is left of b. */
static void merge(gpu_tile *a, gpu_tile *b) {
    a->lo = -a->q_count;
    a->hi = a->k_count + b->hi;
    a->k_count += b->k_count;
    b->k_count = 0;
}

void gpu_merge_tiles(const ra_tile_list *tiles, gpu_lists *lists) {
    for (int64_t g = 0; g < tiles->group_count; g++) {
        gpu_tile *first = &lists->tiles[(size_t)tiles->groups[g].first], *last = first;
        for (gpu_tile *t = first + 1; t < first + tiles->groups[g].count; t++) {
            if (last->k_count > 0 && t->k_count > 0 && is_continued(*last, *t))
                merge(last, t);
            else
                last = t;
        }
    }
}

struct ranked_unit {
    int64_t keys; /* that the block sees, over all tiles */
    gpu_unit unit;
};

/* The keys that block `block` of the group's rows sees. */
static int64_t keys_seen(const ra_tile_list *tiles, const ra_tile_group *group, int rows, int64_t block) {
    int64_t keys = 0;
    for (int64_t t = 0; t < group->count; t++) {
        const ra_tile *tile = &tiles->tiles[group->first + t];
        int64_t a0 = block * rows, a1 = std::min(a0 + rows, tile->q_rows.count), from, to;
        ra_tile_visible(tile, a0, a1, &from, &to);
        keys += to - from;
    }
    return keys;
}

static void rank_group(const ra_tile_list *tiles, const ra_tile_group *group, int rows, bool spelled,
                       std::vector<ranked_unit> *ranked) {
    const ra_tile *tile = &tiles->tiles[group->first];
    for (int64_t block = 0; block * rows < tile->q_rows.count; block++) {
        int64_t keys = keys_seen(tiles, group, rows, block);
        if (keys == 0) continue;
        gpu_unit unit = {(int)group->first, (int)group->count, (int)block, -1};
        for (int h = 0; h < (spelled ? tile->heads.count : 1); h++) {
            if (spelled) unit.head = h;
            ranked->push_back({keys, unit});
        }
    }
}

/* How many of the last entries are done behind all sections: those that see no more than half of what the first one
 * does, and no more keys than the cache has room for, of all heads, until they are enough work to make up for
 * multiprocessors that come to them at different times, which are as far apart as the shortest unit before them is
 * long. Twice as much is taken, since some come late to the last of them as well. (Units taken one after the other by
 * 132 multiprocessors, in a model: a window of 4096 of 16384 keys ends 0.3% later than an even split would, and 2.1%
 * later with 0 last entries; documents 0.6% and 1.7%.) */
static int count_last_entries(const ra_shape *shape, const std::vector<ranked_unit> &ranked, int per_entry,
                              int multiprocessors) {
    int64_t key_bytes =
        shape->batch * shape->heads_kv * (shape->dim + shape->dim_v) * (int64_t)ra_dtype_bytes(shape->dtype);
    size_t last = 0;
    double keys = 0;
    while (last + 1 < ranked.size()) {
        int64_t next = ranked[ranked.size() - 1 - last].keys;
        if (next > ranked[0].keys / 2 || next * key_bytes > GPU_CACHED_BYTES) break;
        if (keys * per_entry >= 2.0 * multiprocessors * (double)next) break;
        keys += (double)next;
        last++;
    }
    return (int)last;
}

void gpu_list_units(const ra_shape *shape, const ra_tile_list *tiles, int rows, int multiprocessors, gpu_lists *lists) {
    /* The last round first: the one of a dilated problem's first branch, which mostly has all rows, ends the pass. */
    for (int64_t p = tiles->round_count - 1; p >= 0; p--) {
        const ra_tile_round *round = &tiles->rounds[p];
        if (round->count == 0) continue;
        int64_t heads = tiles->tiles[tiles->groups[round->first].first].heads.count;
        bool spelled = false; /* heads, in the entries: groups have different numbers of them */
        for (int64_t g = 0; g < round->count; g++)
            spelled |= tiles->tiles[tiles->groups[round->first + g].first].heads.count != heads;
        std::vector<ranked_unit> ranked;
        for (int64_t g = 0; g < round->count; g++)
            rank_group(tiles, &tiles->groups[round->first + g], rows, spelled, &ranked);
        if (ranked.empty()) continue;
        std::stable_sort(ranked.begin(), ranked.end(),
                         [](const ranked_unit &a, const ranked_unit &b) { return a.keys > b.keys; });
        int per_entry = (int)(shape->batch * (spelled ? 1 : heads));
        lists->launches.push_back({(int64_t)lists->units.size(), (unsigned)(ranked.size() * (size_t)per_entry),
                                   per_entry, round->state, 0,
                                   count_last_entries(shape, ranked, per_entry, multiprocessors)});
        for (const ranked_unit &r : ranked) lists->units.push_back(r.unit);
    }
}
