/* The score stage: what the product of a query and a key, the dot, becomes, and what the derivative of that is.
 * Whatever is done to scores is written three times and nowhere else: here for scalars (the ref kernel), in
 * cpu/body/score_body.inc for vectors and in cuda/score.cuh for fragments of GPU kernels.
 *
 *   forward    score = of(dot)    m = the largest score    P = e^{score - m}, which sums to l and multiplies V
 *   backward   P = e^{score - lse}, which multiplies dO    dS = P (dP - delta), the derivative by the score
 *
 * A pair takes part when the tile's band has it and its score is not -inf. The score is rounded to the accumulation
 * type before anything is taken off, alike in both passes: docs/math.md, "Large scores", has the reason.
 */
#ifndef RA_KERNEL_SCORE_H
#define RA_KERNEL_SCORE_H

#include "kernel/kernel.h"

#include <math.h>

/* What the stage knows of a problem; made once for each call. */
typedef struct ra_score {
    double scale;
    int is_double; /* the accumulation type */
} ra_score;

static inline ra_score ra_score_make(const ra_shape *shape) {
    return (ra_score){.scale = shape->scale, .is_double = shape->dtype == RA_F64};
}

/* A pair: query a and key b of a tile, for query head h. tile->positions says where the two are in the sequence. */
typedef struct ra_score_place {
    const ra_tile *tile;
    int64_t h, a, b;
} ra_score_place;

static inline double ra_score_of(const ra_score *stage, ra_score_place place, double dot) {
    double score = stage->scale * dot;
    (void)place;
    return stage->is_double ? score : (double)(float)score;
}

/* What V is multiplied by; *l gets what it adds to the sum of the softmax. A score that is NaN or +inf gives NaN. */
static inline double ra_score_forward(const ra_score *stage, ra_score_place place, double score, double m, double *l) {
    double p = exp(score - m);
    (void)stage, (void)place;
    *l += p;
    return p;
}

/* What dO is multiplied by for dV, and the derivative by the dot. Returns 0, and sets neither, where the pair takes no
 * part: the row saw nothing, or the score is -inf. An lse of +inf, which the forward pass never gives, counts as NaN.
 */
static inline int ra_score_backward(const ra_score *stage, ra_score_place place, double dot, double dp, double lse,
                                    double delta, double *p_out, double *ds_out) {
    double score = ra_score_of(stage, place, dot);
    if (lse == -INFINITY || score == -INFINITY) return 0;
    *p_out = exp(score - (lse == INFINITY ? NAN : lse));
    *ds_out = stage->scale * (*p_out * (dp - delta));
    return 1;
}

#endif
