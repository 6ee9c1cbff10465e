/* Forward: a query row accumulates one visible key after the other in its state. */
#include "kernel/parallel.h"
#include "kernel/ref/ref.h"
#include "kernel/ref/ref_row.h"
#include "kernel/rows.h"
#include "kernel/score.h"

#include <math.h>

/* One row's state, in doubles. */
typedef struct row_state {
    double m, l, o[RA_MAX_DIM];
} row_state;

/* A score that is NaN or +inf makes p, and so l and o, NaN for good. */
static void accumulate_key(row_state *state, const ra_score *stage, ra_score_place place, double score, const double *v,
                           int64_t dim_v) {
    double m_new = score <= state->m ? state->m : score;
    double keep = state->m == m_new ? 1 : exp(state->m - m_new);
    state->m = m_new;
    state->l *= keep;
    double p = ra_score_forward(stage, place, score, m_new, &state->l);
    for (int64_t d = 0; d < dim_v; d++) state->o[d] = state->o[d] * keep + p * v[d];
}

static void accumulate_row(const ra_forward_call *call, const ra_tile *tile, int64_t b, int64_t h, int64_t a,
                           row_state *state) {
    const ra_shape *shape = call->shape;
    const ra_kv_rows *kv = &call->parts[tile->part];
    int64_t g = ra_ref_kv_head(shape, kv, h), from, to;
    double q[RA_MAX_DIM], k[RA_MAX_DIM], v[RA_MAX_DIM];
    ra_score stage = ra_score_make(shape);
    ra_ref_load(q, shape->dtype, call->q, b, ra_span_at(tile->q_rows, a), h, shape->dim);
    ra_tile_visible(tile, a, a + 1, &from, &to);
    for (int64_t key = from; key < to; key++) {
        int64_t row = ra_tile_key(tile, key);
        ra_ref_load(k, shape->dtype, kv->k, b, row, g, shape->dim);
        ra_ref_load(v, shape->dtype, kv->v, b, row, g, shape->dim_v);
        ra_score_place place = {tile, h, a, key};
        double score = ra_score_of(&stage, place, ra_ref_dot(q, k, shape->dim));
        if (score != -INFINITY) accumulate_key(state, &stage, place, score, v, shape->dim_v);
    }
}

static void run_row(const ra_forward_call *call, const ra_tile *tile, int64_t s, int64_t b, int64_t h, int64_t a) {
    const ra_shape *shape = call->shape;
    ra_dtype acc = ra_acc_dtype(shape);
    size_t bytes = ra_shape_acc_bytes(shape);
    int64_t row = ra_span_at(tile->q_rows, a), i = ra_row_index(shape, s, b, h, row);
    ra_view o_view = ra_state_o(shape, &call->state, s);
    char *m = (char *)call->state.m + i * (int64_t)bytes;
    char *l = (char *)call->state.l + i * (int64_t)bytes;
    char *o = ra_view_row(o_view, bytes, b, row, h);
    row_state state;
    ra_row_load_f64(&state.m, acc, m, 1, 1);
    ra_row_load_f64(&state.l, acc, l, 1, 1);
    ra_row_load_f64(state.o, acc, o, o_view.dim, shape->dim_v);
    accumulate_row(call, tile, b, h, a, &state);
    ra_row_store_f64(acc, m, 1, &state.m, 1);
    ra_row_store_f64(acc, l, 1, &state.l, 1);
    ra_row_store_f64(acc, o, o_view.dim, state.o, shape->dim_v);
    ra_context_progress(&call->context, 0);
}

static void run_tile(const ra_forward_call *call, const ra_tile *tile, int64_t state) {
    for (int64_t b = 0; b < call->shape->batch; b++)
        for (int64_t h = 0; h < tile->heads.count; h++)
            for (int64_t a = 0; a < tile->q_rows.count && !ra_context_stops(&call->context); a++)
                run_row(call, tile, state, b, ra_span_at(tile->heads, h), a);
}

void ra_ref_forward(const ra_forward_call *call) {
    const ra_tile_list *list = &call->tiles;
    for (int64_t p = 0; p < list->round_count; p++)
        for (int64_t g = 0; g < list->rounds[p].count; g++) {
            const ra_tile_group *group = &list->groups[list->rounds[p].first + g];
            for (int64_t t = 0; t < group->count; t++)
                run_tile(call, &list->tiles[group->first + t], list->rounds[p].state);
        }
}
