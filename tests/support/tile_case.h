/* Random inputs for a kernel, and what the definition of a tile makes of them, in doubles, pair by pair.
 *
 * A case has views with all kinds of strides, several key/value parts, and several calls' worth of tiles: passes of
 * groups over strided rows and heads, several tiles in a group, bands that leave rows with nothing to see.
 */
#ifndef RA_TESTS_SUPPORT_TILE_CASE_H
#define RA_TESTS_SUPPORT_TILE_CASE_H

#include "kernel/kernel.h"
#include "support/rng.h"

enum { TEST_PARTS = 3, TEST_CALLS = 2, TEST_PASSES = 2, TEST_GROUPS = 3, TEST_TILES = 3 };

/* A tensor of one type, and the same elements as doubles. `view` and `exact` index alike. */
typedef struct test_tensor {
    ra_view view;
    ra_dtype dtype;
    double *exact;
    void *memory;
    int64_t elements; /* of memory, gaps included */
} test_tensor;

typedef struct test_list {
    ra_tile tiles[TEST_PASSES * TEST_GROUPS * TEST_TILES];
    ra_tile_group groups[TEST_PASSES * TEST_GROUPS];
    ra_tile_pass passes[TEST_PASSES];
    ra_tile_list list;
} test_list;

typedef struct tile_case {
    unsigned seed;
    ra_shape shape;
    ra_dtype acc;
    test_tensor q, dout;
    test_tensor k[TEST_PARTS], v[TEST_PARTS], dk[TEST_PARTS], dv[TEST_PARTS];
    int64_t part_rows[TEST_PARTS];
    ra_kv_part parts[TEST_PARTS];
    test_list calls[TEST_CALLS];
    /* What the definition gives: */
    double *o, *lse;                                   /* [batch, heads_q, rows_q, dim_v], [batch, heads_q, rows_q] */
    double *delta, *dq;                                /* [batch, heads_q, rows_q], [batch, heads_q, rows_q, dim] */
    double *dk_want[TEST_PARTS], *dv_want[TEST_PARTS]; /* as the views index */
} tile_case;

/* A case of that type from a seed; limit: of dim and dim_v. Aborts the test when there is no memory. */
void tile_case_make(tile_case *c, unsigned seed, ra_dtype dtype, int64_t limit);
void tile_case_free(tile_case *c);

/* Index of element [b, row, h, d] in a view. */
int64_t test_index(ra_view view, int64_t b, int64_t row, int64_t h, int64_t d);

/* A tensor of random elements with room for [batch, rows, heads, width] and random strides. */
test_tensor test_tensor_make(rng *r, ra_dtype dtype, int64_t batch, int64_t rows, int64_t heads, int64_t width);
void test_tensor_free(test_tensor *x);

/* count elements of `dtype` as doubles; to be freed. */
double *test_as_doubles(ra_dtype dtype, const void *data, int64_t count);

/* ||got - want|| / ||want||; infinite when got has a NaN or an infinity that want has not. */
double test_relative_error(const double *got, const double *want, int64_t count);

#endif
