#include "tensors/compare.h"

#include <math.h>

void deviation_add(deviation *sum, double got, double wanted) {
    if (isfinite(got) || isfinite(wanted))
        deviation_add_lse(sum, got, wanted);
    else
        ++sum->count; /* which of NaN and the infinities it is, is not specified */
}

void deviation_add_lse(deviation *sum, double got, double wanted) {
    ++sum->count;
    if (got == wanted && !isfinite(wanted)) return; /* -inf where nothing is seen */
    if (isnan(got) && isnan(wanted)) return;
    double error = fabs(got - wanted);
    if (!isfinite(error)) {
        sum->max_abs = INFINITY;
        return;
    }
    if (error > sum->max_abs) sum->max_abs = error;
    sum->square_error += error * error;
    sum->square += wanted * wanted;
}

void deviation_merge(deviation *sum, const deviation *other) {
    sum->count += other->count;
    sum->max_abs = fmax(sum->max_abs, other->max_abs);
    sum->square_error += other->square_error;
    sum->square += other->square;
}

double deviation_relative(const deviation *sum) {
    if (sum->square_error == 0) return 0;
    return sum->square > 0 ? sqrt(sum->square_error / sum->square) : INFINITY;
}

/* The inputs are rounded to the type before both computations, so this is the arithmetic's error alone.
 *
 * f64   a sum of thousands of terms of size 1 in another order: some 1e-13; 1e-11 allows for scores of size 10.
 * f32   unit roundoff 6e-8; exponents of size 10 cost ten of those, sums over blocks a few more. ds = p (dp - delta)
 *       subtracts near-equal numbers, so gradients are allowed five times as much.
 * f16   unit roundoff 5e-4 and bf16 4e-3: a kernel may round p and ds once to that type before it multiplies; errors
 *       of rows average out over keys, and half a roundoff to a few of them remain in the norm. */
static double relative_tolerance(ra_dtype dtype) {
    return dtype == RA_F32 ? 2e-6 : dtype == RA_F16 ? 2e-3 : 1e-2;
}

int deviation_within(const deviation *sum, ra_dtype dtype, int gradient) {
    if (!isfinite(sum->max_abs)) return 0;
    if (dtype == RA_F64) return sum->max_abs <= 1e-11;
    double tolerance = relative_tolerance(dtype) * (gradient ? 5 : 1);
    /* A wanted norm of nearly zero (one key per query: dq = 0) makes every error relatively large. */
    return deviation_relative(sum) <= tolerance || sum->max_abs <= tolerance;
}
