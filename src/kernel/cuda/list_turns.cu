/* The order in which backward items are taken, which is that of their turns at dQ, and who is the first at a block of
 * it. list_items.cu lists the items of a key set side by side, in the order of their blocks, and turns as they follow
 * from that. */
#include "kernel/cuda/call_parts.cuh"
#include "kernel/cuda/prepared.cuh"
#include "kernel/cuda/sm90/backward_turns.cuh"

#include <algorithm>
#include <map>
#include <unordered_map>

/* ---- turns in groups --------------------------------------------------------------------------------------------- */

/* Whether the last queries of a tile see all of its keys, and the first ones do not. */
static bool is_triangle(const gpu_tile &t) {
    return t.lo <= 1 - t.q_count && t.hi < t.k_count - 1;
}

static bool sees_all(const gpu_tile &t) {
    return t.lo <= 1 - t.q_count && t.hi >= t.k_count - 1;
}

/* Some of a key set's tiles are triangles, and all others are seen whole. */
static bool takes_groups(const gpu_tile *tiles, int count) {
    bool some = std::any_of(tiles, tiles + count, is_triangle);
    return some && std::all_of(tiles, tiles + count, [](const gpu_tile &t) { return is_triangle(t) || sees_all(t); });
}

/* A key set's items lie side by side, and tiles belong to one set. */
void gpu_list_turn_groups(int rows, int group, gpu_lists *lists) {
    for (auto set = lists->items.begin(), end = set; set != lists->items.end(); set = end) {
        end = std::find_if(set, lists->items.end(), [&](const gpu_item &item) { return item.first != set->first; });
        const gpu_tile *tiles = &lists->tiles[(size_t)set->first];
        bool in_groups = takes_groups(tiles, set->count);
        for (const gpu_tile *t = tiles; t < tiles + set->count; t++)
            for (int64_t i = t->order; i < t->order + blocks_of(t->q_count, rows); i++)
                lists->turns[(size_t)i] = turns_listed(lists->turns[(size_t)i], in_groups);
        if (!in_groups) continue;
        std::stable_sort(set, end, [group](const gpu_item &x, const gpu_item &y) {
            return std::make_pair(x.block / group, -x.block) < std::make_pair(y.block / group, -y.block);
        });
    }
}

/* ---- heads by turns ---------------------------------------------------------------------------------------------- */

static bool are_together(const gpu_item &x, const gpu_item &y, int together) {
    return x.first == y.first && x.kv_head == y.kv_head && x.block / together == y.block / together;
}

/* Items that are taken at the same time should be of different heads: those of one head add to the same blocks of dQ,
 * one behind the other. Where entries are of different heads, the n-th ones of all heads come before the next ones,
 * among those that have as much to do. Those of a head stay in their order, which is that of their turns. */
void gpu_interleave_heads(int together, gpu_lists *lists) {
    for (const gpu_launch &launch : lists->launches) {
        size_t end = (size_t)launch.first + launch.count / (unsigned)launch.per_entry;
        for (size_t from = (size_t)launch.first, to; from < end; from = to) {
            std::unordered_map<int, int> seen; /* of each head */
            std::vector<std::pair<int, gpu_item>> some;
            for (to = from; to < end && lists->work[to] == lists->work[from]; to++) {
                const gpu_item &item = lists->items[to];
                bool stays = to > from && are_together(lists->items[to - 1], item, together);
                some.push_back({stays ? some.back().first : seen[item.kv_head]++, item});
            }
            std::stable_sort(some.begin(), some.end(), [](const auto &x, const auto &y) { return x.first < y.first; });
            for (size_t i = 0; i < some.size(); i++) lists->items[from + i] = some[i].second;
        }
    }
}

/* ---- first turns ------------------------------------------------------------------------------------------------- */

/* Whether a query of [a0, a1) sees a key of the tile. */
static bool sees_keys(const gpu_tile &t, int64_t a0, int64_t a1) {
    return std::max((int64_t)0, a0 + t.lo) < std::min((int64_t)t.k_count, a1 + t.hi);
}

/* How many tiles the first round has: they come first. */
static size_t first_round_tiles(const gpu_lists &lists) {
    int end = 0;
    for (const gpu_launch &launch : lists.launches)
        for (int64_t i = 0; launch.round == 0 && i < launch.count / launch.per_entry; i++) {
            const gpu_item &item = lists.items[(size_t)(launch.first + i)];
            end = std::max(end, item.first + item.count);
        }
    return (size_t)end;
}

/* Tiles with the same counters are those of a group, and have the same queries; groups of a round have none in common.
 * A block that ends inside the rows of a tensor map is no whole box. */
void gpu_list_first_turns(int rows, gpu_lists *lists) {
    std::map<int64_t, std::vector<const gpu_tile *>> groups;
    size_t tiles = first_round_tiles(*lists);
    for (size_t i = 0; i < tiles; i++) groups[lists->tiles[i].chain].push_back(&lists->tiles[i]);
    for (const auto &[chain, group] : groups) {
        const gpu_tile &t = *group[0];
        lists->overwritten_queries += (int64_t)t.q_count * t.head_count;
        for (int64_t a0 = 0; a0 < t.q_count; a0 += rows) {
            int64_t a1 = std::min(a0 + rows, (int64_t)t.q_count);
            bool seen =
                std::any_of(group.begin(), group.end(), [&](const gpu_tile *x) { return sees_keys(*x, a0, a1); });
            if (seen && a1 - a0 == rows) continue;
            lists->gaps.push_back({t.q_first + a0 * t.q_stride, t.q_stride, (int)(a1 - a0),
                                   gap_head(t.queries, t.head_first), t.head_stride, t.head_count});
        }
    }
}
