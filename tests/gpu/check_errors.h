/* What the checks of kernel_check have found: the worst errors, and what is wrong. */
#ifndef TESTS_GPU_CHECK_ERRORS_H
#define TESTS_GPU_CHECK_ERRORS_H

#include "kernel_setup.h"

extern "C" {
#include "support/tiles/tile_case.h"
}

static const ra_dtype types[] = {RA_F64, RA_F32, RA_BF16, RA_F16};

enum { OF_O, OF_LSE, OF_DELTA, OF_DQ, OF_DK, OF_DV, OF_COUNT };

/* Whether the kernel rounds what it multiplies to 11 bits, the inputs too. */
int multiplies_as_tf32(ra_dtype dtype);

/* How often something was wrong. Whoever finds it has said what. */
extern int failures;

/* ||got - want - start|| / ||want + start||. NaN and infinities count as equal where both have them. Sizes below
 * `least` for each element are not relative. */
double error_of(const double *got, const double *want, int64_t count, double start, double least);

/* An error of that output in a case: a failure where it is beyond the limit. */
void note(const tile_case &c, int of, double error);

void expect(int holds, const char *what, unsigned seed, ra_dtype dtype);

/* The worst error of each type and output, and its seed. */
void report(void);

#endif
