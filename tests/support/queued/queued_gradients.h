/* Gradients that hold nothing yet: which rows of dk, dv and dq the tiles of a call write, and those rows as zeros, so
 * that a kernel which adds to them overwrites them. */
#ifndef TESTS_SUPPORT_QUEUED_GRADIENTS_H
#define TESTS_SUPPORT_QUEUED_GRADIENTS_H

#include "kernel/kernel.h"

/* Rows of dk, over the key/value heads; parts may overlap. 0 for want of memory, too. */
int64_t queued_key_rows(const ra_shape *shape, const ra_tile_list *tiles, const ra_kv_rows *parts);

/* Rows of dq, over the query heads: groups of a round have no row of a head in common. 0 where there are several. */
int64_t queued_query_rows(const ra_tile_list *tiles);

void queued_clear_keys(const ra_shape *shape, const ra_tile_list *tiles, const ra_kv_rows *parts);

/* queries: NULL, or those of several ranks; dq: else. */
void queued_clear_queries(const ra_shape *shape, const ra_tile_list *tiles, const ra_query_rows *queries, ra_view dq);

#endif
