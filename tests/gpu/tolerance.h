/* How far a result on a device may be from the definition in fp64. */
#ifndef TESTS_GPU_TOLERANCE_H
#define TESTS_GPU_TOLERANCE_H

#include "support/sweep.h"

/* In norm, relative; inputs are rounded to the type before both. bf16 and f16 kernels may round p and ds once to the type,
 * and outputs are of the type: half a unit each (2e-3, 2.4e-4), more where gradients cancel. */
static inline double tolerance_of(ra_dtype dtype, int output) {
    int gradient = output >= OUT_DQ;
    switch (dtype) {
    case RA_F64: return 1e-11;
    case RA_F32: return gradient ? 1e-5 : 5e-6;
    case RA_F16: return gradient ? 5e-3 : 2e-3;
    case RA_BF16: return gradient ? 3e-2 : 1e-2;
    }
    return 0;
}

/* A wanted norm of nearly zero (one key for every query: dq = 0) makes any error relatively large, so a small largest
 * error will do as well. dP and delta, whose difference it then is, are sums of up to 256 products, and 16 in size. */
static inline int is_within(const sweep_result *result, ra_dtype dtype) {
    for (int i = 0; i < OUT_COUNT; i++)
        if (!(result->relative[i] <= tolerance_of(dtype, i)) && !(result->max_abs[i] <= 4 * tolerance_of(dtype, i)))
            return 0;
    return !result->wrong_infinities && !result->traffic_differs;
}

#endif
