/* f32 against f64 on one long head: o and every gradient within 2e-6 of their size, for every kernel that is not meant
 * to be slow. o is summed in the output itself. The f64 side is the same kernel in doubles, which the other tests hold
 * to the definition. */
#include "support/cmocka.h"
#include "support/tiles/tile_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { Q, K, V, DOUT, INPUTS, O = 0, DQ, DK, DV, OUTPUTS };

static const char *const output_names[OUTPUTS] = {"o", "dq", "dk", "dv"};

/* One causal head: inputs [n, dim] of doubles to outputs [n, dim] of doubles, in dtype. */
typedef struct head {
    const ra_kernel *kernel;
    ra_dtype dtype;
    int64_t n, dim;
} head;

static void *memory_of(const head *h, int64_t rows_width) {
    void *memory = calloc((size_t)(h->n * rows_width), ra_dtype_bytes(h->dtype));
    assert_non_null(memory);
    return memory;
}

static void attend(const head *h, double *const in[INPUTS], double *out[OUTPUTS]) {
    ra_shape shape = {.batch = 1,
                      .heads_q = 1,
                      .heads_kv = 1,
                      .dim = h->dim,
                      .dim_v = h->dim,
                      .rows_q = h->n,
                      .states = 1,
                      .scale = 1 / sqrt((double)h->dim),
                      .weight = 1,
                      .dtype = h->dtype,
                      .out_dtype = h->dtype};
    ra_view view[INPUTS + OUTPUTS];
    for (int i = 0; i < INPUTS + OUTPUTS; i++) view[i] = (ra_view){memory_of(h, h->dim), 0, h->dim, h->dim, 1};
    for (int i = 0; i < INPUTS; i++) ra_convert(h->dtype, view[i].data, RA_F64, in[i], h->n * h->dim);
    ra_view *result = view + INPUTS;
    ra_state state = {result[O], h->n * h->dim, memory_of(h, 1), memory_of(h, 1)};
    void *lse = memory_of(h, 1), *delta = memory_of(h, 1);
    ra_kv_rows part = {view[K], view[V], result[DK], result[DV], {0, 1, 1}};
    ra_tile tile = {.q_rows = {0, 1, h->n}, .k_rows = {0, 1, h->n}, .heads = {0, 1, 1}, .lo = -h->n};
    ra_tile_group group = {0, 1};
    ra_tile_round pass = {.count = 1};
    ra_tile_list tiles = {&tile, &group, &pass, 1, 1, 1};
    ra_context context = test_launch_make(h->kernel, &shape, 2);
    ra_forward_call forward = {&shape, view[Q], &part, tiles, state, context, NULL, NULL, NULL};
    h->kernel->begin(&shape, state, &context);
    h->kernel->forward(&forward);
    h->kernel->finish(&shape, state, result[O], ra_array_view(&shape, lse), &context);
    h->kernel->delta(&shape, view[DOUT], result[O], delta, &context);
    ra_backward_call backward = {.shape = &shape,
                                 .q = view[Q],
                                 .dout = view[DOUT],
                                 .lse = lse,
                                 .delta = delta,
                                 .parts = &part,
                                 .tiles = tiles,
                                 .dq = result[DQ],
                                 .context = context};
    h->kernel->backward(&backward);
    for (int i = 0; i < OUTPUTS; i++) out[i] = test_as_doubles(h->dtype, result[i].data, h->n * h->dim);
    for (int i = 0; i < INPUTS + OUTPUTS; i++) free(view[i].data);
    free(state.m);
    free(state.l);
    free(lse);
    free(delta);
    test_launch_free(&context);
}

static double *random_floats(rng *r, int64_t count) {
    double *x = malloc((size_t)count * sizeof(double));
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) x[i] = (float)rng_normal(r);
    return x;
}

static void check(const ra_kernel *kernel, int64_t n, int64_t dim) {
    enum { SEED = 12345 };
    rng r = {SEED};
    double *in[INPUTS], *narrow[OUTPUTS], *wide[OUTPUTS];
    for (int i = 0; i < INPUTS; i++) in[i] = random_floats(&r, n * dim);
    attend(&(head){kernel, RA_F32, n, dim}, in, narrow);
    attend(&(head){kernel, RA_F64, n, dim}, in, wide);
    for (int i = 0; i < OUTPUTS; i++) {
        double error = test_relative_error(narrow[i], wide[i], n * dim);
        print_message("%s, seed %d, n %lld, dim %lld: %s is off by %.2g\n", kernel->name, SEED, (long long)n,
                      (long long)dim, output_names[i], error);
        assert_true(error <= 2e-6);
        free(narrow[i]);
        free(wide[i]);
    }
    for (int i = 0; i < INPUTS; i++) free(in[i]);
}

static void test_f32_is_within_2e_6(void **state) {
    (void)state;
    for (int i = 0; ra_kernel_at(i); i++) {
        if (!ra_kernel_at(i)->usable()) continue;
        int is_slow = strcmp(ra_kernel_at(i)->name, "ref") == 0;
        check(ra_kernel_at(i), is_slow ? 500 : 4000, 64);
        check(ra_kernel_at(i), is_slow ? 200 : 1500, 256);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32_is_within_2e_6)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
