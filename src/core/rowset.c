#include "core/rowset.h"

#include "base/status.h"

#include <stdlib.h>

static ra_status push(ra_pool *pool, ra_rowset *set, int64_t from, int64_t to) {
    ra_run *run = ra_pool_append(pool, &set->runs, &set->count, &set->capacity, sizeof *run);
    if (!run) return ra_fail(RA_ERR_MEMORY, "no memory for a set of rows while planning");
    *run = (ra_run){from, to};
    return RA_OK;
}

/* Appends a run that starts at or behind the last one's start; joins those that touch. */
static ra_status append(ra_pool *pool, ra_rowset *set, int64_t from, int64_t to) {
    if (from >= to) return RA_OK;
    ra_run *last = set->count ? &set->runs[set->count - 1] : NULL;
    if (!last || from > last->to) return push(pool, set, from, to);
    if (to > last->to) last->to = to;
    return RA_OK;
}

typedef struct need_loop {
    ra_pool *pool;
    ra_rowset found; /* in the order of the contacts, which is not that of the rows */
} need_loop;

static ra_status collect(const ra_contact *contact, void *user) {
    need_loop *loop = user;
    int64_t from = contact->k_rows.first, to = from + contact->k_rows.count;
    int behind = loop->found.count && from >= loop->found.runs[loop->found.count - 1].from;
    return behind ? append(loop->pool, &loop->found, from, to) : push(loop->pool, &loop->found, from, to);
}

static int by_start(const void *a, const void *b) {
    int64_t x = ((const ra_run *)a)->from, y = ((const ra_run *)b)->from;
    return (x > y) - (x < y);
}

ra_status ra_rowset_needed(ra_pool *pool, const ra_cut_problem *cut, int q_rank, int k_rank, ra_rowset *set_out) {
    need_loop loop = {.pool = pool};
    RA_TRY(ra_pattern_contacts(cut, q_rank, k_rank, collect, &loop));
    if (loop.found.count > 1) qsort(loop.found.runs, (size_t)loop.found.count, sizeof(ra_run), by_start);
    ra_rowset set = {0};
    for (int64_t i = 0; i < loop.found.count; i++)
        RA_TRY(append(pool, &set, loop.found.runs[i].from, loop.found.runs[i].to));
    *set_out = set;
    return RA_OK;
}

ra_status ra_rowset_union(ra_pool *pool, const ra_rowset *a, const ra_rowset *b, ra_rowset *set_out) {
    ra_rowset set = {0};
    int64_t i = 0, j = 0;
    while (i < a->count || j < b->count) {
        int take_a = j == b->count || (i < a->count && a->runs[i].from <= b->runs[j].from);
        ra_run run = take_a ? a->runs[i++] : b->runs[j++];
        RA_TRY(append(pool, &set, run.from, run.to));
    }
    *set_out = set;
    return RA_OK;
}

ra_status ra_rowset_minus(ra_pool *pool, const ra_rowset *a, const ra_rowset *b, ra_rowset *set_out) {
    ra_rowset set = {0};
    int64_t j = 0;
    for (int64_t i = 0; i < a->count; i++) {
        int64_t from = a->runs[i].from, to = a->runs[i].to;
        while (j < b->count && b->runs[j].to <= from) j++;
        for (int64_t k = j; k < b->count && b->runs[k].from < to; k++) {
            RA_TRY(append(pool, &set, from, b->runs[k].from));
            if (b->runs[k].to > from) from = b->runs[k].to;
        }
        RA_TRY(append(pool, &set, from, to));
    }
    *set_out = set;
    return RA_OK;
}

int64_t ra_rowset_rows(const ra_rowset *set) {
    int64_t rows = 0;
    for (int64_t i = 0; i < set->count; i++) rows += set->runs[i].to - set->runs[i].from;
    return rows;
}
