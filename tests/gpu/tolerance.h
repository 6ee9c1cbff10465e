/* How far a result on a device may be from the definition in fp64. */
#ifndef TESTS_GPU_TOLERANCE_H
#define TESTS_GPU_TOLERANCE_H

#include "support/problems/sweep.h"

#include <math.h>

/* In norm, relative; inputs are rounded to the type before both. bf16 and f16 kernels may round p and ds once to the
 * type, and outputs are of the type: half a unit each (2e-3, 2.4e-4), more where gradients cancel: with one or two keys
 * in a document the CPU's f32 kernels are off by 1.5e-5, too. */
static inline double tolerance_of(ra_dtype dtype, int output) {
    int gradient = output >= OUT_DQ;
    switch (dtype) {
    case RA_F64:
        return 1e-11;
    case RA_F32:
        return gradient ? 2e-5 : 5e-6;
    case RA_F16:
        return gradient ? 5e-3 : 2e-3;
    case RA_BF16:
        return gradient ? 3e-2 : 1e-2;
    }
    return 0;
}

/* Where a wanted output is nearly zero (one key for every query: dq = dk = 0) any error is relatively large, and a
 * small largest one will do. dP and delta, whose difference it then is, are sums of up to 256 products, and 16 in size.
 * A row of dk has such differences of all queries: their errors add up as those of a random walk do. Of two keys one
 * may have nearly all of the weight, so that all of a gradient is such a difference. */
static inline int is_close(const sweep_result *result, const ra_problem *problem, int output) {
    double limit = tolerance_of(problem->dtype, output);
    double queries = (double)(problem->seq_q * problem->heads_q / problem->heads_kv);
    double most = 4 * limit * (output == OUT_DK ? sqrt(fmax(1, queries / 256)) : 1);
    double small = problem->seq_k <= 2 ? 0.25 : 0.1;
    return result->relative[output] <= limit ||
           (result->size[output] < small && output >= OUT_DQ && result->max_abs[output] <= most);
}

static inline int is_within(const sweep_result *result, const ra_problem *problem) {
    for (int i = 0; i < OUT_COUNT; i++)
        if (!is_close(result, problem, i)) return 0;
    return !result->wrong_infinities && !result->traffic_differs;
}

#endif
