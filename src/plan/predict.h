/* A setup with its schedules and workspace: all of a plan that is pure data. */
#ifndef RA_PLAN_PREDICT_H
#define RA_PLAN_PREDICT_H

#include "plan/workspace.h"

typedef struct ra_prediction {
    ra_setup setup;
    ra_schedule forward, backward; /* backward only where setup.backward */
    ra_workspace workspace;
    size_t pool_bytes; /* that it all takes */
} ra_prediction;

/* Fills in all but prediction->setup, which must have been made; memory is taken from pool. */
ra_status ra_prediction_make(ra_pool *pool, ra_prediction *prediction);

/* Fills in everything but what was sent. */
void ra_prediction_describe(const ra_prediction *prediction, ra_plan_info *info_out);

/* One step as the public interface shows it. */
ra_step_info ra_step_describe(const ra_problem *problem, const ra_step *step);

/* Copies as much of *info as the caller's struct_size says that it holds. */
ra_status ra_plan_info_copy(const ra_plan_info *info, ra_plan_info *info_out);

#endif
