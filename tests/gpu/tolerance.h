/* How far a result on a device may be from the definition in fp64. */
#ifndef TESTS_GPU_TOLERANCE_H
#define TESTS_GPU_TOLERANCE_H

#include "support/problems/sweep.h"

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

/* Where a wanted output is nearly zero (one key for every query: dq = 0) any error is relatively large, and a small
 * largest one will do. dP and delta, whose difference it then is, are sums of up to 256 products, and 16 in size. */
static inline int is_close(const sweep_result *result, ra_dtype dtype, int output) {
    double limit = tolerance_of(dtype, output);
    return result->relative[output] <= limit ||
           (result->size[output] < 0.1 && output >= OUT_DQ && result->max_abs[output] <= 4 * limit);
}

static inline int is_within(const sweep_result *result, ra_dtype dtype) {
    for (int i = 0; i < OUT_COUNT; i++)
        if (!is_close(result, dtype, i)) return 0;
    return !result->wrong_infinities && !result->traffic_differs;
}

#endif
