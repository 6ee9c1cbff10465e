/* What units would cost (unit_costs.cu), against multiprocessors that take them one after the other, the longest first:
 * a model of what a launch does, in which every pair is looked at. */
#include "list_checks.h"

#include <algorithm>
#include <queue>
#include <vector>

extern "C" {
#include "support/rng.h"
}

enum { COST_ROWS = 192, COST_GROUPS = 6 };

/* Groups of one tile each: some rows that see a band of some keys, in some heads. */
struct cost_case {
    ra_shape shape;
    std::vector<ra_tile> tiles;
    std::vector<ra_tile_group> groups;
    ra_tile_round round;
    gpu_unit_cost cost;
    int multiprocessors;

    cost_case(unsigned seed, bool even) : shape(), round() {
        rng r = {seed};
        shape.batch = 1 + rng_between(&r, 0, 2);
        int64_t count = 1 + rng_between(&r, 0, COST_GROUPS - 1), heads = 1 + rng_between(&r, 0, 5);
        for (int64_t g = 0; g < count; g++) {
            ra_tile t = {};
            int64_t rows = even ? COST_ROWS * 3 : 1 + rng_between(&r, 0, 5 * COST_ROWS);
            int64_t keys = even ? 500 : 1 + rng_between(&r, 0, 999);
            t.q_rows = {0, 1, rows};
            t.k_rows = {0, 1, keys};
            t.heads = {0, 1, even ? heads : 1 + rng_between(&r, 0, 5)};
            t.lo = even || rng_between(&r, 0, 2) ? -rows : std::min(rng_between(&r, 0, 399) - 200, keys);
            t.hi = even || rng_between(&r, 0, 2) ? keys : std::max(t.lo, rng_between(&r, 0, 399) - 200);
            tiles.push_back(t);
            groups.push_back({g, 1});
        }
        round = {0, count, 0};
        cost = {0.5 + (double)rng_between(&r, 0, 9) / 8, (double)rng_between(&r, 0, 300),
                (double)rng_between(&r, 0, 4) / 4, 16 * (1 + (int)rng_between(&r, 0, 9))};
        multiprocessors = 1 + (int)rng_between(&r, 0, 40);
    }

    ra_tile_list list() const {
        return {tiles.data(), groups.data(), &round, (int64_t)tiles.size(), (int64_t)groups.size(), 1};
    }
};

/* Of the rows [a0, a1) of a tile; 0: they see nothing. */
static double work_of(const ra_tile &t, int64_t a0, int64_t a1, gpu_unit_cost cost) {
    int64_t first = t.k_rows.count, last = -1;
    for (int64_t a = a0; a < a1; a++)
        for (int64_t b = 0; b < t.k_rows.count; b++)
            if (b - a >= t.lo && b - a <= t.hi) {
                first = std::min(first, b);
                last = std::max(last, b);
            }
    if (last < first) return 0;
    int64_t blocks = 0, groups = 0;
    for (int64_t b = first; b <= last; b += cost.keys) blocks++;
    for (int64_t a = a0; a < a1; a += 64) groups++;
    double lacking = COST_ROWS / 64 - (double)groups;
    return cost.row * ((double)(blocks * cost.keys) + cost.ends) * 64 * ((double)groups + lacking * cost.missing);
}

static double last_end(const cost_case &c) {
    std::vector<double> units;
    for (const ra_tile &t : c.tiles)
        for (int64_t a0 = 0; a0 < t.q_rows.count; a0 += COST_ROWS) {
            double work = work_of(t, a0, std::min(a0 + COST_ROWS, t.q_rows.count), c.cost);
            for (int64_t n = 0; work > 0 && n < c.shape.batch * t.heads.count; n++) units.push_back(work);
        }
    std::sort(units.begin(), units.end(), std::greater<double>());
    std::priority_queue<double, std::vector<double>, std::greater<double>> ends;
    for (int m = 0; m < c.multiprocessors; m++) ends.push(0);
    double last = 0;
    for (double work : units) {
        double end = ends.top() + work;
        ends.pop();
        ends.push(end);
        last = std::max(last, end);
    }
    return last;
}

/* No order ends before the cost says so. Longest first ends within one unit of equal shares, which is within twice the
 * cost; and of equal units it ends where the cost says. */
static void check_cost(unsigned seed, bool even) {
    cost_case c(seed, even);
    ra_tile_list tiles = c.list();
    gpu_lists lists;
    gpu_list_tiles(&tiles, &lists);
    double cost = gpu_units_cost(&c.shape, &tiles, lists, COST_ROWS, c.cost, c.multiprocessors), last = last_end(c);
    expect(cost <= last * 1.000001, "a cost that is never more than what it is of", seed);
    expect(last <= cost * (even ? 1.000001 : 2), "a cost that is near what it is of", seed);
}

void check_costs(unsigned seeds) {
    for (unsigned seed = 1; seed <= seeds; seed++) {
        check_cost(seed, false);
        check_cost(seed, true);
    }
}
