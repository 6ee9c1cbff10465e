/* Where rows live, for callers: checked arguments around core/shard.h. */
#include "base/status.h"
#include "core/problem.h"
#include "core/shard.h"

#include <string.h>

static ra_status check(ra_layout layout, int64_t n, int ranks, int rank) {
    if (layout == RA_LAYOUT_AUTO || !ra_layout_name(layout))
        return ra_refuse("layout %d is not contiguous, zigzag, striped or documents; resolve RA_LAYOUT_AUTO with "
                         "ra_layout_resolve",
                         (int)layout);
    if (n < 0 || n > RA_MAX_LENGTH) return ra_refuse("n is %lld; it must be between 0 and 2^40", (long long)n);
    if (ranks < 1 || ranks > RA_MAX_RANKS)
        return ra_refuse("ranks is %d; it must be between 1 and %d", ranks, RA_MAX_RANKS);
    if (rank < 0 || rank >= ranks) return ra_refuse("rank is %d; it must be between 0 and %d", rank, ranks - 1);
    return RA_OK;
}

/* A sequence whose documents the caller has not named. */
static ra_status plain(ra_layout layout, int64_t n, ra_sequence *sequence_out) {
    if (layout == RA_LAYOUT_DOCUMENTS)
        return ra_refuse(
            "where rows lie on the layout 'documents' depends on the documents: use the ra_packed functions");
    *sequence_out = (ra_sequence){n, 1, NULL};
    return RA_OK;
}

static ra_status packed(int64_t n, int64_t documents, const int64_t *cu, ra_sequence *sequence_out) {
    *sequence_out = (ra_sequence){n, 1, NULL};
    if (!cu && documents > 1) return ra_refuse("documents is %lld but cu_seqlens is NULL", (long long)documents);
    if (!cu) return RA_OK;
    if (documents < 1) return ra_refuse("documents is %lld; it must be at least 1", (long long)documents);
    if (cu[0] != 0 || cu[documents] != n)
        return ra_refuse("cu_seqlens goes from %lld to %lld; it must go from 0 to n, which is %lld", (long long)cu[0],
                         (long long)cu[documents], (long long)n);
    for (int64_t d = 0; d < documents; d++)
        if (cu[d + 1] < cu[d])
            return ra_refuse("cu_seqlens must not decrease, but entry %lld is less than the one before it",
                             (long long)d + 1);
    *sequence_out = (ra_sequence){n, documents, cu};
    return RA_OK;
}

int64_t ra_layout_rows(ra_layout layout, int64_t n, int ranks, int rank) {
    return check(layout, n, ranks, rank) == RA_OK ? ra_shard_of(layout, n, ranks, rank).rows : -1;
}

/* ---- one row ----------------------------------------------------------------------------------------------------- */

static ra_status position_of(const ra_sequence *sequence, ra_layout layout, int ranks, int rank, int64_t row,
                             int64_t *position_out) {
    int64_t rows = ra_shard_of(layout, sequence->n, ranks, rank).rows;
    if (row < 0 || row >= rows)
        return ra_refuse("row is %lld; rank %d has %lld rows", (long long)row, rank, (long long)rows);
    if (!position_out) return ra_refuse("position_out is NULL");
    *position_out = ra_sequence_position(sequence, layout, ranks, rank, row);
    return RA_OK;
}

static ra_status locate(const ra_sequence *sequence, ra_layout layout, int ranks, int64_t position, int *rank_out,
                        int64_t *row_out) {
    if (position < 0 || position >= sequence->n)
        return ra_refuse("position is %lld; it must be between 0 and %lld", (long long)position,
                         (long long)sequence->n - 1);
    if (!rank_out || !row_out) return ra_refuse("rank_out or row_out is NULL");
    ra_sequence_locate(sequence, layout, ranks, position, rank_out, row_out);
    return RA_OK;
}

ra_status ra_layout_position(ra_layout layout, int64_t n, int ranks, int rank, int64_t row, int64_t *position_out) {
    ra_sequence sequence = {0};
    RA_TRY(check(layout, n, ranks, rank));
    RA_TRY(plain(layout, n, &sequence));
    return position_of(&sequence, layout, ranks, rank, row, position_out);
}

ra_status ra_layout_locate(ra_layout layout, int64_t n, int ranks, int64_t position, int *rank_out, int64_t *row_out) {
    ra_sequence sequence = {0};
    RA_TRY(check(layout, n, ranks, 0));
    RA_TRY(plain(layout, n, &sequence));
    return locate(&sequence, layout, ranks, position, rank_out, row_out);
}

ra_status ra_packed_locate(ra_layout layout, int64_t n, int64_t documents, const int64_t *cu_seqlens, int ranks,
                           int64_t position, int *rank_out, int64_t *row_out) {
    ra_sequence sequence = {0};
    RA_TRY(check(layout, n, ranks, 0));
    RA_TRY(packed(n, documents, cu_seqlens, &sequence));
    return locate(&sequence, layout, ranks, position, rank_out, row_out);
}

/* ---- all rows ---------------------------------------------------------------------------------------------------- */

/* What is done with a span of positions whose rows follow one another from first_row on. */
typedef void (*span_visitor)(ra_span span, int64_t first_row, void *user);

static void for_each_span(const ra_sequence *sequence, ra_layout layout, int ranks, int rank, span_visitor visit,
                          void *user) {
    int dealt = layout == RA_LAYOUT_DOCUMENTS;
    for (int64_t d = 0; d < (dealt ? sequence->documents : 1); d++) {
        ra_shard shard = !dealt || !sequence->cu
                             ? ra_shard_of(layout, sequence->n, ranks, rank)
                             : ra_shard_in_document(sequence->cu[d], sequence->cu[d + 1], ranks, rank, rank + 1);
        for (int s = 0; s < shard.span_count; s++)
            if (shard.spans[s].count) visit(shard.spans[s], shard.first_row[s], user);
    }
}

static void note_positions(ra_span span, int64_t first_row, void *user) {
    int64_t *positions = user;
    for (int64_t i = 0; i < span.count; i++) positions[first_row + i] = ra_span_at(span, i);
}

static ra_status positions_of(const ra_sequence *sequence, ra_layout layout, int ranks, int rank,
                              int64_t *positions_out) {
    int64_t rows = ra_shard_of(layout, sequence->n, ranks, rank).rows;
    if (rows && !positions_out) return ra_refuse("positions_out is NULL");
    for_each_span(sequence, layout, ranks, rank, note_positions, positions_out);
    return RA_OK;
}

ra_status ra_layout_positions(ra_layout layout, int64_t n, int ranks, int rank, int64_t *positions_out) {
    ra_sequence sequence = {0};
    RA_TRY(check(layout, n, ranks, rank));
    RA_TRY(plain(layout, n, &sequence));
    return positions_of(&sequence, layout, ranks, rank, positions_out);
}

ra_status ra_packed_positions(ra_layout layout, int64_t n, int64_t documents, const int64_t *cu_seqlens, int ranks,
                              int rank, int64_t *positions_out) {
    ra_sequence sequence = {0};
    RA_TRY(check(layout, n, ranks, rank));
    RA_TRY(packed(n, documents, cu_seqlens, &sequence));
    return positions_of(&sequence, layout, ranks, rank, positions_out);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

typedef struct shard_copy {
    unsigned char *whole, *shard; /* of one batch */
    size_t row_bytes;
    int to_shard;
} shard_copy;

/* The rows of a span at their places in the whole: runs of stride 1 move as one. */
static void copy_span(ra_span span, int64_t first_row, void *user) {
    const shard_copy *copy = user;
    int64_t runs = span.stride == 1 ? 1 : span.count;
    size_t bytes = (span.stride == 1 ? (size_t)span.count : 1) * copy->row_bytes;
    for (int64_t i = 0; i < runs; i++) {
        unsigned char *there = copy->whole + (size_t)ra_span_at(span, i) * copy->row_bytes;
        unsigned char *here = copy->shard + (size_t)(first_row + i) * copy->row_bytes;
        memcpy(copy->to_shard ? here : there, copy->to_shard ? there : here, bytes);
    }
}

static ra_status copy_all(const ra_sequence *sequence, ra_layout layout, int ranks, int rank, int64_t batch,
                          shard_copy copy) {
    if (batch < 0) return ra_refuse("batch is negative");
    int64_t rows = ra_shard_of(layout, sequence->n, ranks, rank).rows;
    if (batch && copy.row_bytes && rows && (!copy.whole || !copy.shard)) return ra_refuse("whole or shard is NULL");
    for (int64_t b = 0; b < batch && copy.row_bytes && rows; b++) {
        for_each_span(sequence, layout, ranks, rank, copy_span, &copy);
        copy.whole += (size_t)sequence->n * copy.row_bytes;
        copy.shard += (size_t)rows * copy.row_bytes;
    }
    return RA_OK;
}

static ra_status copy_plain(ra_layout layout, int64_t n, int ranks, int rank, int64_t batch, shard_copy copy) {
    ra_sequence sequence = {0};
    RA_TRY(check(layout, n, ranks, rank));
    RA_TRY(plain(layout, n, &sequence));
    return copy_all(&sequence, layout, ranks, rank, batch, copy);
}

static ra_status copy_packed(ra_layout layout, int64_t n, int64_t documents, const int64_t *cu, int ranks, int rank,
                             int64_t batch, shard_copy copy) {
    ra_sequence sequence = {0};
    RA_TRY(check(layout, n, ranks, rank));
    RA_TRY(packed(n, documents, cu, &sequence));
    return copy_all(&sequence, layout, ranks, rank, batch, copy);
}

ra_status ra_layout_scatter(ra_layout layout, int64_t n, int ranks, int rank, int64_t batch, size_t row_bytes,
                            const void *whole, void *shard_out) {
    shard_copy copy = {(unsigned char *)whole, shard_out, row_bytes, 1};
    return copy_plain(layout, n, ranks, rank, batch, copy);
}

ra_status ra_layout_gather(ra_layout layout, int64_t n, int ranks, int rank, int64_t batch, size_t row_bytes,
                           const void *shard, void *whole_out) {
    shard_copy copy = {whole_out, (unsigned char *)shard, row_bytes, 0};
    return copy_plain(layout, n, ranks, rank, batch, copy);
}

ra_status ra_packed_scatter(ra_layout layout, int64_t n, int64_t documents, const int64_t *cu_seqlens, int ranks,
                            int rank, int64_t batch, size_t row_bytes, const void *whole, void *shard_out) {
    shard_copy copy = {(unsigned char *)whole, shard_out, row_bytes, 1};
    return copy_packed(layout, n, documents, cu_seqlens, ranks, rank, batch, copy);
}

ra_status ra_packed_gather(ra_layout layout, int64_t n, int64_t documents, const int64_t *cu_seqlens, int ranks,
                           int rank, int64_t batch, size_t row_bytes, const void *shard, void *whole_out) {
    shard_copy copy = {whole_out, (unsigned char *)shard, row_bytes, 0};
    return copy_packed(layout, n, documents, cu_seqlens, ranks, rank, batch, copy);
}
