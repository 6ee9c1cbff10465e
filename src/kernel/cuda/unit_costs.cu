/* What a forward pass's units would take the device, for variants with units of different sizes: which of them a plan
 * takes is decided by that. A unit's work is counted in keys, as its whole rows go through them:
 *
 *   rows     ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇   a unit at the end of its tile: the variant's rows, of which
 *            ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇   groups of 64 may be missing (missing), through the tiles'
 *            ··················   keys in whole blocks, and what its two ends take (ends)
 */
#include "kernel/cuda/prepared.cuh"

#include <algorithm>

/* Of a tile, in whole blocks, which begin at the first key that one of its rows [a0, a1) sees. */
static int64_t keys_multiplied(const gpu_tile &t, int64_t a0, int64_t a1, int keys) {
    int64_t from = std::max(a0 + t.lo, (int64_t)0), to = std::min(a1 + t.hi, (int64_t)t.k_count);
    return to > from ? blocks_of(to - from, keys) * keys : 0;
}

/* How much of a whole unit's time one of so many rows takes. */
static double used_share(int64_t used, int rows, gpu_unit_cost cost) {
    enum { GROUP = 64 };
    double share = (double)blocks_of(used, GROUP) * GROUP / rows;
    return share + (1 - share) * cost.missing;
}

/* A unit's work, and how many units there are of it: one of each head. */
struct counted_work {
    double work;
    int64_t count;
};

/* Those of a group that see something. */
static void add_group(const gpu_lists &lists, const ra_tile_group *group, int rows, gpu_unit_cost cost, int64_t batch,
                      std::vector<counted_work> *units) {
    const gpu_tile &first = lists.tiles[(size_t)group->first];
    for (int64_t a0 = 0; a0 < first.q_count; a0 += rows) {
        int64_t a1 = std::min(a0 + rows, (int64_t)first.q_count), keys = 0;
        for (int64_t t = 0; t < group->count; t++)
            keys += keys_multiplied(lists.tiles[(size_t)(group->first + t)], a0, a1, cost.keys);
        if (keys > 0)
            units->push_back({((double)keys + cost.ends) * used_share(a1 - a0, rows, cost), batch * first.head_count});
    }
}

/* All work in equal shares; or, where that is more, what a multiprocessor has that takes as many units as one of them
 * must, of the first n, which are all as long as the n-th at least. */
static double makespan(std::vector<counted_work> *units, int multiprocessors) {
    double all = 0, most = 0;
    int64_t before = 0;
    std::sort(units->begin(), units->end(),
              [](const counted_work &a, const counted_work &b) { return a.work > b.work; });
    for (const counted_work &u : *units) {
        all += u.work * (double)u.count;
        before += u.count;
        most = std::max(most, u.work * (double)blocks_of(before, multiprocessors));
    }
    return std::max(all / multiprocessors, most);
}

double gpu_units_cost(const ra_shape *shape, const ra_tile_list *tiles, const gpu_lists &lists, int rows,
                      gpu_unit_cost cost, int multiprocessors) {
    double sum = 0;
    for (int64_t p = 0; p < tiles->round_count; p++) {
        const ra_tile_round *round = &tiles->rounds[p];
        std::vector<counted_work> units;
        for (int64_t g = 0; g < round->count; g++)
            add_group(lists, &tiles->groups[round->first + g], rows, cost, shape->batch, &units);
        sum += makespan(&units, multiprocessors);
    }
    return sum * rows * cost.row;
}
