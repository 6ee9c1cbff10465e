#include "exec/adds_once.h"

#include <stdlib.h>

static int compare_keys(const void *x, const void *y) {
    const ra_tile *a = *(const ra_tile *const *)x, *b = *(const ra_tile *const *)y;
    if (a->part != b->part) return a->part < b->part ? -1 : 1;
    return (a->k_rows.first > b->k_rows.first) - (a->k_rows.first < b->k_rows.first);
}

/* Whether the keys of any two tiles are the same rows for the same heads, or no row is in both. Rows are taken for all
 * from the first to the last; of keys that an index names it is not known. tiles: sorted here. */
static int are_alike_or_apart(const ra_tile **tiles, int64_t count) {
    if (count > 1) qsort(tiles, (size_t)count, sizeof *tiles, compare_keys);
    int64_t last = 0; /* row of the keys before, in the same part */
    for (int64_t i = 0; i < count; i++) {
        const ra_tile *t = tiles[i], *before = i ? tiles[i - 1] : NULL;
        if (t->k_index) return 0;
        int64_t end = ra_span_last(t->k_rows);
        if (before && before->part == t->part && t->k_rows.first <= last &&
            !(ra_span_same(before->k_rows, t->k_rows) && ra_span_same(before->heads, t->heads)))
            return 0;
        if (!before || before->part != t->part || end > last) last = end;
    }
    return 1;
}

int ra_adds_once(const ra_tile_list *list) {
    if (list->round_count > 1) return 0;
    const ra_tile **tiles = malloc((size_t)list->tile_count * sizeof *tiles + 1);
    if (!tiles) return 0;
    for (int64_t i = 0; i < list->tile_count; i++) tiles[i] = &list->tiles[i];
    int answer = are_alike_or_apart(tiles, list->tile_count);
    free(tiles);
    return answer;
}
