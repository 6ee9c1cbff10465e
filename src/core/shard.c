#include "core/shard.h"

int64_t ra_cut(int64_t n, int64_t parts, int64_t i) {
    int64_t extra = n % parts;
    return i * (n / parts) + (i < extra ? i : extra);
}

/* The run that holds a position: the inverse of ra_cut. */
static int64_t run_of(int64_t n, int64_t parts, int64_t position) {
    int64_t base = n / parts, extra = n % parts;
    int64_t long_rows = extra * (base + 1);
    return position < long_rows ? position / (base + 1) : extra + (position - long_rows) / base;
}

static void add_span(ra_shard *shard, ra_span span) {
    if (span.count == 0) return;
    shard->first_row[shard->span_count] = shard->rows;
    shard->spans[shard->span_count++] = span;
    shard->rows += span.count;
}

/* Runs [from, to) of `parts`: one span. */
static ra_span runs(int64_t n, int64_t parts, int64_t from, int64_t to) {
    int64_t first = ra_cut(n, parts, from);
    return (ra_span){first, 1, ra_cut(n, parts, to) - first};
}

static ra_span run(int64_t n, int64_t parts, int64_t i) {
    return runs(n, parts, i, i + 1);
}

ra_shard ra_shard_of(ra_layout layout, int64_t n, int ranks, int rank) {
    ra_shard shard = {0};
    if (layout == RA_LAYOUT_STRIPED) {
        add_span(&shard, (ra_span){rank, ranks, n > rank ? (n - rank - 1) / ranks + 1 : 0});
    } else if (layout == RA_LAYOUT_ZIGZAG) {
        add_span(&shard, run(n, 2 * (int64_t)ranks, rank));
        add_span(&shard, run(n, 2 * (int64_t)ranks, 2 * (int64_t)ranks - 1 - rank));
    } else {
        add_span(&shard, run(n, ranks, rank));
    }
    return shard;
}

/* The positions below n that leave a remainder in [from, to) when divided by ranks: from the first to the last. */
static ra_span stripes_hull(int64_t n, int64_t ranks, int64_t from, int64_t to) {
    int64_t round = (n - 1) / ranks * ranks; /* where the last, perhaps incomplete, round starts */
    int64_t last = round + from < n ? (n < round + to ? n : round + to) - 1 : round - ranks + to - 1;
    return (ra_span){from, 1, n > 0 && last >= from ? last - from + 1 : 0};
}

ra_shard ra_shard_hull(ra_layout layout, int64_t n, int ranks, int from, int to) {
    ra_shard shard = {0};
    int64_t parts = 2 * (int64_t)ranks;
    if (layout == RA_LAYOUT_STRIPED) {
        add_span(&shard, stripes_hull(n, ranks, from, to));
    } else if (layout == RA_LAYOUT_ZIGZAG) {
        add_span(&shard, runs(n, parts, from, to));
        add_span(&shard, runs(n, parts, parts - to, parts - from));
    } else {
        add_span(&shard, runs(n, ranks, from, to));
    }
    return shard;
}

int64_t ra_shard_position(const ra_shard *shard, int64_t row) {
    int s = shard->span_count == 2 && row >= shard->first_row[1];
    return ra_span_at(shard->spans[s], row - shard->first_row[s]);
}

void ra_shard_locate(ra_layout layout, int64_t n, int ranks, int64_t position, int *rank_out, int64_t *row_out) {
    if (layout == RA_LAYOUT_STRIPED) {
        *rank_out = (int)(position % ranks);
        *row_out = position / ranks;
    } else if (layout == RA_LAYOUT_CONTIGUOUS) {
        int64_t i = run_of(n, ranks, position);
        *rank_out = (int)i;
        *row_out = position - ra_cut(n, ranks, i);
    } else {
        int64_t runs = 2 * (int64_t)ranks, i = run_of(n, runs, position);
        int upper = i >= ranks;
        int rank = (int)(upper ? runs - 1 - i : i);
        *rank_out = rank;
        *row_out = position - ra_cut(n, runs, i) + (upper ? run(n, runs, rank).count : 0);
    }
}
