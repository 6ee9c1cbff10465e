#include "plan/choose.h"

#include "base/status.h"
#include "schedule/schedule.h"

#include <math.h>

/* The layouts that are weighed, in the order in which they are preferred: contiguous shards have the fewest neighbours,
 * documents that are dealt to all and stripes need a bit of everybody. */
static const ra_layout layouts[] = {RA_LAYOUT_CONTIGUOUS, RA_LAYOUT_ZIGZAG, RA_LAYOUT_DOCUMENTS, RA_LAYOUT_STRIPED};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

double ra_cost_of(const ra_problem *p, const ra_load *load) {
    double flops = (double)load->pairs * 2 * (double)(p->dim + p->dim_v);
    double bytes = (double)(load->records * ra_record_elements(p)) * (double)ra_cargo_bytes(p, RA_CARGO_KV);
    return flops + RA_FLOPS_PER_BYTE * bytes;
}

/* A step through the ranks, from any to any: each comes once, and the first few are spread over all with no pattern in
 * common with segments, whose lengths are often powers of two. About the golden section of the ranks, and prime to
 * them. */
static int spread_step(int ranks) {
    int step = (int)((int64_t)ranks * 618 / 1000) + 1;
    for (;; step++) {
        int a = ranks, b = step;
        while (b) {
            int rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) return step;
    }
}

ra_status ra_cost_of_layout(const ra_cut_problem *cut, double limit, double *cost_out) {
    double most = 0;
    size_t bytes = 0;
    int64_t step = spread_step(cut->ranks);
    for (int64_t i = 0; i < cut->ranks && most < limit && bytes <= RA_WEIGHING_BYTES; i++) {
        ra_load load;
        RA_TRY(ra_load_of(cut, (int)((i + 1) * step % cut->ranks), &load));
        double cost = ra_cost_of(cut->problem, &load);
        bytes += load.sets_bytes;
        if (cost > most) most = cost;
    }
    *cost_out = most;
    return RA_OK;
}

/* One document that is dealt to all is zigzag. */
static int is_weighed(const ra_problem *p, ra_layout layout) {
    return layout != RA_LAYOUT_DOCUMENTS || p->documents > 1;
}

/* A layout is given up at the first rank that takes as long as the best one's slowest: what is no better, stripes of
 * many documents above all, is found out cheaply. One that is given up has an earlier one before it that is no worse,
 * so it need not be known exactly. */
ra_status ra_choose_layout(const ra_problem *normal, int ranks, ra_layout *layout_out) {
    double cost[LAYOUTS], least = INFINITY;
    int chosen = 0;
    for (int i = 0; i < LAYOUTS && ranks > 1; i++) {
        ra_cut_problem cut = {normal, layouts[i], ranks};
        cost[i] = INFINITY;
        if (!is_weighed(normal, layouts[i])) continue;
        RA_TRY(ra_cost_of_layout(&cut, least, &cost[i]));
        if (cost[i] < least) least = cost[i];
    }
    while (ranks > 1 && cost[chosen] * (1 - RA_LAYOUT_MARGIN) > least) chosen++;
    *layout_out = layouts[chosen];
    return RA_OK;
}

static ra_status ring_sends_more(const ra_cut_problem *cut, int owner, int *more_out) {
    int64_t ring, pairwise;
    RA_TRY(ra_schedule_volume_of(cut, RA_STRATEGY_RING, owner, &ring));
    RA_TRY(ra_schedule_volume_of(cut, RA_STRATEGY_PAIRWISE, owner, &pairwise));
    *more_out = ring > pairwise;
    return RA_OK;
}

/* Whether it sends more of some owner's rows, of as many owners as are given, which are spread over all ranks. */
static ra_status ring_sends_more_of_some(const ra_cut_problem *cut, int owners, int *more_out) {
    int64_t step = spread_step(cut->ranks);
    *more_out = 0;
    for (int64_t i = 0; i < owners && !*more_out; i++)
        RA_TRY(ring_sends_more(cut, (int)((cut->ranks / 2 + i * step) % cut->ranks), more_out));
    return RA_OK;
}

static ra_status ring_sends_more_in_all(const ra_cut_problem *cut, int *more_out) {
    int64_t ring, pairwise;
    RA_TRY(ra_schedule_volume(cut, RA_STRATEGY_RING, &ring));
    RA_TRY(ra_schedule_volume(cut, RA_STRATEGY_PAIRWISE, &pairwise));
    *more_out = ring > pairwise;
    return RA_OK;
}

/* Queries travel where all of them to all ranks and back are less than what the keys that are needed come to. Both are
 * compared at their most first: in training, where there are as many queries as keys, that settles it. */
static ra_status queries_travel(const ra_cut_problem *cut, int *travel_out) {
    const ra_problem *p = cut->problem;
    double most = ra_passq_most_bytes(p, cut->ranks);
    double most_keys = (double)(cut->ranks - 1) * (double)p->seq_k * (double)p->heads_kv *
                       (double)(ra_record_elements(p) * (int64_t)ra_cargo_bytes(p, RA_CARGO_KV));
    int64_t keys;
    *travel_out = 0;
    if (most >= most_keys) return RA_OK;
    RA_TRY(ra_schedule_volume(cut, RA_STRATEGY_PAIRWISE, &keys));
    *travel_out = most < (double)keys;
    return RA_OK;
}

/* Documents, or the segments of all branches. */
static double intervals_of(const ra_problem *p) {
    double intervals = (double)p->documents;
    for (int64_t b = 0; b < p->branches; b++) intervals += (double)p->seq_k / (double)p->dilated[b].segment;
    return intervals;
}

static int is_worth_comparing(const ra_cut_problem *cut) {
    double intervals = intervals_of(cut->problem), pairs_of_ranks = (double)cut->ranks * cut->ranks;
    int in_bits = cut->layout == RA_LAYOUT_STRIPED || cut->layout == RA_LAYOUT_DOCUMENTS;
    return !in_bits || intervals == 1 || intervals * pairs_of_ranks <= RA_STRIPES_COMPARED;
}

/* The ring never sends less than pairwise of any owner's rows. So one owner can decide against it, and one from the
 * middle mostly does; else the sums must be equal. */
ra_status ra_choose_strategy(const ra_cut_problem *cut, int one_device, ra_strategy *strategy_out) {
    int travel, more = !is_worth_comparing(cut), sample = cut->problem->branches && cut->ranks > RA_OWNERS_COMPARED;
    RA_TRY(queries_travel(cut, &travel));
    if (travel) {
        *strategy_out = RA_STRATEGY_PASSQ;
        return RA_OK;
    }
    if (one_device && cut->problem->branches == 0) {
        *strategy_out = RA_STRATEGY_RING;
        return RA_OK;
    }
    if (!more) RA_TRY(ring_sends_more_of_some(cut, sample ? RA_OWNERS_COMPARED : 1, &more));
    if (!more && !sample) RA_TRY(ring_sends_more_in_all(cut, &more));
    *strategy_out = more ? RA_STRATEGY_PAIRWISE : RA_STRATEGY_RING;
    return RA_OK;
}
