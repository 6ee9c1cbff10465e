/* A problem and its options with every choice made: what a plan is built from, the same on every rank. */
#ifndef RA_PLAN_SETUP_H
#define RA_PLAN_SETUP_H

#include "core/pattern.h"
#include "kernel/backend.h"

/* Where a sum over steps is made: in the workspace, or in the output itself, which must have the accumulation type. */
typedef enum ra_target { RA_TARGET_WORKSPACE, RA_TARGET_OUTPUT } ra_target;

typedef struct ra_setup {
    ra_problem problem; /* normalised; its arrays are still the caller's */
    ra_layout layout;
    ra_strategy strategy;
    const ra_kernel *kernel;
    const ra_device *device;
    int rank, ranks;
    int serial; /* how many plans its comm had before: what its messages are told apart by; 0 without a comm */
    int threads;
    int backward;
    double timeout_seconds;
    void *workspace; /* the caller's, or NULL */
    size_t workspace_bytes;
    int64_t rows_q, rows_k;    /* of this rank */
    ra_target o_target;        /* of O */
    ra_target gradient_target; /* of dQ, dK and dV of the rank's own rows */
    ra_shape shape;
} ra_setup;

/* Which rank of how many, and how many of them share this process's and this machine's cores. one_device: all of them
 * see each other's memory on one device, and "auto" may go by that. */
typedef struct ra_seat {
    int rank, ranks;
    int process_ranks, machine_ranks;
    int one_device;
} ra_seat;

/* The device that the options name; NULL: they are wrong. workspace_out: whether they bring memory. */
const ra_device *ra_setup_device(const ra_options *options, int *workspace_out);

/* Checks and fills in. options may be NULL. */
ra_status ra_setup_make(const ra_problem *problem, const ra_options *options, ra_seat seat, ra_setup *setup_out);

/* The problem cut as the setup says; points into setup. */
ra_cut_problem ra_setup_cut(const ra_setup *setup);

/* What options->layout means for this problem; checks everything that ra_setup_make checks. */
ra_status ra_setup_layout(const ra_problem *problem, const ra_options *options, int ranks, ra_layout *layout_out);

#endif
