/* Random inputs for a kernel, and what the definition of a tile makes of them, in doubles, pair by pair.
 *
 * A case has views with all kinds of strides, several key/value parts, several states, and several calls' worth of
 * tiles: rounds of groups over strided rows and heads, several tiles in a group, keys that are a span or listed in any
 * order, bands that leave rows with nothing to see.
 */
#ifndef RA_TESTS_SUPPORT_TILE_CASE_H
#define RA_TESTS_SUPPORT_TILE_CASE_H

#include "kernel/kernel.h"
#include "support/rng.h"

enum { TEST_PARTS = 3, TEST_CALLS = 2, TEST_ROUNDS = 3, TEST_GROUPS = 3, TEST_TILES = 3, TEST_STATES = 3 };

enum { TEST_LIST_TILES = TEST_ROUNDS * TEST_GROUPS * TEST_TILES, TEST_KEYS = 300 };

/* A tensor of one type, and the same elements as doubles. `view` and `exact` index alike. */
typedef struct test_tensor {
    ra_view view;
    ra_dtype dtype;
    double *exact;
    void *memory;
    int64_t elements; /* of memory, gaps included */
} test_tensor;

typedef struct test_list {
    ra_tile tiles[TEST_LIST_TILES];
    int64_t k_index[TEST_LIST_TILES][TEST_KEYS]; /* of the tiles that have one */
    ra_tile_group groups[TEST_ROUNDS * TEST_GROUPS];
    ra_tile_round rounds[TEST_ROUNDS];
    ra_tile_list list;
} test_list;

typedef struct tile_case {
    unsigned seed;
    int plain, counted;
    ra_shape shape;
    ra_dtype acc;
    test_tensor q, dout, dq;
    test_tensor out;     /* where finish writes, of out_dtype, unless in_place */
    test_tensor state_o; /* the o of every state; its view is that of state 0 */
    int64_t o_state;     /* elements from one state's o to the next one's */
    int in_place;        /* finish writes where state 0 has its o */
    test_tensor k[TEST_PARTS], v[TEST_PARTS], dk[TEST_PARTS], dv[TEST_PARTS];
    int64_t part_rows[TEST_PARTS];
    ra_kv_rows parts[TEST_PARTS];
    test_list calls[TEST_CALLS];
    /* What the definition gives, the first two of all states together: */
    double *o, *lse;                 /* [batch, heads_q, rows_q, dim_v], [batch, heads_q, rows_q] */
    double *state_o_want;            /* [states, batch, heads_q, rows_q, dim_v], normalised, without the weight */
    double *state_lse, *state_delta; /* [states, batch, heads_q, rows_q] */
    double *dq_want;                 /* without the weight, as the view indexes; gaps 0 */
    double *dk_want[TEST_PARTS], *dv_want[TEST_PARTS]; /* likewise */
} tile_case;

/* A case of that type from a seed; limit: of dim and dim_v. Aborts the test when there is no memory. */
void tile_case_make(tile_case *c, unsigned seed, ra_dtype dtype, int64_t limit);
/* The same with rows that copies of whole tiles can have: in chunks of 16 bytes, spans of keys only, scale above 0. */
void tile_case_make_plain(tile_case *c, unsigned seed, ra_dtype dtype, int64_t limit);
/* The same, plain or not, and pairs of some tiles count several times, which not all kernels know of. */
void tile_case_make_counted(tile_case *c, int plain, unsigned seed, ra_dtype dtype, int64_t limit);
void tile_case_free(tile_case *c);

/* Index of element [b, row, h, d] in a view. */
int64_t test_index(ra_view view, int64_t b, int64_t row, int64_t h, int64_t d);

/* A tensor of random elements [batch, rows, heads, width] and random strides. */
test_tensor test_tensor_make(rng *r, ra_dtype dtype, int64_t batch, int64_t rows, int64_t heads, int64_t width);
void test_tensor_free(test_tensor *x);

/* The o of shape->states states as one tensor: a batch's, a row's or a head's states lie side by side, so that their
 * elements interleave. The view is that of state 0. */
test_tensor test_state_o_make(rng *r, const ra_shape *shape, int64_t *o_state_out);

/* 1, or not, as the weight of a softmax. */
double test_weight(rng *r);

/* count elements of `dtype` as doubles; to be freed. */
double *test_as_doubles(ra_dtype dtype, const void *data, int64_t count);

/* ||got - want|| / ||want||; infinite when got has a NaN or an infinity that want has not. */
double test_relative_error(const double *got, const double *want, int64_t count);

#endif
