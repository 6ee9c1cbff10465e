#include "support/tiles/tile_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *need(size_t bytes) {
    void *memory = calloc(bytes + 64, 1);
    if (!memory) {
        fprintf(stderr, "no memory for a test case\n");
        abort();
    }
    return memory;
}

int64_t test_index(ra_view view, int64_t b, int64_t row, int64_t h, int64_t d) {
    return b * view.batch + row * view.row + h * view.head + d * view.dim;
}

/* Strides for [batch, rows, heads, width] in one of four orders, with gaps; plain: a row's elements side by side, rows
 * in chunks of 16 bytes whatever the type. Returns the elements spanned. */
static int64_t random_strides(rng *r, int plain, ra_view *view, int64_t batch, int64_t rows, int64_t heads,
                              int64_t width) {
    static const int orders[4][4] = {{3, 2, 1, 0}, {3, 1, 2, 0}, {1, 3, 2, 0}, {3, 2, 1, 0}};
    int64_t counts[4] = {batch, rows, heads, width}, strides[4];
    const int *order = orders[rng_between(r, 0, 3)];
    int64_t span = rng_one_in(r, 5) ? 2 : 1;
    if (plain) {
        order = order[0] == 3 ? order : orders[0];
        span = 1;
    }
    for (int i = 0; i < 4; i++) {
        strides[order[i]] = span;
        span *= counts[order[i]];
        span += rng_between(r, 0, 2);
        if (plain) span = (span + 7) / 8 * 8;
    }
    *view = (ra_view){view->data, strides[0], strides[1], strides[2], strides[3]};
    return span;
}

static test_tensor make_tensor(rng *r, int plain, ra_dtype dtype, int64_t batch, int64_t rows, int64_t heads,
                               int64_t width) {
    test_tensor x = {.dtype = dtype};
    x.elements = random_strides(r, plain, &x.view, batch, rows, heads, width);
    x.exact = need((size_t)x.elements * sizeof(double));
    x.memory = need((size_t)x.elements * ra_dtype_bytes(dtype));
    for (int64_t i = 0; i < x.elements; i++) x.exact[i] = 2 * rng_real(r);
    ra_convert(dtype, x.memory, RA_F64, x.exact, x.elements);
    ra_convert(RA_F64, x.exact, dtype, x.memory, x.elements);
    x.view.data = x.memory;
    return x;
}

test_tensor test_tensor_make(rng *r, ra_dtype dtype, int64_t batch, int64_t rows, int64_t heads, int64_t width) {
    return make_tensor(r, 0, dtype, batch, rows, heads, width);
}

void test_tensor_free(test_tensor *x) {
    free(x->exact);
    free(x->memory);
}

test_tensor test_state_o_make(rng *r, const ra_shape *shape, int64_t *o_state_out) {
    int64_t counts[3] = {shape->batch, shape->rows_q, shape->heads_q};
    int axis = (int)rng_between(r, 0, 2);
    int64_t apart = counts[axis];
    counts[axis] *= shape->states;
    ra_dtype acc = shape->dtype == RA_F64 ? RA_F64 : RA_F32;
    test_tensor o = test_tensor_make(r, acc, counts[0], counts[1], counts[2], shape->dim_v);
    int64_t strides[3] = {o.view.batch, o.view.row, o.view.head};
    *o_state_out = apart * strides[axis];
    return o;
}

double test_weight(rng *r) {
    static const double weights[] = {1, 0.5, 1.0 / 3, 1.7};
    return weights[rng_between(r, 0, 3)];
}

double *test_as_doubles(ra_dtype dtype, const void *data, int64_t count) {
    double *x = need((size_t)count * sizeof(double));
    ra_convert(RA_F64, x, dtype, data, count);
    return x;
}

double test_relative_error(const double *got, const double *want, int64_t count) {
    double off = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        if (got[i] == want[i]) {
            size += isfinite(want[i]) ? want[i] * want[i] : 0;
            continue;
        }
        if (!isfinite(got[i]) || !isfinite(want[i])) return INFINITY;
        off += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    return off == 0 ? 0 : sqrt(off / size);
}

static void make_shape(tile_case *c, rng *r, ra_dtype dtype, int64_t limit) {
    ra_shape *shape = &c->shape;
    shape->batch = rng_between(r, 1, 2);
    shape->heads_kv = rng_between(r, 1, 4);
    shape->heads_q = shape->heads_kv * (rng_between(r, 1, 3));
    shape->dim = rng_between(r, 1, limit);
    shape->dim_v = rng_between(r, 1, limit);
    shape->rows_q = rng_between(r, 1, rng_one_in(r, 2) ? 20 : 300);
    shape->scale = (rng_one_in(r, 3) ? 2 * rng_real(r) : 1) / sqrt((double)shape->dim);
    if (c->plain) shape->scale = fabs(shape->scale) + 1e-3;
    shape->states = rng_between(r, 1, TEST_STATES);
    shape->weight = test_weight(r);
    shape->dtype = shape->out_dtype = dtype;
    if (dtype != RA_F64 && rng_one_in(r, 2)) shape->out_dtype = RA_F32;
    c->acc = dtype == RA_F64 ? RA_F64 : RA_F32;
}

/* What the query rows have. */
static void make_rows(tile_case *c, rng *r) {
    const ra_shape *shape = &c->shape;
    int64_t batch = shape->batch, rows = shape->rows_q, heads = shape->heads_q;
    c->q = make_tensor(r, c->plain, shape->dtype, batch, rows, heads, shape->dim);
    c->dout = make_tensor(r, c->plain, shape->dtype, batch, rows, heads, shape->dim_v);
    c->dq = make_tensor(r, c->plain, c->acc, batch, rows, heads, shape->dim);
    c->out = test_tensor_make(r, shape->out_dtype, batch, rows, heads, shape->dim_v);
    c->state_o = test_state_o_make(r, shape, &c->o_state);
    c->in_place = shape->out_dtype == c->acc && rng_one_in(r, 2);
}

/* Every part holds the same key/value heads, one or more apart. */
static void make_parts(tile_case *c, rng *r) {
    const ra_shape *shape = &c->shape;
    ra_span heads = {0, rng_between(r, 1, 2), 0};
    heads.first = rng_between(r, 0, shape->heads_kv - 1);
    heads.count = 1 + (shape->heads_kv - 1 - heads.first) / heads.stride;
    for (int i = 0; i < TEST_PARTS; i++) {
        int64_t rows = c->part_rows[i] = rng_between(r, 1, rng_one_in(r, 2) ? 12 : TEST_KEYS);
        c->k[i] = make_tensor(r, c->plain, shape->dtype, shape->batch, rows, heads.count, shape->dim);
        c->v[i] = make_tensor(r, c->plain, shape->dtype, shape->batch, rows, heads.count, shape->dim_v);
        c->dk[i] = make_tensor(r, c->plain, c->acc, shape->batch, rows, heads.count, shape->dim);
        c->dv[i] = make_tensor(r, c->plain, c->acc, shape->batch, rows, heads.count, shape->dim_v);
        c->parts[i] = (ra_kv_rows){c->k[i].view, c->v[i].view, c->dk[i].view, c->dv[i].view, heads};
    }
}

/* Query heads that read what the parts hold: all of a run of key/value heads', or one of each key/value head's. */
static ra_span random_heads(const tile_case *c, rng *r) {
    ra_span kv = c->parts[0].heads;
    int64_t gqa_ratio = c->shape.heads_q / c->shape.heads_kv;
    if (kv.stride == 1 && rng_one_in(r, 2)) {
        ra_span heads = {kv.first * gqa_ratio, rng_between(r, 1, 2), 0};
        heads.count = 1 + (kv.count * gqa_ratio - 1) / heads.stride;
        return heads;
    }
    return (ra_span){kv.first * gqa_ratio + rng_between(r, 0, gqa_ratio - 1), kv.stride * gqa_ratio, kv.count};
}

/* Some of `rows` rows, each at most once, in any order. Returns how many. */
static int64_t random_index(rng *r, int64_t rows, int64_t *index) {
    int64_t count = rng_between(r, 1, rows);
    for (int64_t i = 0; i < rows; i++) index[i] = i;
    for (int64_t i = 0; i < count; i++) {
        int64_t j = rng_between(r, i, rows - 1), keep = index[i];
        index[i] = index[j];
        index[j] = keep;
    }
    return count;
}

/* index: [TEST_KEYS] for the tile's rows of keys, where it lists them. */
static ra_tile random_tile(const tile_case *c, rng *r, ra_span q_rows, ra_span heads, int64_t *index) {
    ra_tile tile = {.q_rows = q_rows, .heads = heads, .part = (int)rng_between(r, 0, TEST_PARTS - 1)};
    int64_t rows = c->part_rows[tile.part], n = q_rows.count;
    if (rng_one_in(r, 2) && !c->plain) {
        tile.k_index = index;
        tile.k_rows = (ra_span){0, 1, random_index(r, rows, index)};
    } else {
        tile.k_rows.first = rng_between(r, 0, rows - 1);
        tile.k_rows.stride = rng_between(r, 1, 3);
        tile.k_rows.count = 1 + rng_between(r, 0, (rows - 1 - tile.k_rows.first) / tile.k_rows.stride);
    }
    int64_t keys = tile.k_rows.count;
    int kind = (int)rng_between(r, 0, 3);
    tile.lo = kind & 1 ? rng_between(r, 0, n + keys - 1) - n : -n;
    tile.hi = kind & 2 ? tile.lo + rng_between(r, 0, keys - tile.lo) : keys;
    if (c->counted && rng_one_in(r, 2)) tile.extra = (int)rng_between(r, 1, 4);
    return tile;
}

/* The groups of a pass take turns at the rows, so their rows are disjoint. */
static void make_list(const tile_case *c, rng *r, test_list *to) {
    to->list = (ra_tile_list){.tiles = to->tiles, .groups = to->groups, .rounds = to->rounds};
    to->list.round_count = rng_between(r, 1, TEST_ROUNDS);
    for (int64_t p = 0; p < to->list.round_count; p++) {
        int64_t turns = rng_between(r, 1, TEST_GROUPS);
        to->rounds[p].first = to->list.group_count;
        to->rounds[p].state = rng_between(r, 0, c->shape.states - 1);
        for (int64_t g = 0; g < turns && g < c->shape.rows_q; g++) {
            ra_span rows = {g, turns, (c->shape.rows_q - 1 - g) / turns + 1};
            ra_span heads = random_heads(c, r);
            ra_tile_group *group = &to->groups[to->list.group_count++];
            *group = (ra_tile_group){to->list.tile_count, rng_between(r, 1, TEST_TILES)};
            for (int64_t t = 0; t < group->count; t++) {
                int64_t *index = to->k_index[to->list.tile_count];
                to->tiles[to->list.tile_count++] = random_tile(c, r, rows, heads, index);
            }
        }
        to->rounds[p].count = to->list.group_count - to->rounds[p].first;
    }
}

/* One visible pair: where its query, key, gradients and row are. */
typedef struct pair {
    int64_t state, b, h, q_row, part, k_row, g;
    int64_t row; /* of [states, batch, heads_q, rows_q] */
    double score;
} pair;

static double pair_score(const tile_case *c, const pair *p) {
    double sum = 0;
    for (int64_t d = 0; d < c->shape.dim; d++)
        sum += c->q.exact[test_index(c->q.view, p->b, p->q_row, p->h, d)] *
               c->k[p->part].exact[test_index(c->k[p->part].view, p->b, p->k_row, p->g, d)];
    return c->shape.scale * sum;
}

typedef void (*visitor)(tile_case *c, const pair *p);

static void visit_tile(tile_case *c, const ra_tile *tile, int64_t state, int64_t b, int64_t h, visitor visit) {
    const ra_shape *shape = &c->shape;
    ra_span held = c->parts[tile->part].heads;
    pair p = {.state = state, .b = b, .h = h, .part = tile->part};
    p.g = (h / (shape->heads_q / shape->heads_kv) - held.first) / held.stride;
    for (int64_t a = 0; a < tile->q_rows.count; a++) {
        for (int64_t j = 0; j < tile->k_rows.count; j++) {
            if (j - a < tile->lo || j - a > tile->hi) continue;
            p.q_row = ra_span_at(tile->q_rows, a);
            p.k_row = tile->k_index ? tile->k_index[j] : tile->k_rows.first + j * tile->k_rows.stride;
            p.row = ((state * shape->batch + b) * shape->heads_q + h) * shape->rows_q + p.q_row;
            p.score = pair_score(c, &p) + log(1 + tile->extra);
            visit(c, &p);
        }
    }
}

static void visit_group(tile_case *c, const ra_tile *tiles, int64_t count, int64_t state, visitor visit) {
    for (int64_t t = 0; t < count; t++)
        for (int64_t b = 0; b < c->shape.batch; b++)
            for (int64_t h = 0; h < tiles[t].heads.count; h++)
                visit_tile(c, &tiles[t], state, b, ra_span_at(tiles[t].heads, h), visit);
}

static void visit_pairs(tile_case *c, visitor visit) {
    for (int i = 0; i < TEST_CALLS; i++) {
        const test_list *call = &c->calls[i];
        for (int64_t p = 0; p < call->list.round_count; p++) {
            const ra_tile_group *groups = call->groups + call->rounds[p].first;
            for (int64_t g = 0; g < call->rounds[p].count; g++)
                visit_group(c, call->tiles + groups[g].first, groups[g].count, call->rounds[p].state, visit);
        }
    }
}

/* Scores are small here, so e^s needs no maximum: nothing in common with the kernels' way. */
static void add_to_sum(tile_case *c, const pair *p) {
    c->state_lse[p->row] += exp(p->score);
}

static void add_to_o(tile_case *c, const pair *p) {
    const test_tensor *v = &c->v[p->part];
    double *o = c->state_o_want + p->row * c->shape.dim_v;
    for (int64_t d = 0; d < c->shape.dim_v; d++)
        o[d] += exp(p->score - c->state_lse[p->row]) * v->exact[test_index(v->view, p->b, p->k_row, p->g, d)];
}

static void add_to_gradients(tile_case *c, const pair *p) {
    const test_tensor *v = &c->v[p->part], *k = &c->k[p->part];
    double probability = exp(p->score - c->state_lse[p->row]), dp = 0;
    for (int64_t d = 0; d < c->shape.dim_v; d++) {
        double g = c->dout.exact[test_index(c->dout.view, p->b, p->q_row, p->h, d)];
        dp += g * v->exact[test_index(v->view, p->b, p->k_row, p->g, d)];
        c->dv_want[p->part][test_index(c->dv[p->part].view, p->b, p->k_row, p->g, d)] += probability * g;
    }
    double ds = c->shape.scale * probability * (dp - c->state_delta[p->row]);
    for (int64_t d = 0; d < c->shape.dim; d++) {
        double q = c->q.exact[test_index(c->q.view, p->b, p->q_row, p->h, d)];
        c->dq_want[test_index(c->dq.view, p->b, p->q_row, p->h, d)] +=
            ds * k->exact[test_index(k->view, p->b, p->k_row, p->g, d)];
        c->dk_want[p->part][test_index(c->dk[p->part].view, p->b, p->k_row, p->g, d)] += ds * q;
    }
}

/* Row `row` of state s's delta, and what it adds to o and lse. */
static void sum_row(tile_case *c, int64_t s, int64_t b, int64_t h, int64_t row) {
    const ra_shape *shape = &c->shape;
    int64_t to = (b * shape->heads_q + h) * shape->rows_q + row;
    int64_t from = s * shape->batch * shape->heads_q * shape->rows_q + to;
    const double *o = c->state_o_want + from * shape->dim_v;
    c->lse[to] += exp(c->state_lse[from]);
    for (int64_t d = 0; d < shape->dim_v; d++) {
        c->state_delta[from] += o[d] * c->dout.exact[test_index(c->dout.view, b, row, h, d)];
        c->o[to * shape->dim_v + d] += shape->weight * o[d];
    }
}

static void sum_states(tile_case *c) {
    for (int64_t s = 0; s < c->shape.states; s++)
        for (int64_t b = 0; b < c->shape.batch; b++)
            for (int64_t h = 0; h < c->shape.heads_q; h++)
                for (int64_t row = 0; row < c->shape.rows_q; row++) sum_row(c, s, b, h, row);
}

static double *zeros(int64_t count) {
    return need((size_t)count * sizeof(double));
}

static void solve(tile_case *c) {
    int64_t rows = c->shape.batch * c->shape.heads_q * c->shape.rows_q, all = c->shape.states * rows;
    c->o = zeros(rows * c->shape.dim_v);
    c->lse = zeros(rows);
    c->state_o_want = zeros(all * c->shape.dim_v);
    c->state_lse = zeros(all);
    c->state_delta = zeros(all);
    c->dq_want = zeros(c->dq.elements);
    for (int i = 0; i < TEST_PARTS; i++) {
        c->dk_want[i] = zeros(c->dk[i].elements);
        c->dv_want[i] = zeros(c->dv[i].elements);
    }
    visit_pairs(c, add_to_sum);
    for (int64_t i = 0; i < all; i++) c->state_lse[i] = log(c->state_lse[i]);
    visit_pairs(c, add_to_o);
    sum_states(c);
    for (int64_t i = 0; i < rows; i++) c->lse[i] = log(c->lse[i]);
    visit_pairs(c, add_to_gradients);
}

static void make_case(tile_case *c, int plain, int counted, unsigned seed, ra_dtype dtype, int64_t limit) {
    memset(c, 0, sizeof *c);
    c->seed = seed;
    c->plain = plain;
    c->counted = counted;
    rng r = {seed};
    make_shape(c, &r, dtype, limit);
    make_rows(c, &r);
    make_parts(c, &r);
    for (int i = 0; i < TEST_CALLS; i++) make_list(c, &r, &c->calls[i]);
    solve(c);
}

void tile_case_make(tile_case *c, unsigned seed, ra_dtype dtype, int64_t limit) {
    make_case(c, 0, 0, seed, dtype, limit);
}

void tile_case_make_plain(tile_case *c, unsigned seed, ra_dtype dtype, int64_t limit) {
    make_case(c, 1, 0, seed, dtype, limit);
}

void tile_case_make_counted(tile_case *c, int plain, unsigned seed, ra_dtype dtype, int64_t limit) {
    make_case(c, plain, 1, seed, dtype, limit);
}

void tile_case_free(tile_case *c) {
    test_tensor_free(&c->q);
    test_tensor_free(&c->dout);
    test_tensor_free(&c->dq);
    test_tensor_free(&c->out);
    test_tensor_free(&c->state_o);
    for (int i = 0; i < TEST_PARTS; i++) {
        test_tensor_free(&c->k[i]);
        test_tensor_free(&c->v[i]);
        test_tensor_free(&c->dk[i]);
        test_tensor_free(&c->dv[i]);
        free(c->dk_want[i]);
        free(c->dv_want[i]);
    }
    free(c->o);
    free(c->lse);
    free(c->state_o_want);
    free(c->state_lse);
    free(c->state_delta);
    free(c->dq_want);
}
