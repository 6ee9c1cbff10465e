/* Tolerances, ||got - want|| / ||want||: f64 and f32 leave what their arithmetic leaves. With bf16 and f16 inputs
 * everything but P and dS is exact products in f32; P and dS are rounded to 8 or 11 bits before they are multiplied,
 * half a unit each at random, and so may be the output: 2^-9 or 2^-12 twice, and more in gradients, where terms cancel.
 * cuda_tf32 rounds all that it multiplies to 11 bits, the inputs too: what a score is off by is exponentiated. */
#include "check_errors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

int failures;

struct worst_error {
    double error;
    unsigned seed;
};

static const char *const error_names[OF_COUNT] = {"o", "lse", "delta", "dq", "dk", "dv"};
static worst_error worst[4][OF_COUNT];

int multiplies_as_tf32(ra_dtype dtype) {
    return dtype == RA_F32 && strcmp(kernel->name, "cuda_tf32") == 0;
}

static double limit_of(const ra_shape &shape, int of) {
    if (multiplies_as_tf32(shape.dtype)) return of == OF_LSE ? 5e-4 : of == OF_O || of == OF_DELTA ? 2e-3 : 4e-3;
    if (of == OF_LSE) return shape.dtype == RA_F64 ? 1e-13 : 5e-6;
    switch (shape.dtype) {
    case RA_F64:
        return 1e-12;
    case RA_F32:
        return 5e-6;
    case RA_BF16:
        return of == OF_O || of == OF_DELTA ? 1e-2 : 1.5e-2;
    default:
        return of == OF_O || of == OF_DELTA ? 1.5e-3 : 2e-3;
    }
}

double error_of(const double *got, const double *want, int64_t count, double start, double least) {
    double off = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        double right = want[i] + start;
        if (!std::isfinite(got[i]) && !std::isfinite(right)) continue;
        off += (got[i] - right) * (got[i] - right);
        size += right * right;
    }
    return off == 0 ? 0 : std::sqrt(off / std::max(size, least * least * (double)count));
}

void note(const tile_case &c, int of, double error) {
    int type = 0;
    while (type < 3 && types[type] != c.shape.dtype) type++;
    worst_error &w = worst[type][of];
    if (!(error <= w.error)) w = {error, c.seed};
    if (error <= limit_of(c.shape, of)) return;
    fprintf(stderr, "%s, seed %u, dim %d, %d: %s is off by %g\n", ra_dtype_name(c.shape.dtype), c.seed,
            (int)c.shape.dim, (int)c.shape.dim_v, error_names[of], error);
    failures++;
}

void expect(int holds, const char *what, unsigned seed, ra_dtype dtype) {
    if (holds) return;
    fprintf(stderr, "%s, seed %u: %s is wrong\n", ra_dtype_name(dtype), seed, what);
    failures++;
}

void report(void) {
    for (int t = 0; t < 4; t++) {
        printf("%-5s worst:", ra_dtype_name(types[t]));
        for (int of = 0; of < OF_COUNT; of++)
            printf("  %s %.2g (seed %u)", error_names[of], worst[t][of].error, worst[t][of].seed);
        printf("\n");
    }
}
