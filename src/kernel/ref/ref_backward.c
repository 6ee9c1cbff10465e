/* Backward: dq of one query row over its keys, then dk and dv of one key row over the queries that see it. p and ds are
 * computed twice, and nothing but the row in hand is ever summed. */
#include "kernel/parallel.h"
#include "kernel/ref/ref.h"
#include "kernel/ref/ref_row.h"
#include "kernel/rows.h"
#include "kernel/score.h"

/* A tile for one batch and one query head h, which reads head g of the views of k and v. */
typedef struct tile_head {
    const ra_backward_call *call;
    const ra_shape *shape;
    const ra_tile *tile;
    const ra_kv_rows *kv;
    int64_t s, b, h, g; /* s: the state */
    ra_score stage;
} tile_head;

typedef struct query_row {
    double q[RA_MAX_DIM], dout[RA_MAX_DIM];
    double lse, delta;
} query_row;

typedef struct key_row {
    double k[RA_MAX_DIM], v[RA_MAX_DIM];
} key_row;

static void load_query(const tile_head *at, int64_t a, query_row *query) {
    int64_t row = ra_span_at(at->tile->q_rows, a), i = ra_row_index(at->shape, at->s, at->b, at->h, row);
    ra_ref_load(query->q, at->shape->dtype, at->call->q, at->b, row, at->h, at->shape->dim);
    ra_ref_load(query->dout, at->shape->dtype, at->call->dout, at->b, row, at->h, at->shape->dim_v);
    query->lse = ra_ref_get(at->shape, at->call->lse, i);
    query->delta = ra_ref_get(at->shape, at->call->delta, i);
}

static void load_key(const tile_head *at, int64_t key, key_row *to) {
    int64_t row = ra_tile_key(at->tile, key);
    ra_ref_load(to->k, at->shape->dtype, at->kv->k, at->b, row, at->g, at->shape->dim);
    ra_ref_load(to->v, at->shape->dtype, at->kv->v, at->b, row, at->g, at->shape->dim_v);
}

/* p and ds of query a and key b. Returns 0, and sets neither, where the pair takes no part. */
static int differentiate(const tile_head *at, int64_t a, int64_t b, const query_row *query, const key_row *key,
                         double *p_out, double *ds_out) {
    ra_score_place place = {at->tile, at->h, a, b};
    double dot = ra_ref_dot(query->q, key->k, at->shape->dim), dp = ra_ref_dot(query->dout, key->v, at->shape->dim_v);
    return ra_score_backward(&at->stage, place, dot, dp, query->lse, query->delta, p_out, ds_out);
}

/* to[i * stride] += by[i], `to` being of the accumulation type. */
static void add_to(const ra_shape *shape, void *to, int64_t stride, const double *by, int64_t count) {
    double sum[RA_MAX_DIM];
    ra_row_load_f64(sum, ra_acc_dtype(shape), to, stride, count);
    for (int64_t i = 0; i < count; i++) sum[i] += by[i];
    ra_row_store_f64(ra_acc_dtype(shape), to, stride, sum, count);
}

static void run_query(const tile_head *at, int64_t a) {
    const ra_shape *shape = at->shape;
    size_t bytes = ra_shape_acc_bytes(shape);
    double dq[RA_MAX_DIM] = {0}, p, ds;
    int64_t from, to;
    query_row query;
    key_row key;
    load_query(at, a, &query);
    ra_tile_visible(at->tile, a, a + 1, &from, &to);
    for (int64_t j = from; j < to; j++) {
        load_key(at, j, &key);
        if (!differentiate(at, a, j, &query, &key, &p, &ds)) continue;
        for (int64_t d = 0; d < shape->dim; d++) dq[d] += ds * key.k[d];
    }
    int64_t row = ra_span_at(at->tile->q_rows, a);
    add_to(shape, ra_view_row(at->call->dq, bytes, at->b, row, at->h), at->call->dq.dim, dq, shape->dim);
    ra_context_progress(&at->call->context, 0);
}

static void run_key(const tile_head *at, int64_t j) {
    const ra_shape *shape = at->shape;
    size_t bytes = ra_shape_acc_bytes(shape);
    double dk[RA_MAX_DIM] = {0}, dv[RA_MAX_DIM] = {0}, p, ds;
    int64_t row = ra_tile_key(at->tile, j);
    query_row query;
    key_row key;
    load_key(at, j, &key);
    for (int64_t a = 0; a < at->tile->q_rows.count; a++) {
        if (j - a < at->tile->lo || j - a > at->tile->hi) continue;
        load_query(at, a, &query);
        if (!differentiate(at, a, j, &query, &key, &p, &ds)) continue;
        for (int64_t d = 0; d < shape->dim; d++) dk[d] += ds * query.q[d];
        for (int64_t d = 0; d < shape->dim_v; d++) dv[d] += p * query.dout[d];
    }
    add_to(shape, ra_view_row(at->kv->dk, bytes, at->b, row, at->g), at->kv->dk.dim, dk, shape->dim);
    add_to(shape, ra_view_row(at->kv->dv, bytes, at->b, row, at->g), at->kv->dv.dim, dv, shape->dim_v);
    ra_context_progress(&at->call->context, 0);
}

static void run_tile(const ra_backward_call *call, const ra_tile *tile, int64_t s, int64_t b, int64_t h) {
    const ra_kv_rows *kv = &call->parts[tile->part];
    tile_head at = {
        call, call->shape, tile, kv, s, b, h, ra_ref_kv_head(call->shape, kv, h), ra_score_make(call->shape)};
    for (int64_t a = 0; a < tile->q_rows.count && !ra_context_stops(&call->context); a++) run_query(&at, a);
    for (int64_t j = 0; j < tile->k_rows.count && !ra_context_stops(&call->context); j++) run_key(&at, j);
}

static void run_group(const ra_backward_call *call, const ra_tile_group *group, int64_t state) {
    for (int64_t t = 0; t < group->count; t++) {
        const ra_tile *tile = &call->tiles.tiles[group->first + t];
        for (int64_t b = 0; b < call->shape->batch; b++)
            for (int64_t h = 0; h < tile->heads.count; h++) run_tile(call, tile, state, b, ra_span_at(tile->heads, h));
    }
}

void ra_ref_backward(const ra_backward_call *call) {
    const ra_tile_list *list = &call->tiles;
    for (int64_t p = 0; p < list->round_count; p++)
        for (int64_t g = 0; g < list->rounds[p].count; g++)
            run_group(call, &list->groups[list->rounds[p].first + g], list->rounds[p].state);
}
