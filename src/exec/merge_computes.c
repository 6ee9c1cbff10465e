#include "exec/merge_computes.h"

#include "base/status.h"

/* How many computes from the i-th on can be one: of keys that have been received, with the rank's own queries. */
static int64_t alike_from(const ra_bound_step *bound, int64_t i) {
    int64_t end = i;
    while (end < bound->compute_count && bound->computes[end].parts && !bound->computes[end].visitors) end++;
    return end - i;
}

static ra_status merge_parts(ra_pool *pool, const ra_bound_compute *computes, int64_t count, const int64_t *first_parts,
                             int64_t part_count, ra_bound_compute *merged) {
    ra_kv_rows *parts = ra_pool_take(pool, part_count, sizeof *parts);
    ra_lent_part *lent = ra_pool_take(pool, computes[0].lent ? part_count : 0, sizeof *lent);
    if (!parts || !lent) return ra_no_memory();
    for (int64_t i = 0; i < count; i++)
        for (int64_t n = 0; n < computes[i].part_count; n++) {
            parts[first_parts[i] + n] = computes[i].parts[n];
            if (computes[0].lent) lent[first_parts[i] + n] = computes[i].lent[n];
        }
    merged->parts = parts;
    merged->lent = computes[0].lent ? lent : NULL;
    merged->part_count = part_count;
    return RA_OK;
}

/* These as one, which is otherwise as the first; *merged_out says whether their tiles can be one list. */
static ra_status merge_run(ra_pool *pool, ra_pool *scratch, const ra_bound_compute *computes, int64_t count,
                           ra_bound_compute *one_out, int *merged_out) {
    ra_tile_list *lists = ra_pool_take(scratch, count, sizeof *lists), merged;
    int64_t *first_parts = ra_pool_take(scratch, count, sizeof *first_parts), part_count = 0;
    *merged_out = 0;
    if (!lists || !first_parts) return ra_no_memory();
    for (int64_t i = 0; i < count; i++) {
        lists[i] = computes[i].tiles;
        first_parts[i] = part_count;
        part_count += computes[i].part_count;
    }
    RA_TRY(ra_tiles_merge(pool, lists, first_parts, count, &merged));
    if (merged.tile_count == 0) return RA_OK;
    ra_bound_compute one = computes[0];
    RA_TRY(merge_parts(pool, computes, count, first_parts, part_count, &one));
    one.tiles = merged;
    *one_out = one;
    *merged_out = 1;
    return RA_OK;
}

ra_status ra_merge_computes(ra_pool *pool, ra_bound_step *bound) {
    ra_pool scratch = {0};
    ra_status status = RA_OK;
    int64_t kept = 0;
    for (int64_t i = 0; i < bound->compute_count && status == RA_OK;) {
        int64_t alike = alike_from(bound, i), run = alike > 1 ? alike : 1;
        ra_bound_compute one;
        int merged = 0;
        if (alike > 1) status = merge_run(pool, &scratch, &bound->computes[i], alike, &one, &merged);
        if (merged) bound->computes[kept++] = one;
        for (int64_t n = 0; n < run && !merged; n++) bound->computes[kept++] = bound->computes[i + n];
        i += run;
    }
    if (status == RA_OK) bound->compute_count = kept;
    ra_pool_free(&scratch);
    return status;
}

/* ---- a pass's ---------------------------------------------------------------------------------------------------- */

/* Whether a compute can become one with those of other steps. */
static int is_gathered(const ra_program *program, const ra_bound_compute *c) {
    return !c->visitors && c->tiles.tile_count > 0 && (c->parts || program->lenders);
}

/* Own keys as others' that are lent: a part whose place comes with each run. */
static ra_status lend_own(ra_pool *pool, const ra_program *program, ra_bound_compute *c) {
    const ra_setup *setup = program->setup;
    if (c->parts) return RA_OK;
    c->parts = ra_pool_take(pool, 1, sizeof *c->parts);
    c->lent = ra_pool_take(pool, 1, sizeof *c->lent);
    if (!c->parts || !c->lent) return ra_no_memory();
    c->parts[0].heads = program->own.heads;
    c->lent[0] = (ra_lent_part){.owner = setup->rank, .rows = {0, 1, setup->rows_k}, .heads = program->own.heads};
    return RA_OK;
}

/* Takes those that are gathered out of the step. */
static void take_out(const ra_program *program, ra_bound_step *bound) {
    int64_t kept = 0;
    for (int64_t i = 0; i < bound->compute_count; i++)
        if (!is_gathered(program, &bound->computes[i])) bound->computes[kept++] = bound->computes[i];
    bound->compute_count = kept;
}

static ra_status list_gathered(ra_pool *pool, const ra_program *program, ra_pool *scratch, ra_bound_compute **list_out,
                               int64_t *count_out, int *last_out) {
    int64_t capacity = 0;
    *list_out = NULL, *count_out = 0, *last_out = 0;
    for (int s = 0; s < program->schedule->step_count; s++)
        for (int64_t i = 0; i < program->steps[s].compute_count; i++) {
            if (!is_gathered(program, &program->steps[s].computes[i])) continue;
            ra_bound_compute *item = ra_pool_append(scratch, list_out, count_out, &capacity, sizeof *item);
            if (!item) return ra_no_memory();
            *item = program->steps[s].computes[i];
            RA_TRY(lend_own(pool, program, item));
            *last_out = s;
        }
    return RA_OK;
}

static ra_status gather(ra_pool *pool, ra_pool *scratch, ra_program *program) {
    ra_bound_compute *list, one;
    int64_t count;
    int last, merged = 0;
    RA_TRY(list_gathered(pool, program, scratch, &list, &count, &last));
    if (count < 2) return RA_OK;
    RA_TRY(merge_run(pool, scratch, list, count, &one, &merged));
    if (!merged) return RA_OK;
    for (int s = 0; s <= last; s++) take_out(program, &program->steps[s]);
    ra_bound_step *step = &program->steps[last]; /* it had one at least, so there is a place */
    step->computes[step->compute_count++] = one;
    return RA_OK;
}

ra_status ra_gather_computes(ra_pool *pool, ra_program *program) {
    ra_pool scratch = {0};
    ra_status status = gather(pool, &scratch, program);
    ra_pool_free(&scratch);
    return status;
}
