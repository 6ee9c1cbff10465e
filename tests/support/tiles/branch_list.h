/* Lists of dilated branches, which joining makes fewer rounds of, and what must be true of any joined list. */
#ifndef RA_TESTS_SUPPORT_BRANCH_LIST_H
#define RA_TESTS_SUPPORT_BRANCH_LIST_H

#include "core/join_rounds.h"
#include "support/rng.h"

enum { LIST_ROWS = 48, LIST_HEADS = 6, LIST_ROUNDS = 4, LIST_MOST = 4096 };

/* A list in the making: every branch a round, whose tiles see all of their keys. Tiles are told apart by their parts.
 */
typedef struct branch_list {
    ra_tile tiles[LIST_MOST];
    ra_tile_group groups[LIST_MOST];
    ra_tile_round rounds[LIST_ROUNDS];
    ra_tile_list list;
} branch_list;

/* For cmocka: *state is a branch_list. */
int branch_list_make(void **state);
int branch_list_free(void **state);

void branch_list_start(branch_list *m);

/* Every rate-th row of each segment, for heads with that offset, and as many keys. */
void branch_list_add(branch_list *m, int64_t rows, int64_t heads, int64_t segment, int64_t rate);

/* Some branches of LIST_ROWS rows and LIST_HEADS heads, now and then one of another state or with a masked tile. */
void branch_list_random(branch_list *m, rng *r);

/* 2048:1, 8192:4, 16384:16 of 16384 rows and 16 heads; with_keys: keys are the queries' rows of one part. */
void branch_list_longnet(branch_list *m, int with_keys);

/* Pairs of a segment of 2048 rows and a head there: all of these; of the second branch those with three more segments;
 * of the third those with four segments more. */
enum { LONGNET_PAIRS = 2048 * 2048 + 512 * 1536 + 128 * 512 };

ra_work_costs random_work_costs(rng *r, int64_t round);

/* Pairs of a list, each counted once, or as often as it counts. */
int64_t tile_list_pairs(const ra_tile_list *list, int with_extra);

/* Every tile says of its rows where they are in the sequence, as branch_list has put them there. */
void tile_list_check_positions(const ra_tile_list *list);

typedef ra_status (*join_function)(ra_pool *pool, const ra_tile_list *list, const ra_work_costs *costs,
                                   ra_tile_list *list_out);

/* Joins a random list whose keys are rows as its queries are: every query meets every key as often as before. check:
 * more to look at where one round is left; or NULL. What came of it: 1: rounds have been joined; 2: and there are pairs
 * that count several times. */
int branch_list_check_join(branch_list *m, uint64_t seed, join_function join, void (*check)(const ra_tile_list *list));

#endif
