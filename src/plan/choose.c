/* What "auto" means. Pure functions of the problem, so that every rank chooses alike. */
#include "plan/setup.h"
#include "schedule/schedule.h"

/* The largest rank's pairs over the mean: the factor by which the others wait for it. */
static double imbalance(const ra_cut_problem *cut) {
    int64_t total = 0, most = 0;
    for (int q = 0; q < cut->ranks; q++) {
        int64_t pairs = 0;
        for (int k = 0; k < cut->ranks; k++) pairs += ra_pattern_pairs(cut, q, k);
        total += pairs;
        if (pairs > most) most = pairs;
    }
    return total ? (double)most * cut->ranks / (double)total : 1;
}

/* In the order in which they are cheap to communicate: contiguous shards have the fewest neighbours, striped ones need a
 * bit of everybody. One that is balanced within 5% is taken, else the best balanced. */
ra_layout ra_choose_layout(const ra_problem *normal, int ranks) {
    static const ra_layout order[] = {RA_LAYOUT_CONTIGUOUS, RA_LAYOUT_ZIGZAG, RA_LAYOUT_STRIPED};
    ra_layout best = RA_LAYOUT_CONTIGUOUS;
    double least = 0;
    for (int i = 0; i < 3 && ranks > 1; i++) {
        ra_cut_problem cut = {normal, order[i], ranks};
        double factor = imbalance(&cut);
        if (i == 0 || factor < least) {
            best = order[i];
            least = factor;
        }
        if (least <= 1.05) break;
    }
    return best;
}

/* The ring uses neighbours only, so it is preferred until it sends more than pairwise would: a row that only distant
 * ranks need travels through all those between. */
ra_strategy ra_choose_strategy(const ra_cut_problem *cut) {
    int64_t ring = ra_schedule_volume(cut, RA_STRATEGY_RING), pairwise = ra_schedule_volume(cut, RA_STRATEGY_PAIRWISE);
    return ring >= 0 && pairwise >= 0 && pairwise < ring ? RA_STRATEGY_PAIRWISE : RA_STRATEGY_RING;
}
