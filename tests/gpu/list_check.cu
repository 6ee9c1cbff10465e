/* The device lists of prepared objects, without a device: where the arrays of random tile lists lie in the block that
 * place is given, that the bytes for the upload are those arrays, with pointers into the block, that the backward
 * items do every block of keys once, that every row of dQ is written first by somebody or zeroed, that merged tiles
 * have the keys that they had, that tensor maps have the tiles' rows, and that every unit is taken once. Needs no GPU.
 *
 *     list_check [--seeds 60]
 */
#include "gpu_test.h"
#include "kernel/cuda/call_parts.cuh"
#include "kernel/cuda/prepared.cuh"
#include "kernel/cuda/sm90/backward_turns.cuh"
#include "list_checks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

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
static void check_items(const gpu_lists &lists, const ra_shape &shape, const ra_kv_rows *parts, unsigned seed) {
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

/* Returns how many items' first queries are listed. */
static size_t check_first_queries(const gpu_lists &lists, const ra_shape &shape, unsigned seed) {
    size_t listed = 0;
    for (const gpu_item &item : lists.items) listed += item.queries.count > 0;
    for (const gpu_launch &launch : lists.launches)
        for (unsigned number = 0; number < launch.count; number++) {
            const gpu_item &item = lists.items[(size_t)launch.first + number / (unsigned)launch.per_entry];
            int i = (int)number % launch.per_entry % (launch.per_entry / (int)shape.batch);
            bool right =
                !item.queries.count || begins_with(item.queries, lists, item, i, item.kv_head + i * item.kv_step,
                                                   (int)(shape.heads_q / shape.heads_kv));
            expect(right, "an item's first queries", seed);
        }
    return listed;
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
    check.bytes(p.other_units, want.other_units, "other units");
    check.bytes(p.tally, want.tally, "tally");
    check.bytes((const unsigned char *)p.maps.parts, want.part_maps, "tensor maps");
    check.apart();
    check_tiles(p.tiles, want.tiles.size(), tiles, pass, c.seed);
    for (const gpu_launch &launch : want.launches)
        expect(launch.last_entries >= 0 && launch.last_entries < (int)(launch.count / (unsigned)launch.per_entry),
               "how many entries are done last", c.seed);
    if (pass == RA_BACKWARD) check_items(want, c.shape, parts_of(c), c.seed);
    if (pass == RA_BACKWARD) check_first_queries(want, c.shape, c.seed);
    if (pass == RA_BACKWARD) check_first_turns(want, check_turns(want, c.shape, turn_group_of(c.seed), c.seed), c.seed);
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
    check_items(lists, shape, &part, 0);
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
    check_items(lists, shape, parts.data(), 0);
    gpu_list_first_queries(&shape, ROWS, KEYS, &lists);
    expect(check_first_queries(lists, shape, 0) == lists.items.size(), "items whose first queries are listed", 0);
    check_first_turns(lists, check_turns(lists, shape, 2, 0), 0);
    expect(lists.launches.size() == 1, "launches of several ranks' keys", 0);
    expect(lists.overwritten == RANKS * COUNT * HEADS, "rows of dk of several ranks", 0);
    expect(lists.overwritten_queries == RANKS * COUNT * HEADS, "rows of dq of several ranks", 0);
    expect(lists.gaps.size() == RANKS, "gaps of several ranks", 0);
}

static void make_counted(tile_case *c, unsigned seed, ra_dtype dtype, int64_t limit) {
    tile_case_make_counted(c, 0, seed, dtype, limit);
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
    check_uneven_heads();
    check_several_ranks();
    check_interleaved(1);
    check_interleaved(2);
    check_merges(seeds * 10);
    check_maps(seeds * 10);
    check_order();
    if (!failures) printf("lists of %u cases: as they were listed\n", seeds);
    return failures != 0;
}
