/* Ranks that share a device inside one process see each other's memory: what a schedule has sources for (schedule.h) is
 * not copied but used where it is. At plan time they tell each other where their slots are. */
#ifndef RA_EXEC_SHARING_H
#define RA_EXEC_SHARING_H

#include "plan/predict.h"
#include "transport/comm.h"

/* A rank's rows where they are in a pass: mostly where its caller has them. The rank writes this when a pass begins,
 * before it posts anything; others read it behind the message that says that the rows are there, and no more when the
 * pass has ended for the rank. */
typedef struct ra_lent_rows {
    ra_view k, v; /* k.data NULL: they are packed, and others find them in its slot */
    /* Where keys stay: */
    ra_query_rows queries;
    ra_kv_rows keys;   /* as its caller has them; backward, dk and dv where they are summed */
    ra_view dk, dv;    /* backward: the outputs */
    int64_t keys_rows; /* of keys, dk and dv */
    int finished;      /* written by the leader: its call writes outputs, o and lse, or dk and dv, not states or sums */
    int finished_queries; /* and dq */
} ra_lent_rows;

/* What others may use of a rank. */
typedef struct ra_lender {
    unsigned char *slots[RA_CARGO_COUNT][RA_SOURCE_SLOTS]; /* NULL: there is none */
    ra_lent_rows *rows;
} ra_lender;

typedef struct ra_sharing {
    const ra_lender *lenders; /* [ranks]; NULL: everything is copied */
    int sums;                 /* GRAD is added to where it is, too */
    int in_place;             /* keys and values are read where callers have them, and not packed, where they can be */
    int opens;                /* all ranks wait for all before the forward pass's first compute, and for nobody later */
    ra_lent_rows *rows;       /* this rank's */
    const ra_schedule *stays[2]; /* by pass: what is done where keys stay (keys_stay.h); NULL: they do not */
} ra_sharing;

/* In a pass with more parts than so many, keys and values are packed: their places would come with every call. */
enum { RA_PARTS_IN_PLACE = 32 };

/* What the ranks of a comm have in common. Memory that a rank has been given binds "auto" to what was predicted: its
 * size is that of the prediction, which knows nothing of devices. */
typedef struct ra_common {
    int64_t one_device;   /* all have the same device, which does its work later (comm.h) */
    int64_t no_workspace; /* none of them has been given memory */
} ra_common;

/* Collective on a comm whose ranks share memory; the same answer on every rank. device: this rank's; NULL: it has
 * failed. */
ra_status ra_sharing_find(ra_comm *comm, const ra_device *device, int has_workspace, double timeout_seconds,
                          ra_common *common_out);

/* Collective among ranks that have one device; the same answer on every rank. prediction and memory: what this rank has
 * planned and its workspace; prediction NULL: it has failed, and nobody shares. */
ra_status ra_sharing_arrange(ra_pool *pool, ra_comm *comm, const ra_prediction *prediction, unsigned char *memory,
                             double timeout_seconds, ra_sharing *sharing_out);

/* Whether what is received of a cargo in that schedule is used where it is. */
int ra_sharing_has(const ra_sharing *sharing, const ra_schedule *schedule, ra_cargo cargo);

#endif
