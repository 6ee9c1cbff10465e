/* The items of the backward pass: that they do every block of keys once, begin with the queries that are listed for
 * them, take their turns at dQ one after the other, and that every row of dQ is written first by somebody or zeroed. */
#include "kernel/cuda/call_parts.cuh"
#include "kernel/cuda/prepared.cuh"
#include "kernel/cuda/sm90/backward_turns.cuh"
#include "list_checks.h"

#include <algorithm>
#include <map>
#include <tuple>

/* Whether a key of block `block` sees a query of the tile. */
static bool block_is_seen(const gpu_tile &t, int block) {
    int b0 = block * KEYS, b1 = std::min(b0 + KEYS, t.k_count);
    return b0 < b1 && std::max(0, b0 - t.hi) < std::min(t.q_count, b1 - t.lo);
}

static bool reads_kv_head(const gpu_tile &t, int gqa_ratio, int g) {
    for (int h = 0; h < t.head_count; h++)
        if ((t.head_first + h * t.head_stride) / gqa_ratio == g) return true;
    return false;
}

static bool same_set(const gpu_row_set &x, const gpu_row_set &y) {
    return x.map == y.map && x.remainder == y.remainder;
}

/* How often each (tile, block of keys, batch, key/value head) is done by the numbers of all launches, as item_at in
 * tile_cursor.cuh takes them apart. */
typedef std::map<std::tuple<int, int, int, int>, std::vector<int>> items_done; /* the head of the views, each time */

static items_done count_items(const gpu_lists &lists, const ra_shape &shape) {
    items_done done;
    for (const gpu_launch &launch : lists.launches)
        for (unsigned number = 0; number < launch.count; number++) {
            const gpu_item &item = lists.items[(size_t)launch.first + number / (unsigned)launch.per_entry];
            int heads = launch.per_entry / (int)shape.batch, rest = (int)number % launch.per_entry;
            int b = rest / heads, g = item.kv_head + rest % heads * item.kv_step;
            int head = item.head + rest % heads * item.head_step;
            for (int i = item.first; i < item.first + item.count; i++) done[{i, item.block, b, g}].push_back(head);
        }
    return done;
}

/* What is visible of every tile is done once, for each batch and key/value head, with the keys of that head. parts:
 * NULL: views have all heads. */
static void check_blocks(const gpu_lists &lists, const ra_shape &shape, const ra_kv_rows *parts, unsigned seed) {
    items_done done = count_items(lists, shape);
    int gqa_ratio = (int)(shape.heads_q / shape.heads_kv);
    for (const auto &entry : done) expect(entry.second.size() == 1, "an item that is done again", seed);
    for (size_t i = 0; i < lists.tiles.size(); i++) {
        const gpu_tile &t = lists.tiles[i];
        for (int block = 0; block * KEYS < t.k_count; block++)
            for (int b = 0; b < (int)shape.batch; b++)
                for (int g = 0; g < (int)shape.heads_kv; g++) {
                    if (!block_is_seen(t, block) || !reads_kv_head(t, gqa_ratio, g)) continue;
                    auto found = done.find({(int)i, block, b, g});
                    int64_t head = parts ? (g - parts[t.part].heads.first) / parts[t.part].heads.stride : g;
                    expect(found != done.end(), "a block of keys that is not done", seed);
                    if (found != done.end()) expect(found->second[0] == head, "a head of the views", seed);
                }
    }
    for (const gpu_item &item : lists.items) {
        const gpu_tile &t = lists.tiles[(size_t)item.first];
        bool right = same_set(item.k_set, t.k_set) && item.k_row == t.k_at + item.block * KEYS;
        expect(right, "where an item's keys are", seed);
    }
}

/* Whether `first` is what head number i of the item, which is key/value head g, begins with: the last block of queries
 * that sees its keys, of the first tile that has one, and of the first head there. */
static bool begins_with(const gpu_first_queries &first, const gpu_lists &lists, const gpu_item &item, int i, int g,
                        int gqa_ratio) {
    int tile = item.first, h = 0;
    while (!block_is_seen(lists.tiles[(size_t)tile], item.block) ||
           !reads_kv_head(lists.tiles[(size_t)tile], gqa_ratio, g))
        tile++;
    const gpu_tile &t = lists.tiles[(size_t)tile];
    while ((t.head_first + h * t.head_stride) / gqa_ratio != g) h++;
    int b0 = item.block * KEYS, b1 = std::min(b0 + KEYS, t.k_count);
    int a0 = (std::min(t.q_count, b1 - t.lo) - 1) / ROWS * ROWS, a1 = std::min(a0 + ROWS, t.q_count);
    bool full = a1 == a0 + ROWS && b1 == b0 + KEYS;
    for (int a = a0; a < a1; a++) full = full && b0 - a >= t.lo && b1 - 1 - a <= t.hi;
    return first.first == t.q_first + a0 * t.q_stride && (t.q_count == 1 || first.stride == t.q_stride) &&
           first.row == t.q_at + a0 && first.head + i * first.head_step == t.head_first + h * t.head_stride &&
           first.map == t.q_set.map && first.queries == t.queries && first.count == a1 - a0 && first.full == full &&
           t.times == 1;
}

static void check_first_queries(const gpu_lists &lists, const ra_shape &shape, unsigned seed) {
    for (const gpu_launch &launch : lists.launches)
        for (unsigned number = 0; number < launch.count; number++) {
            const gpu_item &item = lists.items[(size_t)launch.first + number / (unsigned)launch.per_entry];
            int i = (int)number % launch.per_entry % (launch.per_entry / (int)shape.batch);
            bool right =
                !item.queries.count || begins_with(item.queries, lists, item, i, item.kv_head + i * item.kv_step,
                                                   (int)(shape.heads_q / shape.heads_kv));
            expect(right, "an item's first queries", seed);
        }
}

/* Items wait for turns that are those of items taken before them, and every turn comes: in the order of tickets, the
 * turns at each block of dQ are 0, 1, 2 and so on. Returns how many there are. */
static std::vector<int> check_turns(const gpu_lists &lists, const ra_shape &shape, int group, unsigned seed) {
    std::vector<int> counts((size_t)lists.chains);
    int gqa_ratio = (int)(shape.heads_q / shape.heads_kv);
    for (const gpu_launch &launch : lists.launches)
        for (unsigned number = 0; number < launch.count; number++) {
            const gpu_item &item = lists.items[(size_t)launch.first + number / (unsigned)launch.per_entry];
            int heads = launch.per_entry / (int)shape.batch, rest = (int)number % launch.per_entry;
            int b = rest / heads, g = item.kv_head + rest % heads * item.kv_step;
            for (int i = item.first; i < item.first + item.count; i++) {
                const gpu_tile &t = lists.tiles[(size_t)i];
                int b0 = item.block * KEYS, from = std::max(0, b0 - t.hi);
                int to = std::min(t.q_count, std::min(b0 + KEYS, t.k_count) - t.lo),
                    blocks = (t.q_count + ROWS - 1) / ROWS;
                for (int h = 0; h < t.head_count && from < to; h++)
                    for (int block = from / ROWS; block <= (to - 1) / ROWS; block++) {
                        if ((t.head_first + h * t.head_stride) / gqa_ratio != g) continue;
                        int listed = lists.turns[(size_t)(t.order + block)],
                            together = turns_in_groups(listed) ? group : 1;
                        int turn = turns_before(listed) + turn_at_queries(item.block, block * ROWS, ROWS, KEYS, t.lo,
                                                                          t.hi, t.q_count, t.k_count, together);
                        size_t chain = (size_t)(t.chain + ((int64_t)b * t.head_count + h) * blocks + block);
                        expect(turn == counts[chain]++, "a turn that is another item's", seed);
                    }
            }
        }
    return counts;
}

/* Whether the tile is one of the first round. */
static bool is_of_first_round(const gpu_lists &lists, int tile) {
    for (const gpu_launch &launch : lists.launches)
        for (unsigned i = 0; i < launch.count / (unsigned)launch.per_entry; i++) {
            const gpu_item &item = lists.items[(size_t)launch.first + i];
            if (tile >= item.first && tile < item.first + item.count) return launch.round == 0;
        }
    return false;
}

/* Where dQ is overwritten: each of its blocks in the first round is a gap, or it is whole and has a first turn. turns:
 * of each block. */
static void check_first_turns(const gpu_lists &lists, const std::vector<int> &turns, unsigned seed) {
    std::map<int64_t, int64_t> rows; /* of each group, by its counters */
    int64_t all = 0;
    for (size_t i = 0; i < lists.tiles.size(); i++) {
        const gpu_tile &t = lists.tiles[i];
        if (!is_of_first_round(lists, (int)i)) continue;
        rows[t.chain] = (int64_t)t.q_count * t.head_count;
        for (int a0 = 0, block = 0; a0 < t.q_count && lists.overwritten_queries; a0 += ROWS, block++) {
            bool written = a0 + ROWS <= t.q_count && turns[(size_t)(t.chain + block)] > 0;
            auto is_this = [&](const gpu_gap &gap) {
                return gap.first == t.q_first + a0 * t.q_stride && gap.count == std::min((int)ROWS, t.q_count - a0) &&
                       gap_queries(gap) == t.queries && head_in_gap(gap) == t.head_first &&
                       gap.head_count == t.head_count;
            };
            auto gaps = std::count_if(lists.gaps.begin(), lists.gaps.end(), is_this);
            expect(gaps == !written, "a block of dq that is a gap or has a first turn", seed);
        }
    }
    for (const auto &group : rows) all += group.second;
    expect(lists.overwritten_queries == 0 || lists.overwritten_queries == all, "rows of dq that are overwritten", seed);
    expect(lists.overwritten_queries || lists.gaps.empty(), "gaps of what is not overwritten", seed);
}

/* Blocks of dq that are rounded: each counter is one block's, who knows how many turns there are, and its rows are
 * those of its tiles. turns: of each block. */
static void check_query_blocks(const gpu_lists &lists, const ra_shape &shape, const std::vector<int> &turns,
                               unsigned seed) {
    std::map<int64_t, const gpu_query_block *> found; /* by the first counter */
    std::vector<int> counted(turns.size());
    if (lists.query_blocks.empty()) return;
    for (const gpu_query_block &block : lists.query_blocks) {
        found[block.chain] = &block;
        for (int64_t i = 0; i < shape.batch * block.head_count; i++) {
            size_t chain = (size_t)(block.chain + i * block.blocks);
            expect(chain < turns.size() && turns[chain] == block.turns, "the turns of a block of dq", seed);
            if (chain < turns.size()) counted[chain]++;
        }
    }
    expect(std::all_of(counted.begin(), counted.end(), [](int n) { return n == 1; }), "blocks of dq, each once", seed);
    for (const gpu_tile &t : lists.tiles)
        for (int a0 = 0; a0 < t.q_count; a0 += ROWS) {
            const gpu_query_block *block = found[t.chain + a0 / ROWS];
            bool right = block && block->first == t.q_first + a0 * t.q_stride && block->stride == t.q_stride &&
                         block->count == std::min((int)ROWS, t.q_count - a0) && block->head_count == t.head_count &&
                         block->head_stride == t.head_stride && gap_queries(*block) == t.queries &&
                         head_in_gap(*block) == t.head_first;
            expect(right, "the rows of a block of dq", seed);
        }
}

void check_items_of(const gpu_lists &lists, const ra_shape &shape, const ra_kv_rows *parts, int turn_group,
                    unsigned seed) {
    check_blocks(lists, shape, parts, seed);
    check_first_queries(lists, shape, seed);
    std::vector<int> turns = check_turns(lists, shape, turn_group, seed);
    check_first_turns(lists, turns, seed);
    check_query_blocks(lists, shape, turns, seed);
}

/* Query heads 1 and 4, two to a key/value head: of 0, 1 and 2 the first and the last are read, and those are what the
 * part has. No step leads from one to the other that is a whole one in both the problem and the part. */
static void check_uneven_heads(void) {
    ra_shape shape = {};
    shape.batch = 2;
    shape.heads_q = 6;
    shape.heads_kv = 3;
    shape.dim = shape.dim_v = 32;
    shape.dtype = RA_F32;
    ra_tile tile = {};
    tile.q_rows = {0, 1, 2 * KEYS};
    tile.k_rows = {0, 1, 2 * KEYS};
    tile.heads = {1, 3, 2};
    tile.lo = -2 * KEYS;
    tile.hi = 0;
    ra_tile_group group = {0, 1};
    ra_tile_round round = {0, 1, 0};
    ra_tile_list tiles = {&tile, &group, &round, 1, 1, 1};
    ra_kv_rows part = {};
    part.heads = {0, 2, 2};
    gpu_lists lists;
    gpu_list_tiles(&tiles, &lists);
    gpu_list_items(&shape, &tiles, &part, ROWS, KEYS, &lists);
    gpu_list_key_boxes(KEYS, &lists);
    check_blocks(lists, shape, &part, 0);
}

/* Keys and queries of several ranks, whose places come with every call: rank r has keys and queries behind those of
 * rank r - 1, and no query sees a key behind it. All of it is one launch, in which every row of dk, dv and dq is
 * written first; each rank's last block of queries is a gap. */
static void check_several_ranks(void) {
    enum { RANKS = 3, HEADS = 2, COUNT = 3 * ROWS - 10 };
    ra_shape shape = {};
    shape.batch = 2;
    shape.heads_q = shape.heads_kv = HEADS;
    shape.dim = shape.dim_v = 64;
    shape.dtype = RA_BF16;
    std::vector<ra_tile> tiles;
    std::vector<ra_tile_group> groups;
    std::vector<ra_kv_rows> parts(RANKS);
    for (int q = 0; q < RANKS; q++) {
        parts[(size_t)q].heads = {0, 1, HEADS};
        groups.push_back({(int64_t)tiles.size(), q + 1});
        for (int k = 0; k <= q; k++) {
            ra_tile t = {};
            t.q_rows = t.k_rows = {0, 1, COUNT};
            t.heads = {0, 1, HEADS};
            t.lo = -COUNT;
            t.hi = k < q ? COUNT : 0;
            t.part = k;
            t.queries = q;
            tiles.push_back(t);
        }
    }
    ra_tile_round round = {0, RANKS, 0};
    ra_tile_list list = {tiles.data(), groups.data(), &round, (int64_t)tiles.size(), RANKS, 1};
    gpu_lists lists;
    lists.parts = parts;
    gpu_list_tiles(&list, &lists);
    gpu_list_items(&shape, &list, parts.data(), ROWS, KEYS, &lists);
    gpu_list_key_boxes(KEYS, &lists);
    gpu_list_turn_groups(ROWS, 2, &lists);
    gpu_list_first_turns(ROWS, &lists);
    gpu_list_first_queries(&shape, ROWS, KEYS, &lists);
    gpu_list_query_blocks(ROWS, KEYS, 2, &lists);
    check_items_of(lists, shape, parts.data(), 2, 0);
    expect(lists.query_blocks.size() == RANKS * ((COUNT + ROWS - 1) / ROWS), "blocks of dq of several ranks", 0);
    for (const gpu_item &item : lists.items) expect(item.queries.count > 0, "an item without first queries", 0);
    expect(lists.launches.size() == 1, "launches of several ranks' keys", 0);
    expect(lists.overwritten == RANKS * COUNT * HEADS, "rows of dk of several ranks", 0);
    expect(lists.overwritten_queries == RANKS * COUNT * HEADS, "rows of dq of several ranks", 0);
    expect(lists.gaps.size() == RANKS, "gaps of several ranks", 0);
}

/* Items of heads that have entries of their own, and all have as much to do: blocks of different heads by turns, so
 * many neighbours of one together. */
static void check_interleaved(int together) {
    enum { HEADS = 3, BLOCKS = 5 };
    ra_tile tiles[HEADS] = {};
    ra_tile_group groups[HEADS];
    ra_tile_round round = {0, HEADS, 0};
    ra_tile_list list = {tiles, groups, &round, HEADS, HEADS, 1};
    ra_shape shape = {};
    shape.batch = 2;
    shape.heads_q = shape.heads_kv = HEADS;
    shape.dim = shape.dim_v = 8;
    shape.dtype = RA_F32;
    for (int i = 0; i < HEADS; i++) {
        tiles[i].q_rows = {i, HEADS, ROWS};
        tiles[i].k_rows = {i, HEADS, BLOCKS * KEYS};
        tiles[i].heads = {i, 1, 1};
        tiles[i].lo = -ROWS;
        tiles[i].hi = BLOCKS * KEYS;
        groups[i] = {i, 1};
    }
    gpu_lists lists;
    gpu_list_tiles(&list, &lists);
    gpu_list_items(&shape, &list, NULL, ROWS, KEYS, &lists);
    gpu_interleave_heads(together, &lists);
    expect(lists.items.size() == HEADS * BLOCKS, "items of several heads", 0);
    size_t at = 0;
    for (int block = 0; block < BLOCKS; block += together)
        for (int head = 0; head < HEADS; head++)
            for (int i = block; i < std::min(block + together, (int)BLOCKS); i++, at++)
                expect(lists.items[at].kv_head == head && lists.items[at].block == i, "heads by turns", 0);
}

void check_items(void) {
    check_uneven_heads();
    check_several_ranks();
    check_interleaved(1);
    check_interleaved(2);
}
