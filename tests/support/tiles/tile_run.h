/* Runs a kernel over a tile_case and gives what it computed, as doubles. */
#ifndef RA_TESTS_SUPPORT_TILE_RUN_H
#define RA_TESTS_SUPPORT_TILE_RUN_H

#include "support/tiles/tile_case.h"

/* What the kernel computed; shapes as in tile_case, the gradients' as their views index. `raw` keeps the bytes of all
 * results, gaps of the views included, for comparing bits. */
typedef struct test_result {
    double *o, *lse;
    double *state_lse, *state_delta;
    int64_t stray; /* elements of o's memory that were written and are in no row, or the other way round */
    double *dq, *dk[TEST_PARTS], *dv[TEST_PARTS];
    void *raw;
    size_t raw_bytes;
} test_result;

/* What a kernel that multiplies in bf16 loses by rounding P and dS to it, relative to what they are multiplied into; 0
 * for those that multiply in the accumulation type. */
double test_rounding_of_p(const ra_kernel *kernel, ra_dtype dtype);

/* A context with scratch for both passes, filled with NaNs, so that what is read before it is written shows. */
ra_context test_launch_make(const ra_kernel *kernel, const ra_shape *shape, int threads);
void test_launch_free(ra_context *context);

/* begin, forward once per call of the case, carry, finish. */
test_result test_run_forward(const tile_case *c, const ra_kernel *kernel, const ra_context *context);

/* backward once per call, from the states' lse and delta of the definition. Every element of the gradients, gaps of the
 * views included, is `start` before: kernels add, and touch nothing else. */
test_result test_run_backward(const tile_case *c, const ra_kernel *kernel, const ra_context *context, double start);

void test_result_free(test_result *result);

#endif
