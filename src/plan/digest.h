/* What ranks compare before they start: everything that must be equal for their schedules to fit together.
 *
 *     seal     a status and a hash of the whole digest: every rank's goes to rank 0, which finds who differs from it
 *     digest   the fields themselves, and why a rank has failed: of two ranks only, and only when somebody differs
 */
#ifndef RA_PLAN_DIGEST_H
#define RA_PLAN_DIGEST_H

#include "core/problem_fields.h"
#include "plan/setup.h"

/* What a plan has beside its problem's fields and must be equal: X(kind, name, value), of a setup s. */
#define RA_DIGEST_REST(X)                                                                                              \
    X(LAYOUT, "layout", s->layout)                                                                                     \
    X(STRATEGY, "strategy", s->strategy)                                                                               \
    X(FLAG, "backward", s->backward)                                                                                   \
    X(HASH, "device", hash_text(s->device->name))                                                                      \
    X(NUMBER, "the number of plans made on this communicator before", s->serial)

#define RA_DIGEST_ONE(...) +1
enum {
    RA_DIGEST_FIELDS =
        2 /* the library's version, ranks */ RA_PROBLEM_FIELDS(RA_DIGEST_ONE) RA_DIGEST_REST(RA_DIGEST_ONE)
};

/* Plain bytes that travel. */
typedef struct ra_digest {
    int64_t status; /* not RA_OK: this rank could not make its plan, and the rest is not valid */
    int64_t fields[RA_DIGEST_FIELDS];
    char error[240]; /* why, when status says so */
} ra_digest;

/* Plain bytes that travel; equal seals stand for equal digests. */
typedef struct ra_seal {
    int64_t status;
    uint64_t hash[2]; /* of the fields, 128 bits */
} ra_seal;

ra_digest ra_digest_of(const ra_setup *setup);
ra_digest ra_digest_of_failure(ra_status status, const char *error);
ra_seal ra_digest_seal(const ra_digest *digest);

/* all: ra_seal [ranks]; culprit_out: int64_t, the lowest rank that could not make its plan, else the lowest that
 * differs from rank 0, else -1. A ra_judge. */
void ra_seals_judge(const void *all, int ranks, void *culprit_out);

/* The error that `rank` returns for that culprit, from the culprit's digest and rank 0's: RA_ERR_MISMATCH, naming the
 * culprit and why it failed, or the first field that differs and its two values. */
ra_status ra_digest_explain(const ra_digest *first, const ra_digest *culprits, int culprit, int rank);

#endif
