/* How far a result is from fp64, and how far it may be. */
#ifndef CLI_COMPARE_H
#define CLI_COMPARE_H

#include <ringattn/ringattn.h>

/* Sums that ranks can add up. */
typedef struct deviation {
    int64_t count;
    double max_abs;              /* largest |got - wanted|; inf where one is finite and the other not */
    double square_error, square; /* sums of squares of got - wanted and of wanted, over finite elements */
} deviation;

/* What is not finite must be so on both sides; for an lse, -inf on both or NaN on both. */
void deviation_add(deviation *sum, double got, double wanted);
void deviation_add_lse(deviation *sum, double got, double wanted);
void deviation_merge(deviation *sum, const deviation *other);

/* Norm of the error over norm of what was wanted. */
double deviation_relative(const deviation *sum);

/* Whether that is within the tolerance of a type; gradients are allowed more than outputs. */
int deviation_within(const deviation *sum, ra_dtype dtype, int gradient);

#endif
