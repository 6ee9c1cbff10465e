/* What every body needs to have blocks of rows: the carving of a thread's scratch, and where rows come from. */
#ifndef RA_KERNEL_BLOCKS_H
#define RA_KERNEL_BLOCKS_H

#include "kernel/row_io.h"

/* For what is given constants where it is called, and for small functions of the innermost loops. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

static inline int64_t round_up(int64_t x, int64_t multiple) {
    return (x + multiple - 1) / multiple * multiple;
}

/* Which rows (or columns) and depths of a product see each other: i and those in [i + from, i + to). The keys
 * that a query sees, and the queries that see a key, are such runs. */
typedef struct depth_band {
    int64_t from, to;
} depth_band;

static inline int64_t seen_from(depth_band seen, int64_t i) {
    return i + seen.from > 0 ? i + seen.from : 0;
}

static inline int64_t seen_to(depth_band seen, int64_t i, int64_t depth) {
    return i + seen.to < depth ? i + seen.to : depth;
}

/* The rows are the queries from a0 on, the depths the keys from b0 on; and the other way round. */
static inline depth_band keys_of_queries(const ra_tile *tile, int64_t a0, int64_t b0) {
    return (depth_band){a0 + tile->lo - b0, a0 + tile->hi + 1 - b0};
}

static inline depth_band queries_of_keys(const ra_tile *tile, int64_t a0, int64_t b0) {
    return (depth_band){b0 - tile->hi - a0, b0 - tile->lo + 1 - a0};
}

/* A cursor over one thread's scratch. base NULL: only sizes are wanted. */
typedef struct carver {
    char *base;
    size_t used;
} carver;

static inline void *carve(carver *from, int64_t count, size_t size) {
    size_t at = from->used;
    from->used += (size_t)round_up(count * (int64_t)size, 64);
    return from->base ? from->base + at : NULL;
}

/* Some rows of one batch and head of a view. */
typedef struct row_source {
    ra_view view;
    ra_dtype dtype;
    int64_t b, head;
    ra_span rows;
    const int64_t *index; /* the rows where they are no span; else NULL */
    int64_t width;
} row_source;

static inline const void *row_at(const row_source *from, int64_t i) {
    int64_t row = from->index ? from->index[i] : ra_span_at(from->rows, i);
    return ra_view_row(from->view, ra_dtype_bytes(from->dtype), from->b, row, from->head);
}

/* The rows of a tile's queries in a view of q or dout; of its keys or values in one of k or v. */
static inline row_source queries_of(ra_view view, const ra_shape *shape, const ra_tile *tile, int64_t b, int64_t h,
                                    int64_t width) {
    return (row_source){view, shape->dtype, b, h, tile->q_rows, NULL, width};
}

static inline row_source keys_of(ra_view view, const ra_shape *shape, const ra_tile *tile, int64_t b, int64_t head,
                                 int64_t width) {
    return (row_source){view, shape->dtype, b, head, tile->k_rows, tile->k_index, width};
}

#endif
