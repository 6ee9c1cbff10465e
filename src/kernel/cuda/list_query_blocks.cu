/* The blocks of dq as the launch that rounds them goes through them (round_queries.cu): how many turns each has, and in
 * about the order in which the last of them come, so that it seldom waits for one while others are whole. */
#include "kernel/cuda/call_parts.cuh"
#include "kernel/cuda/prepared.cuh"

#include <algorithm>
#include <array>
#include <map>

/* A block is whole the later, the later in the list the last key set that it sees something of, then the later the last
 * group of key blocks there; of those that are alike, items come to the last queries first. */
typedef std::array<int64_t, 3> block_rank;

struct ranked_block {
    block_rank rank;
    gpu_query_block block;
};

/* Of each tile the place of its key set in the list of items. */
static std::vector<int64_t> places_of_sets(const gpu_lists &lists) {
    std::vector<int64_t> places(lists.tiles.size());
    for (size_t i = lists.items.size(); i-- > 0;)
        for (int t = lists.items[i].first; t < lists.items[i].first + lists.items[i].count; t++)
            places[(size_t)t] = (int64_t)i;
    return places;
}

void gpu_list_query_blocks(int rows, int keys, int group, gpu_lists *lists) {
    std::map<int64_t, std::vector<size_t>> groups; /* tiles with the same counters have the same queries */
    std::vector<int64_t> places = places_of_sets(*lists);
    std::vector<ranked_block> ranked;
    for (size_t i = 0; i < lists->tiles.size(); i++) groups[lists->tiles[i].chain].push_back(i);
    for (const auto &[chain, tiles] : groups) {
        const gpu_tile &t = lists->tiles[tiles[0]];
        int blocks = (int)blocks_of(t.q_count, rows);
        for (int n = 0; n < blocks; n++) {
            int64_t a0 = (int64_t)n * rows, a1 = std::min(a0 + rows, (int64_t)t.q_count);
            gpu_query_block block = {
                t.q_first + a0 * t.q_stride,       t.q_stride,    chain + n,   blocks, (int)(a1 - a0), 0,
                gap_head(t.queries, t.head_first), t.head_stride, t.head_count};
            block_rank rank = {-1, 0, 0};
            for (size_t i : tiles) {
                const gpu_tile &x = lists->tiles[i];
                int64_t from = std::max((int64_t)0, a0 + x.lo), to = std::min((int64_t)x.k_count, a1 + x.hi);
                if (from >= to) continue;
                block.turns += (int)((to - 1) / keys - from / keys) + 1;
                rank = std::max(rank, {places[i], (to - 1) / keys / group, -a0});
            }
            ranked.push_back({rank, block});
        }
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const ranked_block &x, const ranked_block &y) { return x.rank < y.rank; });
    for (const ranked_block &x : ranked) lists->query_blocks.push_back(x.block);
}
