/* Where rows live, for callers: checked arguments around core/shard.h. */
#include "base/status.h"
#include "core/problem.h"
#include "core/shard.h"

#include <string.h>

static ra_status check(ra_layout layout, int64_t n, int ranks, int rank) {
    if (layout != RA_LAYOUT_CONTIGUOUS && layout != RA_LAYOUT_ZIGZAG && layout != RA_LAYOUT_STRIPED)
        return ra_refuse(
            "layout %d is not contiguous, zigzag or striped; resolve RA_LAYOUT_AUTO with ra_layout_resolve",
            (int)layout);
    if (n < 0 || n > RA_MAX_LENGTH) return ra_refuse("n is %lld; it must be between 0 and 2^40", (long long)n);
    if (ranks < 1 || ranks > RA_MAX_RANKS)
        return ra_refuse("ranks is %d; it must be between 1 and %d", ranks, RA_MAX_RANKS);
    if (rank < 0 || rank >= ranks) return ra_refuse("rank is %d; it must be between 0 and %d", rank, ranks - 1);
    return RA_OK;
}

int64_t ra_layout_rows(ra_layout layout, int64_t n, int ranks, int rank) {
    return check(layout, n, ranks, rank) == RA_OK ? ra_shard_of(layout, n, ranks, rank).rows : -1;
}

ra_status ra_layout_position(ra_layout layout, int64_t n, int ranks, int rank, int64_t row, int64_t *position_out) {
    RA_TRY(check(layout, n, ranks, rank));
    ra_shard shard = ra_shard_of(layout, n, ranks, rank);
    if (row < 0 || row >= shard.rows)
        return ra_refuse("row is %lld; rank %d has %lld rows", (long long)row, rank, (long long)shard.rows);
    if (!position_out) return ra_refuse("position_out is NULL");
    *position_out = ra_shard_position(&shard, row);
    return RA_OK;
}

ra_status ra_layout_locate(ra_layout layout, int64_t n, int ranks, int64_t position, int *rank_out, int64_t *row_out) {
    RA_TRY(check(layout, n, ranks, 0));
    if (position < 0 || position >= n)
        return ra_refuse("position is %lld; it must be between 0 and %lld", (long long)position, (long long)n - 1);
    if (!rank_out || !row_out) return ra_refuse("rank_out or row_out is NULL");
    ra_shard_locate(layout, n, ranks, position, rank_out, row_out);
    return RA_OK;
}

ra_status ra_layout_positions(ra_layout layout, int64_t n, int ranks, int rank, int64_t *positions_out) {
    RA_TRY(check(layout, n, ranks, rank));
    ra_shard shard = ra_shard_of(layout, n, ranks, rank);
    if (shard.rows && !positions_out) return ra_refuse("positions_out is NULL");
    for (int64_t row = 0; row < shard.rows; row++) positions_out[row] = ra_shard_position(&shard, row);
    return RA_OK;
}

/* The `rows`-th rows of a shard at their places in the whole: runs of stride 1 move as one. */
static void copy_span(ra_span span, unsigned char *whole, unsigned char *shard, size_t row_bytes, int to_shard) {
    int64_t runs = span.stride == 1 ? 1 : span.count;
    size_t bytes = (span.stride == 1 ? (size_t)span.count : 1) * row_bytes;
    for (int64_t i = 0; i < runs; i++) {
        unsigned char *there = whole + (size_t)ra_span_at(span, i) * row_bytes, *here = shard + (size_t)i * row_bytes;
        memcpy(to_shard ? here : there, to_shard ? there : here, bytes);
    }
}

static ra_status copy(ra_layout layout, int64_t n, int ranks, int rank, int64_t batch, size_t row_bytes,
                      unsigned char *whole, unsigned char *part, int to_shard) {
    RA_TRY(check(layout, n, ranks, rank));
    if (batch < 0) return ra_refuse("batch is negative");
    ra_shard shard = ra_shard_of(layout, n, ranks, rank);
    if (batch && row_bytes && shard.rows && (!whole || !part)) return ra_refuse("whole or shard is NULL");
    for (int64_t b = 0; b < batch && row_bytes; b++)
        for (int s = 0; s < shard.span_count; s++)
            copy_span(shard.spans[s], whole + (size_t)(b * n) * row_bytes,
                      part + (size_t)(b * shard.rows + shard.first_row[s]) * row_bytes, row_bytes, to_shard);
    return RA_OK;
}

ra_status ra_layout_scatter(ra_layout layout, int64_t n, int ranks, int rank, int64_t batch, size_t row_bytes,
                            const void *whole, void *shard_out) {
    return copy(layout, n, ranks, rank, batch, row_bytes, (unsigned char *)whole, shard_out, 1);
}

ra_status ra_layout_gather(ra_layout layout, int64_t n, int ranks, int rank, int64_t batch, size_t row_bytes,
                           const void *shard, void *whole_out) {
    return copy(layout, n, ranks, rank, batch, row_bytes, whole_out, (unsigned char *)shard, 0);
}
