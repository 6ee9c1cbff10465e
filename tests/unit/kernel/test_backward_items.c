/* The order in which items of the backward pass touch what they share, whatever the number of threads. Every query row
 * and every key row has a trail, to which an item that touches it appends its name without any lock: with a thread too
 * many at a row, trails differ from those of one thread alone, and ThreadSanitizer sees a race. The threads are the
 * test's own, for that tool knows nothing of OpenMP's. */
#include "kernel/cpu/partition/backward_items.h"
#include "support/cmocka.h"
#include "support/scale.h"
#include "support/tiles/tile_case.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 6, KEYS = 24, QUERIES = 16, ROWS_MAX = 2000 };

/* Trails of [batch, head, row]; queries by query head, keys by part and key/value head. */
typedef struct trails {
    uint64_t queries[2][12][ROWS_MAX];
    uint64_t keys[TEST_PARTS][2][4][ROWS_MAX];
    int64_t items;
} trails;

static trails *now;

static void append(uint64_t *trail, const ra_backward_item *item) {
    *trail = *trail * 1000003 + (uint64_t)(item->b0 + 7 * (item->tile - item->call->tiles.tiles) + 1);
}

static void touch_queries(const ra_backward_item *item, int64_t h, int64_t block) {
    const ra_tile *tile = item->tile;
    int64_t from = block * QUERIES, to = from + QUERIES < tile->q_rows.count ? from + QUERIES : tile->q_rows.count;
    for (int64_t a = from; a < to; a++) {
        if (item->b0 > a + tile->hi || item->b1 - 1 < a + tile->lo) continue;
        append(&now->queries[item->b][ra_span_at(tile->heads, h)][ra_span_at(tile->q_rows, a)], item);
    }
}

static void run(const ra_backward_item *item) {
    const ra_tile *tile = item->tile;
    for (int64_t h = item->h0; h < item->h1; h++) {
        int64_t from = item->b0 - tile->hi, to = item->b1 - tile->lo;
        from = from < 0 ? 0 : from;
        to = to > tile->q_rows.count ? tile->q_rows.count : to;
        for (int64_t a = from; a < to; a = (a / QUERIES + 1) * QUERIES) {
            if ((item->b0 + a + item->b) % 3 == 0) sched_yield();
            ra_backward_await(item, h, a / QUERIES);
            touch_queries(item, h, a / QUERIES);
            ra_backward_release(item, h, a / QUERIES);
        }
    }
    for (int64_t b = item->b0; b < item->b1; b++)
        append(&now->keys[tile->part][item->b][item->kv_head][ra_tile_key(tile, b)], item);
    __atomic_fetch_add(&now->items, 1, __ATOMIC_RELAXED);
}

typedef struct worker {
    pthread_t thread;
    ra_backward_work *work;
    int number;
} worker;

static void *start(void *user) {
    worker *w = user;
    ra_backward_work_run(w->work, w->number);
    return NULL;
}

static trails *run_items(const tile_case *c, int which, int threads) {
    enum { SCRATCH = 64 };
    size_t bytes = ra_backward_items_bytes(&c->shape, threads, SCRATCH);
    ra_context context = {.threads = threads, .scratch = aligned_alloc(64, (bytes + 63) / 64 * 64)};
    ra_backward_call call = {.shape = &c->shape, .tiles = c->calls[which].list, .context = context};
    ra_backward_partition partition = {KEYS, QUERIES, SCRATCH, run};
    worker workers[THREADS_MAX];
    now = calloc(1, sizeof *now);
    assert_true(now && context.scratch);
    memset(context.scratch, 0xff, bytes);
    ra_backward_work work = ra_backward_work_make(&call, &partition);
    for (int i = 0; i < threads; i++) {
        workers[i] = (worker){.work = &work, .number = i};
        assert_int_equal(0, pthread_create(&workers[i].thread, NULL, start, &workers[i]));
    }
    for (int i = 0; i < threads; i++) pthread_join(workers[i].thread, NULL);
    free(context.scratch);
    return now;
}

static void test_order_does_not_depend_on_threads(void **state) {
    (void)state;
    unsigned seeds = scaled_count(40);
    int64_t items = 0;
    print_message("seeds 1 to %u\n", seeds);
    for (unsigned seed = 1; seed <= seeds; seed++) {
        tile_case c;
        tile_case_make(&c, seed, RA_F32, 4);
        assert_true(c.shape.batch <= 2 && c.shape.heads_q <= 12 && c.shape.rows_q <= ROWS_MAX);
        for (int i = 0; i < TEST_CALLS; i++) {
            trails *alone = run_items(&c, i, 1);
            items += alone->items;
            for (int threads = 2; threads <= THREADS_MAX; threads += 2) {
                trails *together = run_items(&c, i, threads);
                if (memcmp(alone, together, sizeof *alone) != 0)
                    fail_msg("seed %u, %d threads: another order", seed, threads);
                free(together);
            }
            free(alone);
        }
        tile_case_free(&c);
    }
    assert_true(items > 2 * (int64_t)seeds);
}

/* One head and one tile: keys are what is shared out. Each of two threads waits at its first item until the other has
 * one as well, which can only be if items of one chain run side by side. */
static int arrived;

static void meet(const ra_backward_item *item) {
    (void)item;
    __atomic_fetch_add(&arrived, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&arrived, __ATOMIC_RELAXED) < 2) sched_yield();
}

static void test_one_head_is_shared_among_threads(void **state) {
    (void)state;
    enum { N = 4 * KEYS };
    ra_shape shape = {.batch = 1, .heads_q = 1, .heads_kv = 1, .dim = 1, .dim_v = 1, .rows_q = N, .states = 1};
    ra_tile tile = {.q_rows = {0, 1, N}, .k_rows = {0, 1, N}, .heads = {0, 1, 1}, .lo = -N, .hi = N};
    ra_tile_group group = {0, 1};
    ra_tile_round pass = {.count = 1};
    ra_backward_partition partition = {KEYS, QUERIES, 64, meet};
    size_t bytes = ra_backward_items_bytes(&shape, 2, 64);
    ra_backward_call call = {.shape = &shape, .tiles = {&tile, &group, &pass, 1, 1, 1}};
    call.context = (ra_context){.threads = 2, .scratch = aligned_alloc(64, bytes)};
    assert_non_null(call.context.scratch);
    ra_backward_work work = ra_backward_work_make(&call, &partition);
    worker workers[2];
    for (int i = 0; i < 2; i++) {
        workers[i] = (worker){.work = &work, .number = i};
        assert_int_equal(0, pthread_create(&workers[i].thread, NULL, start, &workers[i]));
    }
    for (int i = 0; i < 2; i++) pthread_join(workers[i].thread, NULL);
    assert_int_equal(arrived, 4);
    free(call.context.scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_does_not_depend_on_threads),
        cmocka_unit_test(test_one_head_is_shared_among_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
