/* What the tests of row operations share: a body is run for every kernel, type and number of threads; tensors say what
 * their memory has to hold. */
#ifndef TESTS_SUPPORT_ROW_CASE_H
#define TESTS_SUPPORT_ROW_CASE_H

#include "support/tiles/tile_case.h"

/* What a test body is run for. */
typedef struct row_subject {
    const ra_kernel *kernel;
    ra_dtype dtype;
    unsigned seed;
    const ra_context *context;
} row_subject;

/* Runs body for every kernel that can run here and every type, with one thread and with several. */
void row_for_all(void (*body)(const row_subject *));

/* Fails the test, naming the subject, unless it holds. */
void row_expect(const row_subject *s, int holds, const char *what);

/* What a kernel has to round to: x through the type and back. */
double row_rounded(ra_dtype dtype, double x);

/* The type that sums have. */
ra_dtype row_acc(const ra_shape *shape);

ra_shape row_shape(rng *r, ra_dtype dtype);

/* All bits set: a NaN in every type. To be freed. */
void *row_unwritten(ra_dtype dtype, int64_t count);

/* The double of element [b, row, h, d] as it stands in memory. */
double row_element(const test_tensor *x, int64_t b, int64_t row, int64_t h, int64_t d);

/* An element that a kernel has to change: whoever checks it takes it out of what has to stay as it is. */
double *row_changed(test_tensor *x, int64_t b, int64_t row, int64_t h, int64_t d);

/* Whether memory holds what `exact` says, gaps included. NaN in exact: anything. */
int row_is_as_said(const test_tensor *x);

#endif
