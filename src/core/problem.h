/* A problem with every default filled in and every field checked. */
#ifndef RA_CORE_PROBLEM_H
#define RA_CORE_PROBLEM_H

#include <ringattn/ringattn.h>

/* No sequence, batch or head count may exceed this, so that sums and products of two of them fit in 64 bits. */
#define RA_MAX_LENGTH ((int64_t)1 << 40)
#define RA_MAX_RANKS 65536
#define RA_MAX_BRANCHES 64

/* *out is *in with defaults made explicit.
 * cu_seqlens are both NULL (one document, documents = 1) or both given. The arrays are not copied. */
ra_status ra_problem_normalise(const ra_problem *in, ra_problem *out);

/* How many softmaxes a head's row may have: the branches of a mean, unless each head has but one; else 1. What each
 * contributes to the output is weighted by ra_problem_weight. */
int64_t ra_problem_states(const ra_problem *normal);
double ra_problem_weight(const ra_problem *normal);

/* Documents as positions: the queries [q0, q1) and keys [k0, k1) of document d. */
typedef struct ra_document {
    int64_t q0, q1, k0, k1;
} ra_document;
ra_document ra_problem_document(const ra_problem *normal, int64_t d);

/* In document d, query position i sees key position j when *lo_out <= j - i <= *hi_out. The bottom-right alignment puts
 * the document's last query on its last key. */
void ra_problem_band(const ra_problem *normal, ra_document document, int64_t *lo_out, int64_t *hi_out);

#endif
