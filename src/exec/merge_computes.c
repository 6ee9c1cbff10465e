#include "exec/merge_computes.h"

#include "base/status.h"

/* How many computes from the i-th on can be one: of keys that have been received, with the rank's own queries. */
static int64_t alike_from(const ra_bound_step *bound, int64_t i) {
    int64_t end = i;
    while (end < bound->compute_count && bound->computes[end].parts && !bound->computes[end].visitors) end++;
    return end - i;
}

/* The first `count` of these, as the first. Leaves them as they are where their tiles cannot be one list. */
static ra_status merge_run(ra_pool *pool, ra_pool *scratch, ra_bound_compute *computes, int64_t count,
                           int *merged_out) {
    ra_tile_list *lists = ra_pool_take(scratch, count, sizeof *lists), merged;
    int64_t *first_parts = ra_pool_take(scratch, count, sizeof *first_parts), part_count = 0;
    *merged_out = 0;
    if (!lists || !first_parts) return ra_fail(RA_ERR_MEMORY, "no memory for a plan");
    for (int64_t i = 0; i < count; i++) {
        lists[i] = computes[i].tiles;
        first_parts[i] = part_count;
        part_count += computes[i].part_count;
    }
    RA_TRY(ra_tiles_merge(pool, lists, first_parts, count, &merged));
    if (merged.tile_count == 0) return RA_OK;
    ra_kv_rows *parts = ra_pool_take(pool, part_count, sizeof *parts);
    if (!parts) return ra_fail(RA_ERR_MEMORY, "no memory for a plan");
    for (int64_t i = 0; i < count; i++)
        for (int64_t n = 0; n < computes[i].part_count; n++) parts[first_parts[i] + n] = computes[i].parts[n];
    computes[0].parts = parts;
    computes[0].part_count = part_count;
    computes[0].tiles = merged;
    *merged_out = 1;
    return RA_OK;
}

ra_status ra_merge_computes(ra_pool *pool, ra_bound_step *bound) {
    ra_pool scratch = {0};
    ra_status status = RA_OK;
    int64_t kept = 0;
    for (int64_t i = 0; i < bound->compute_count && status == RA_OK;) {
        int64_t alike = alike_from(bound, i), run = alike > 1 ? alike : 1;
        int merged = 0;
        if (alike > 1) status = merge_run(pool, &scratch, &bound->computes[i], alike, &merged);
        for (int64_t n = 0; n < (merged ? 1 : run); n++) bound->computes[kept++] = bound->computes[i + n];
        i += run;
    }
    if (status == RA_OK) bound->compute_count = kept;
    ra_pool_free(&scratch);
    return status;
}
