#include "core/shard.h"

int64_t ra_cut(int64_t n, int64_t count, int64_t i) {
    int64_t extra = n % count;
    return i * (n / count) + (i < extra ? i : extra);
}

/* The run that holds a position: the inverse of ra_cut. */
static int64_t run_of(int64_t n, int64_t count, int64_t position) {
    int64_t base = n / count, extra = n % count;
    int64_t long_rows = extra * (base + 1);
    return position < long_rows ? position / (base + 1) : extra + (position - long_rows) / base;
}

static void add_span(ra_shard *shard, ra_span span) {
    if (span.count == 0) return;
    shard->first_row[shard->span_count] = shard->rows;
    shard->spans[shard->span_count++] = span;
    shard->rows += span.count;
}

/* Runs [from, to) of `count`: one span. */
static ra_span runs(int64_t n, int64_t count, int64_t from, int64_t to) {
    int64_t first = ra_cut(n, count, from);
    return (ra_span){first, 1, ra_cut(n, count, to) - first};
}

static ra_span run(int64_t n, int64_t count, int64_t i) {
    return runs(n, count, i, i + 1);
}

ra_shard ra_shard_of(ra_layout layout, int64_t n, int ranks, int rank) {
    ra_shard shard = {0};
    if (layout == RA_LAYOUT_STRIPED) {
        add_span(&shard, (ra_span){rank, ranks, n > rank ? (n - rank - 1) / ranks + 1 : 0});
    } else if (layout == RA_LAYOUT_ZIGZAG || layout == RA_LAYOUT_DOCUMENTS) {
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
    int64_t count = 2 * (int64_t)ranks;
    if (layout == RA_LAYOUT_STRIPED) {
        add_span(&shard, stripes_hull(n, ranks, from, to));
    } else if (layout == RA_LAYOUT_ZIGZAG || layout == RA_LAYOUT_DOCUMENTS) {
        add_span(&shard, runs(n, count, from, to));
        add_span(&shard, runs(n, count, count - to, count - from));
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

/* ---- documents --------------------------------------------------------------------------------------------------- */

/* Of the first n positions dealt to `runs` in turn, how many the runs before the i-th have: ra_cut(n, runs, i) without
 * a division. */
typedef struct dealt {
    int64_t each, extra;
} dealt;

static dealt deal(int64_t n, int64_t runs) {
    return (dealt){n / runs, n % runs};
}

static int64_t before_run(dealt d, int64_t i) {
    return i * d.each + (i < d.extra ? i : d.extra);
}

static int64_t of_run(dealt d, int64_t i) {
    return d.each + (i < d.extra);
}

ra_shard ra_shard_in_document(int64_t first, int64_t end, int ranks, int from, int to) {
    int64_t runs = 2 * (int64_t)ranks;
    dealt a = deal(first, runs), b = deal(end, runs);
    const int64_t bounds[] = {from, to, runs - to, runs - from};
    int64_t at[4];
    for (int i = 0; i < 4; i++) at[i] = first + before_run(b, bounds[i]) - before_run(a, bounds[i]);
    ra_shard shard = {.spans = {{at[0], 1, at[1] - at[0]}, {at[2], 1, at[3] - at[2]}}, .span_count = 2};
    shard.rows = shard.spans[0].count + shard.spans[1].count;
    shard.first_row[0] = of_run(a, from) + of_run(a, runs - 1 - from);
    shard.first_row[1] = shard.first_row[0] + shard.spans[0].count;
    return shard;
}

ra_runs ra_runs_of(int64_t first, int64_t end, int64_t count) {
    dealt a = deal(first, count), b = deal(end, count);
    int more = b.extra > a.extra;
    return (ra_runs){.first = first,
                     .count = count,
                     .each = b.each - a.each,
                     .from = more ? a.extra : b.extra,
                     .to = more ? b.extra : a.extra,
                     .extra = more ? 1 : -1};
}

int64_t ra_runs_start(const ra_runs *runs, int64_t i) {
    int64_t reached = i < runs->from ? runs->from : i > runs->to ? runs->to : i;
    return runs->first + i * runs->each + (reached - runs->from) * runs->extra;
}

int64_t ra_runs_find(const ra_runs *runs, int64_t position) {
    int64_t rest = position - runs->first, before = runs->from * runs->each, size = runs->each + runs->extra;
    if (rest < before) return rest / runs->each;
    rest -= before;
    if (rest < (runs->to - runs->from) * size) return runs->from + rest / size;
    return runs->to + (rest - (runs->to - runs->from) * size) / runs->each;
}

/* Where document d starts. */
static int64_t start_of(const ra_sequence *s, int64_t d) {
    return s->cu ? s->cu[d] : d ? s->n : 0;
}

int64_t ra_sequence_document(const ra_sequence *sequence, int64_t from, int64_t position) {
    int64_t lo = from, hi = sequence->documents - 1;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (start_of(sequence, mid + 1) > position)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* How many rows a rank has of the first n positions, whatever documents they are. */
static int64_t rows_before(int64_t n, int ranks, int rank) {
    dealt d = deal(n, 2 * (int64_t)ranks);
    return of_run(d, rank) + of_run(d, 2 * (int64_t)ranks - 1 - rank);
}

int64_t ra_sequence_position(const ra_sequence *sequence, ra_layout layout, int ranks, int rank, int64_t row) {
    if (layout != RA_LAYOUT_DOCUMENTS) {
        ra_shard shard = ra_shard_of(layout, sequence->n, ranks, rank);
        return ra_shard_position(&shard, row);
    }
    int64_t lo = 0, hi = sequence->documents - 1; /* the document whose end has more of the rank's rows than `row` */
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (rows_before(start_of(sequence, mid + 1), ranks, rank) > row)
            hi = mid;
        else
            lo = mid + 1;
    }
    ra_shard shard = ra_shard_in_document(start_of(sequence, lo), start_of(sequence, lo + 1), ranks, rank, rank + 1);
    return ra_shard_position(&shard, row);
}

void ra_sequence_locate(const ra_sequence *sequence, ra_layout layout, int ranks, int64_t position, int *rank_out,
                        int64_t *row_out) {
    if (layout != RA_LAYOUT_DOCUMENTS) {
        ra_shard_locate(layout, sequence->n, ranks, position, rank_out, row_out);
        return;
    }
    int64_t d = ra_sequence_document(sequence, 0, position), first = start_of(sequence, d);
    ra_runs runs = ra_runs_of(first, start_of(sequence, d + 1), 2 * (int64_t)ranks);
    int64_t i = ra_runs_find(&runs, position);
    int upper = i >= ranks, rank = (int)(upper ? 2 * (int64_t)ranks - 1 - i : i);
    ra_shard shard = ra_shard_in_document(first, start_of(sequence, d + 1), ranks, rank, rank + 1);
    *rank_out = rank;
    *row_out = shard.first_row[upper] + position - shard.spans[upper].first;
}
