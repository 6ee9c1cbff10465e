/* Whole problems against the definition, over any comm: the same bodies run on threads and under MPI.
 *
 *     sweep_data  whole tensors and what the definition gives for them, made once (per process)
 *     sweep_run   one rank: takes its rows, plans, runs both passes, compares its rows; every rank gets the sums
 */
#ifndef TESTS_SUPPORT_SWEEP_H
#define TESTS_SUPPORT_SWEEP_H

#include "support/problems/case.h"

enum { OUT_O, OUT_LSE, OUT_DQ, OUT_DK, OUT_DV, OUT_COUNT };

typedef struct sweep_data {
    const test_case *c;
    ra_problem p;             /* every size filled in */
    double *q, *k, *v, *dout; /* whole, C-order, rounded to the problem's type */
    double *want[OUT_COUNT];  /* whole, C-order, from ra_reference */
    /* NULL, or by how much each element may be off, NaN: it may be anything. Then a wanted NaN asks for NaN, +inf for
     * what is not finite, -inf for itself; and wrong_infinities counts whatever is not so (support/problems/rule.h). */
    double *slack[OUT_COUNT];
} sweep_data;

/* Over all ranks. */
typedef struct sweep_result {
    double max_abs[OUT_COUNT];  /* largest difference; infinities must agree */
    double relative[OUT_COUNT]; /* ||got - want|| / ||want||, over finite values */
    double size[OUT_COUNT];     /* root of the mean square of the wanted values, over finite ones */
    int wrong_infinities;       /* values that are infinite or NaN on one side only */
    int traffic_differs;        /* ranks that sent other than they had planned, in either pass */
    uint64_t bits;              /* a hash of every output bit, in rank order */
    ra_plan_info info;          /* of this rank */
} sweep_result;

/* Returns NULL for want of memory. */
sweep_data *sweep_data_make(const test_case *c);
void sweep_data_free(sweep_data *data);

/* Collective. repeat: how many times the passes run on one plan; all must give the same bits. */
ra_status sweep_run(ra_comm *comm, const sweep_data *data, int repeat, sweep_result *result_out);

/* sweep_run on `ranks` in-process ranks. apart: they do not see each other's memory, as ranks of several processes do
 * not. Ranks that see it, on one device, make other calls of the kernel, whose sums may have other bits. */
ra_status sweep_threads(int ranks, const sweep_data *data, int repeat, sweep_result *result_out);
ra_status sweep_threads_apart(int ranks, const sweep_data *data, int repeat, sweep_result *result_out);

/* The largest max_abs or relative of all outputs. */
double sweep_worst_abs(const sweep_result *result);
double sweep_worst_relative(const sweep_result *result);

#endif
