/* What ranks compare before they start: everything that must be equal for their schedules to fit together. */
#ifndef RA_PLAN_DIGEST_H
#define RA_PLAN_DIGEST_H

#include "plan/setup.h"

#define RA_DIGEST_FIELDS 27

/* Plain bytes that travel. */
typedef struct ra_digest {
    int64_t status; /* not RA_OK: this rank could not make its plan, and the rest is not valid */
    int64_t fields[RA_DIGEST_FIELDS];
    char error[240]; /* why, when status says so */
} ra_digest;

ra_digest ra_digest_of(const ra_setup *setup);
ra_digest ra_digest_of_failure(ra_status status, const char *error);

/* Compares everyone's [ranks]: RA_OK, or RA_ERR_MISMATCH naming a rank and a field that differ from rank 0's, or a rank
 * that could not make its plan. `rank` is the one that asks. */
ra_status ra_digest_compare(const ra_digest *all, int ranks, int rank);

#endif
