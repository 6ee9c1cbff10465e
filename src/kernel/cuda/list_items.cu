/* The backward items: blocks of key rows. Tiles of a pass that have the same keys and heads form a key set, and an item
 * does all of them, so that its dK and dV are nobody else's. Key sets that overlap otherwise are put on levels, each of
 * which is a launch of its own:
 *
 *   tiles      (q0, k0) (q1, k0) (q1, k1) (q2, k0 and k1)
 *   key sets   {k0: q0, q1}  {k1: q1}  |  {k0 and k1: q2}
 *   levels                0            |         1
 *
 * The key blocks of a query block add to its dQ in the order of the items: by level, by work, by block. turns has, for
 * each tile and query block, how many come before the tile's own.
 *
 * The tiles of the list are put in the order of their sets, those of a set side by side; tiles of which nothing is
 * visible are left out.
 */
#include "kernel/cuda/prepared.cuh"
#include "kernel/cuda/tile_cursor.cuh"

#include <algorithm>
#include <climits>
#include <tuple>
#include <unordered_map>

struct key_set {
    std::vector<int> tiles;
    int64_t first; /* of its tiles, in the list */
    int g0, g1;    /* the first and the last of its tiles' key/value heads */
    int g_step;    /* from one of them to the next */
    int level;
    int64_t work; /* pairs of a key block, on average */
};

struct item_builder {
    const ra_shape *shape;
    const ra_tile_list *tiles;
    const ra_kv_rows *parts; /* NULL: one part, the rank's own, which has all heads */
    int rows, keys;
    gpu_lists *lists;
    std::vector<int> group_of; /* [tiles] */
    std::vector<key_set> sets; /* of the round in hand */
    std::vector<int> order;    /* tiles, as items have them */
};

static const ra_tile &tile_of(const item_builder &b, int tile) {
    return b.tiles->tiles[tile];
}

static int gqa_ratio_of(const item_builder &b) {
    return (int)(b.shape->heads_q / b.shape->heads_kv);
}

/* From one to the next of the key/value heads that a tile's query heads read; 1 also where some between are not read.
 */
static int kv_head_step(int64_t head_stride, int gqa_ratio) {
    return head_stride > gqa_ratio && head_stride % gqa_ratio == 0 ? (int)(head_stride / gqa_ratio) : 1;
}

static int heads_of_set(const key_set &set) {
    return (set.g1 - set.g0) / set.g_step + 1;
}

/* The heads that a part's views have. */
static ra_span heads_held(const item_builder &b, int part) {
    ra_span all = {0, 1, b.shape->heads_kv};
    return b.parts ? b.parts[part].heads : all;
}

/* ---- key sets ---------------------------------------------------------------------------------------------------- */

static auto key_of(const ra_tile &t) {
    return std::make_tuple(t.part, t.k_index, t.k_rows.first, t.k_rows.stride, t.k_rows.count, t.heads.first,
                           t.heads.stride, t.heads.count);
}

/* A set has at most one tile of a group: the group's queue for dQ goes through one set after the other. */
static void make_sets(item_builder &b, const ra_tile_round *round) {
    std::vector<int> order;
    for (int64_t g = round->first; g < round->first + round->count; g++)
        for (int64_t t = 0; t < b.tiles->groups[g].count; t++) {
            int tile = (int)(b.tiles->groups[g].first + t);
            b.group_of[tile] = (int)g;
            if (ra_tile_pairs(&tile_of(b, tile)) > 0) order.push_back(tile);
        }
    std::stable_sort(order.begin(), order.end(),
                     [&](int x, int y) { return key_of(tile_of(b, x)) < key_of(tile_of(b, y)); });
    b.sets.clear();
    for (size_t i = 0; i < order.size(); i++) {
        const ra_tile &t = tile_of(b, order[i]);
        bool joins =
            i > 0 && key_of(tile_of(b, order[i - 1])) == key_of(t) && b.group_of[order[i - 1]] != b.group_of[order[i]];
        if (!joins) {
            int gqa_ratio = gqa_ratio_of(b);
            key_set set = {{}, order[i], (int)t.heads.first / gqa_ratio, 0, 1, 0, 0};
            set.g1 = (int)ra_span_last(t.heads) / gqa_ratio;
            set.g_step = kv_head_step(t.heads.stride, gqa_ratio);
            b.sets.push_back(set);
        }
        key_set &set = b.sets.back();
        set.tiles.push_back(order[i]);
        set.work += ra_tile_pairs(&t) / blocks_of(t.k_rows.count, b.keys);
    }
    /* The last queries first, as in a tile: those that all items of the set have most alike. Items that come to the
     * same queries at the same distance from each other need not wait for one another. */
    for (key_set &set : b.sets) std::reverse(set.tiles.begin(), set.tiles.end());
}

/* ---- levels ------------------------------------------------------------------------------------------------------ */

/* Whether a part's gradients come with every call: where they are is not known, but that parts lie apart is. */
static bool comes_with_calls(const item_builder &b, int part) {
    return !b.parts || !b.parts[part].dk.data;
}

static ra_view dk_view(const item_builder &b, int part) {
    ra_view rows = {(void *)((uintptr_t)part << 56), 0, 1, 1ll << 40, 1}; /* any addresses that differ */
    return comes_with_calls(b, part) ? rows : b.parts[part].dk;
}

/* The least and greatest row of a set's keys. */
static std::pair<int64_t, int64_t> row_hull(const ra_tile &t) {
    if (!t.k_index) return {t.k_rows.first, ra_span_last(t.k_rows)};
    auto ends = std::minmax_element(t.k_index, t.k_index + t.k_rows.count);
    return {*ends.first, *ends.second};
}

struct hull {
    int g0, g1, g_step, part;
    int64_t low, high; /* rows */
    ra_span rows;
    bool listed; /* rows are those of an index, and not these */
};

/* The addresses between which a set's dk lies, all heads and batches. */
static std::pair<int64_t, int64_t> address_hull(const item_builder &b, const hull &x) {
    ra_view dk = b.parts[x.part].dk;
    ra_span held = b.parts[x.part].heads;
    int64_t low = 0, high = b.shape->dim - 1,
            ends[3][2] = {{x.low * dk.row, x.high * dk.row},
                          {(x.g0 - held.first) / held.stride * dk.head, (x.g1 - held.first) / held.stride * dk.head},
                          {0, (b.shape->batch - 1) * dk.batch}};
    for (auto &end : ends) {
        low += std::min(end[0], end[1]);
        high += std::max(end[0], end[1]);
    }
    int64_t bytes = (int64_t)ra_shape_acc_bytes(b.shape), data = (int64_t)(uintptr_t)dk.data;
    return {data + low * bytes, data + high * bytes};
}

/* Whether sets of different parts lie apart in memory. */
static bool parts_are_disjoint(const item_builder &b, const std::vector<hull> &hulls) {
    std::unordered_map<int, std::pair<int64_t, int64_t>> known;
    for (const hull &x : hulls) {
        if (comes_with_calls(b, x.part)) return true;
        auto here = address_hull(b, x), before = known.emplace(x.part, here).first->second;
        known[x.part] = {std::min(here.first, before.first), std::max(here.second, before.second)};
    }
    std::vector<std::pair<int64_t, int64_t>> spans;
    for (const auto &entry : known) spans.push_back(entry.second);
    std::sort(spans.begin(), spans.end());
    for (size_t i = 1; i < spans.size(); i++)
        if (spans[i].first <= spans[i - 1].second) return false;
    return true;
}

static ra_span heads_of_hull(const hull &x) {
    return {x.g0, x.g_step, (x.g1 - x.g0) / x.g_step + 1};
}

/* Whether two sets of a part have a head in common, and not all. */
static bool share_some_heads(const hull &x, const hull &y) {
    ra_span a = heads_of_hull(x), b = heads_of_hull(y);
    return x.part == y.part && !ra_span_same(a, b) && ra_span_intersect(a, b).count > 0;
}

/* Of hulls by part and heads: those that begin where the part or the heads change. */
static bool heads_are_disjoint(const std::vector<hull> &hulls) {
    std::vector<const hull *> kinds;
    for (const hull &x : hulls) {
        if (!kinds.empty() && kinds.back()->part != x.part) kinds.clear();
        if (!kinds.empty() && ra_span_same(heads_of_hull(*kinds.back()), heads_of_hull(x))) continue;
        if (std::any_of(kinds.begin(), kinds.end(), [&](const hull *y) { return share_some_heads(*y, x); }))
            return false;
        kinds.push_back(&x);
    }
    return true;
}

/* Comparisons of rows that lie between each other: more would take as long as to go through the rows. */
enum { MOST_COMPARED = 1 << 18 };

/* Of hulls by part, heads and first row: sets with the same heads. */
static bool rows_are_disjoint(const std::vector<hull> &hulls) {
    int64_t compared = 0;
    for (size_t i = 0; i < hulls.size(); i++)
        for (size_t n = i + 1; n < hulls.size(); n++) {
            const hull &x = hulls[i], &y = hulls[n];
            if (x.part != y.part || x.g0 != y.g0 || x.g1 != y.g1 || x.g_step != y.g_step || y.low > x.high) break;
            if (x.listed || y.listed || ++compared > MOST_COMPARED) return false;
            if (ra_span_intersect(x.rows, y.rows).count > 0) return false;
        }
    return true;
}

/* Whether the sets are disjoint for reasons that are quickly seen: parts that lie apart, and in each of them the same
 * heads or none in common, and no rows in common. */
static bool plainly_disjoint(const item_builder &b) {
    std::vector<hull> hulls;
    for (const key_set &set : b.sets) {
        const ra_tile &t = tile_of(b, set.tiles[0]);
        auto rows = row_hull(t);
        hulls.push_back({set.g0, set.g1, set.g_step, t.part, rows.first, rows.second, t.k_rows, t.k_index != NULL});
    }
    std::sort(hulls.begin(), hulls.end(), [](const hull &x, const hull &y) {
        return std::tie(x.part, x.g0, x.g1, x.g_step, x.low) < std::tie(y.part, y.g0, y.g1, y.g_step, y.low);
    });
    return heads_are_disjoint(hulls) && rows_are_disjoint(hulls) && parts_are_disjoint(b, hulls);
}

/* Row by row: a set stands one level above the highest that one of its rows has been on. Rows are known by their
 * address, since parts may overlap. */
static void find_levels(item_builder &b) {
    std::sort(b.sets.begin(), b.sets.end(), [](const key_set &x, const key_set &y) { return x.first < y.first; });
    if (b.sets.size() < 2 || plainly_disjoint(b)) return;
    std::unordered_map<int64_t, int> above; /* address: the first level that is free */
    for (key_set &set : b.sets) {
        const ra_tile &t = tile_of(b, set.tiles[0]);
        ra_view dk = dk_view(b, t.part);
        ra_span held = heads_held(b, t.part);
        std::vector<int> heads;
        for (int64_t h = 0; h < t.heads.count; h++) heads.push_back((int)ra_span_at(t.heads, h) / gqa_ratio_of(b));
        heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
        for (int step = 0; step < 2; step++)
            for (int g : heads)
                for (int64_t i = 0; i < t.k_rows.count; i++) {
                    int64_t row = ra_tile_key(&t, i), head = (g - held.first) / held.stride;
                    int64_t address = (int64_t)(uintptr_t)dk.data +
                                      (row * dk.row + head * dk.head) * (int64_t)ra_shape_acc_bytes(b.shape);
                    if (step == 1)
                        above[address] = set.level + 1;
                    else if (auto at = above.find(address); at != above.end())
                        set.level = std::max(set.level, at->second);
                }
    }
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

/* How many key blocks see something of query block `block`. */
static int key_blocks(const item_builder &b, const ra_tile &t, int64_t block) {
    int64_t a0 = block * b.rows, a1 = std::min(a0 + b.rows, t.q_rows.count), from, to;
    ra_tile_visible(&t, a0, a1, &from, &to);
    return from < to ? (int)((to - 1) / b.keys - from / b.keys + 1) : 0;
}

/* In the order of the sets, tile by tile: each continues its group's queues where the one before has left them. */
static void make_turns(item_builder &b, const ra_tile_round *round) {
    std::vector<std::vector<int>> queued((size_t)round->count);
    std::vector<int64_t> chains((size_t)round->count);
    for (const key_set &set : b.sets)
        for (int tile : set.tiles) {
            const ra_tile &t = tile_of(b, tile);
            size_t g = (size_t)(b.group_of[tile] - round->first);
            int64_t blocks = blocks_of(t.q_rows.count, b.rows);
            if (queued[g].empty()) {
                queued[g].resize((size_t)blocks);
                chains[g] = b.lists->chains;
                b.lists->chains += b.shape->batch * t.heads.count * blocks;
            }
            b.lists->tiles[tile].chain = chains[g];
            b.lists->tiles[tile].order = (int64_t)b.lists->turns.size();
            for (int64_t block = 0; block < blocks; block++) {
                b.lists->turns.push_back(queued[g][(size_t)block]);
                queued[g][(size_t)block] += key_blocks(b, t, block);
            }
        }
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

static bool sees_block(const item_builder &b, const key_set &set, int64_t block) {
    for (int tile : set.tiles) {
        const ra_tile &t = tile_of(b, tile);
        int64_t b0 = block * b.keys, b1 = std::min(b0 + b.keys, t.k_rows.count);
        if (std::max((int64_t)0, b0 - t.hi) < std::min(t.q_rows.count, b1 - t.lo)) return true;
    }
    return false;
}

/* Whether an entry can say where its heads are by a first one and a step. */
static bool has_even_heads(const item_builder &b, const key_set &set) {
    ra_span held = heads_held(b, tile_of(b, set.tiles[0]).part);
    return heads_of_set(set) == 1 || (set.g_step % held.stride == 0 && set.g_step <= SHRT_MAX);
}

/* spelled: heads have entries of their own. */
static void add_items(item_builder &b, const key_set &set, bool spelled) {
    gpu_item item = {(int)b.order.size(), (int)set.tiles.size()};
    ra_span held = heads_held(b, tile_of(b, set.tiles[0]).part);
    b.order.insert(b.order.end(), set.tiles.begin(), set.tiles.end());
    if (!spelled && set.g1 > set.g0) {
        item.kv_step = (short)set.g_step;
        item.head_step = (short)(set.g_step / held.stride);
    }
    for (; item.block * (int64_t)b.keys < tile_of(b, set.tiles[0]).k_rows.count; item.block++) {
        if (!sees_block(b, set, item.block)) continue;
        for (int g = set.g0; g <= (spelled ? set.g1 : set.g0); g += set.g_step) {
            item.kv_head = g;
            item.head = (int)((g - held.first) / held.stride);
            b.lists->items.push_back(item);
            b.lists->work.push_back(set.work);
        }
    }
}

/* The sets [from, to) are those of one level of a round. */
static void add_launch(item_builder &b, size_t from, size_t to, int64_t state, int64_t round) {
    int heads = heads_of_set(b.sets[from]);
    bool spelled = false; /* sets have different numbers of heads, or some that are not evenly apart */
    for (size_t i = from; i < to; i++) spelled |= heads_of_set(b.sets[i]) != heads || !has_even_heads(b, b.sets[i]);
    size_t first = b.lists->items.size();
    for (size_t i = from; i < to; i++) add_items(b, b.sets[i], spelled);
    int per_entry = (int)b.shape->batch * (spelled ? 1 : heads);
    unsigned count = (unsigned)((b.lists->items.size() - first) * (size_t)per_entry);
    b.lists->launches.push_back({(int64_t)first, count, per_entry, state, round});
}

/* Rows of dk, over the heads, that a set's items write to. Between heads that lie further apart than those that share a
 * key/value head there may be some that no tile reads. */
static int64_t rows_written(const item_builder &b, const key_set &set) {
    const ra_tile &t = tile_of(b, set.tiles[0]);
    int64_t rows = 0;
    if (t.heads.count > 1 && t.heads.stride > gqa_ratio_of(b) * set.g_step) return 0;
    for (int64_t b0 = 0; b0 < t.k_rows.count; b0 += b.keys)
        if (sees_block(b, set, b0 / b.keys)) rows += std::min((int64_t)b.keys, t.k_rows.count - b0);
    return rows * heads_of_set(set);
}

static void order_tiles(item_builder &b) {
    std::vector<gpu_tile> ordered;
    ordered.reserve(b.order.size());
    for (int tile : b.order) ordered.push_back(b.lists->tiles[(size_t)tile]);
    b.lists->tiles.swap(ordered);
}

void gpu_list_items(const ra_shape *shape, const ra_tile_list *tiles, const ra_kv_rows *parts, int rows, int keys,
                    gpu_lists *lists) {
    item_builder b = {shape, tiles, parts, rows, keys, lists, std::vector<int>((size_t)tiles->tile_count), {}, {}};
    for (int64_t p = 0; p < tiles->round_count; p++) {
        const ra_tile_round *round = &tiles->rounds[p];
        make_sets(b, round);
        find_levels(b);
        std::stable_sort(b.sets.begin(), b.sets.end(), [](const key_set &x, const key_set &y) {
            return std::make_pair(x.level, -x.work) < std::make_pair(y.level, -y.work);
        });
        make_turns(b, round);
        for (size_t from = 0, to; from < b.sets.size(); from = to) {
            for (to = from; to < b.sets.size() && b.sets[to].level == b.sets[from].level;) to++;
            for (size_t i = from; i < to && lists->launches.empty(); i++)
                lists->overwritten += rows_written(b, b.sets[i]);
            add_launch(b, from, to, round->state, p);
        }
    }
    order_tiles(b);
}

void gpu_list_key_boxes(int keys, gpu_lists *lists) {
    for (gpu_item &item : lists->items) {
        const gpu_tile &t = lists->tiles[(size_t)item.first];
        item.k_set = t.k_set;
        item.k_row = t.k_at + item.block * keys;
    }
}

/* ---- first queries ----------------------------------------------------------------------------------------------- */

/* The item's first step, of its first head. at = end: it has none. */
static query_cursor first_step(const gpu_lists &lists, const gpu_item &item, int gqa_ratio, int rows, int keys) {
    query_cursor c = {item.first, 0, 0, 0, 0, 0};
    for (; c.at < item.first + item.count; c.at++)
        if (queries_in_tile(lists.tiles[(size_t)c.at], gqa_ratio, item.kv_head, item.block, rows, keys, &c)) break;
    return c;
}

/* Those of the item, which has so many heads: all of them are heads of the same tiles, so that they begin with the same
 * block of queries. None where a head has no queries there, or they are not evenly apart, or count several times. */
static gpu_first_queries first_of_item(const gpu_lists &lists, const gpu_item &item, int heads, int gqa_ratio, int rows,
                                       int keys) {
    gpu_first_queries none = {};
    query_cursor c = first_step(lists, item, gqa_ratio, rows, keys);
    if (c.at == item.first + item.count) return none;
    const gpu_tile &t = lists.tiles[(size_t)c.at];
    int step = 0; /* in head numbers of the tile */
    for (int i = 1; i < heads; i++) {
        int head, end;
        heads_of(t, gqa_ratio, item.kv_head + i * item.kv_step, &head, &end);
        if (i == 1) step = head - c.head;
        if (head >= end || head != c.head + i * step) return none;
    }
    int a0 = c.block * rows, b0 = item.block * keys;
    if (step * t.head_stride > SHRT_MAX || t.queries > SHRT_MAX || t.times > 1) return none;
    bool full =
        a0 + rows <= t.q_count && b0 + keys <= t.k_count && block_is_full(t.lo, t.hi, a0, a0 + rows, b0, b0 + keys);
    return {t.q_first + a0 * t.q_stride,
            t.q_count > 1 ? t.q_stride : 1, /* as its map has it */
            t.q_at + a0,
            t.head_first + c.head * t.head_stride,
            t.q_set.map,
            (short)t.queries,
            (short)(step * t.head_stride),
            (unsigned char)std::min(rows, t.q_count - a0),
            full};
}

void gpu_list_first_queries(const ra_shape *shape, int rows, int keys, gpu_lists *lists) {
    int gqa_ratio = (int)(shape->heads_q / shape->heads_kv);
    for (const gpu_launch &launch : lists->launches)
        for (int64_t i = 0; i < launch.count / launch.per_entry; i++) {
            gpu_item &item = lists->items[(size_t)(launch.first + i)];
            item.queries = first_of_item(*lists, item, launch.per_entry / (int)shape->batch, gqa_ratio, rows, keys);
        }
}
