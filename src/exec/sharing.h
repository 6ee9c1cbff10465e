/* Ranks that share a device inside one process see each other's memory: what a schedule has sources for (schedule.h) is
 * not copied but used where it is. At plan time they tell each other where their slots are. */
#ifndef RA_EXEC_SHARING_H
#define RA_EXEC_SHARING_H

#include "plan/predict.h"
#include "transport/comm.h"

/* The slots of a rank that others may use. */
typedef struct ra_lender {
    unsigned char *slots[RA_CARGO_COUNT][RA_SOURCE_SLOTS]; /* NULL: there is none */
} ra_lender;

typedef struct ra_sharing {
    const ra_lender *lenders; /* [ranks]; NULL: everything is copied */
    int sums;                 /* GRAD is added to where it is, too */
} ra_sharing;

/* Collective on a comm whose ranks share memory; the same answer on every rank. prediction and memory: what this rank
 * has planned and its workspace; prediction NULL: it has failed, and nobody shares. */
ra_status ra_sharing_arrange(ra_pool *pool, ra_comm *comm, const ra_prediction *prediction, unsigned char *memory,
                             double timeout_seconds, ra_sharing *sharing_out);

/* Whether what is received of a cargo in that schedule is used where it is. */
int ra_sharing_has(const ra_sharing *sharing, const ra_schedule *schedule, ra_cargo cargo);

#endif
