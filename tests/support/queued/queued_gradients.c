#include "support/queued/queued_gradients.h"

#include "kernel/row_io.h"

#include <stdlib.h>
#include <string.h>

typedef void (*key_visit)(void *user, const ra_kv_rows *part, int64_t row, int64_t g);

/* Every key row and key/value head of the tiles, some of them several times. */
static void for_each_key(const ra_shape *shape, const ra_tile_list *tiles, const ra_kv_rows *parts, key_visit visit,
                         void *user) {
    for (int64_t i = 0; i < tiles->tile_count; i++) {
        const ra_tile *t = &tiles->tiles[i];
        for (int64_t h = 0; h < t->heads.count; h++)
            for (int64_t b = 0; b < t->k_rows.count; b++)
                visit(user, parts ? &parts[t->part] : NULL, ra_tile_key(t, b),
                      ra_span_at(t->heads, h) / (shape->heads_q / shape->heads_kv));
    }
}

typedef struct places {
    const ra_shape *shape;
    const ra_kv_rows *parts;
    int64_t *at, count; /* at NULL: only counted */
} places;

/* By address, as parts may overlap; own rows, and those of parts whose gradients come with each call, have none yet. */
static void note_place(void *user, const ra_kv_rows *part, int64_t row, int64_t g) {
    places *p = user;
    int64_t place = ((part ? part - p->parts : 0) << 40) + row * p->shape->heads_kv + g;
    if (part && part->dk.data)
        place = (int64_t)(intptr_t)ra_view_row(part->dk, ra_shape_acc_bytes(p->shape), 0, row, ra_part_head(part, g));
    if (p->at) p->at[p->count] = place;
    p->count++;
}

static int compare_places(const void *x, const void *y) {
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

int64_t queued_key_rows(const ra_shape *shape, const ra_tile_list *tiles, const ra_kv_rows *parts) {
    places p = {.shape = shape, .parts = parts};
    int64_t rows = 0;
    for_each_key(shape, tiles, parts, note_place, &p);
    if (p.count == 0 || !(p.at = malloc((size_t)p.count * sizeof *p.at))) return 0;
    p.count = 0;
    for_each_key(shape, tiles, parts, note_place, &p);
    qsort(p.at, (size_t)p.count, sizeof *p.at, compare_places);
    for (int64_t i = 0; i < p.count; i++) rows += i == 0 || p.at[i] != p.at[i - 1];
    free(p.at);
    return rows;
}

static void zero_row(const ra_shape *shape, ra_view view, int64_t row, int64_t head, int64_t width) {
    size_t bytes = ra_shape_acc_bytes(shape);
    for (int64_t b = 0; b < shape->batch; b++)
        for (int64_t d = 0; d < width; d++)
            memset((char *)ra_view_row(view, bytes, b, row, head) + d * view.dim * (int64_t)bytes, 0, bytes);
}

static void clear_row(void *user, const ra_kv_rows *part, int64_t row, int64_t g) {
    const ra_shape *shape = user;
    zero_row(shape, part->dk, row, ra_part_head(part, g), shape->dim);
    zero_row(shape, part->dv, row, ra_part_head(part, g), shape->dim_v);
}

void queued_clear_keys(const ra_shape *shape, const ra_tile_list *tiles, const ra_kv_rows *parts) {
    for_each_key(shape, tiles, parts, clear_row, (void *)(intptr_t)shape);
}

int64_t queued_query_rows(const ra_tile_list *tiles) {
    int64_t rows = 0;
    if (tiles->round_count != 1) return 0;
    for (int64_t g = 0; g < tiles->group_count; g++) {
        const ra_tile *t = &tiles->tiles[tiles->groups[g].first];
        rows += t->q_rows.count * t->heads.count;
    }
    return rows;
}

void queued_clear_queries(const ra_shape *shape, const ra_tile_list *tiles, const ra_query_rows *queries, ra_view dq) {
    for (int64_t i = 0; i < tiles->tile_count; i++) {
        const ra_tile *t = &tiles->tiles[i];
        if (queries) dq = queries[t->queries].dq;
        for (int64_t h = 0; h < t->heads.count; h++)
            for (int64_t a = 0; a < t->q_rows.count; a++)
                zero_row(shape, dq, ra_span_at(t->q_rows, a), ra_span_at(t->heads, h), shape->dim);
    }
}
