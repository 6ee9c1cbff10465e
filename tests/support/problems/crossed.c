#include "support/problems/crossed.h"

#include "base/status.h"

#include <math.h>
#include <stdio.h>

enum { SEQ = 60, HEADS = 2, DIM = 4, ELEMENTS = SEQ * HEADS * DIM };

typedef struct rank_data {
    ra_plan *plan, *other; /* equal but for their scale */
    double q[ELEMENTS], o[ELEMENTS], dq[ELEMENTS], dk[ELEMENTS], dv[ELEMENTS], lse[SEQ * HEADS];
} rank_data;

static ra_status make_plans(ra_comm *comm, crossing kind, double timeout_seconds, rank_data *d) {
    static const ra_branch branches[] = {{20, 1}, {60, 2}};
    ra_problem p = RA_PROBLEM_INIT;
    ra_options o = RA_OPTIONS_INIT;
    p.dtype = RA_F64;
    p.seq_q = SEQ;
    p.heads_q = HEADS;
    p.dim = DIM;
    if (kind == CROSSED_STATES) {
        p.branches = 2;
        p.dilated = branches;
        p.dilated_combine = RA_DILATED_MEAN;
    }
    o.backward = 1;
    o.threads = 1;
    o.strategy = RA_STRATEGY_RING;
    o.timeout_seconds = timeout_seconds;
    RA_TRY(ra_plan_create(comm, &p, &o, &d->plan));
    p.scale = 2;
    return ra_plan_create(comm, &p, &o, &d->other);
}

static ra_status forward(ra_plan *plan, rank_data *d) {
    ra_tensors t = RA_TENSORS_INIT;
    t.q.data = t.k.data = t.v.data = d->q;
    t.o.data = d->o;
    t.lse = d->lse;
    return ra_plan_forward(plan, &t, NULL);
}

static ra_status backward(ra_plan *plan, rank_data *d) {
    ra_gradients g = RA_GRADIENTS_INIT;
    g.q.data = g.k.data = g.v.data = g.dout.data = d->q;
    g.o.data = d->o;
    g.lse = d->lse;
    g.dq.data = d->dq;
    g.dk.data = d->dk;
    g.dv.data = d->dv;
    return ra_plan_backward(plan, &g, NULL);
}

static ra_status call(ra_comm *comm, crossing kind, int odd, double timeout_seconds, rank_data *d) {
    char mine = 0, all[64];
    if (kind == CROSSED_EXCHANGE && odd) return ra_comm_allgather(comm, &mine, 1, all, timeout_seconds);
    if (kind == CROSSED_BACKWARD_PLANS) return backward(odd ? d->other : d->plan, d);
    if (kind == CROSSED_FORWARD_PLANS) return forward(odd ? d->other : d->plan, d);
    if (kind == CROSSED_PASSES || kind == CROSSED_STATES) return odd ? backward(d->plan, d) : forward(d->plan, d);
    return forward(d->plan, d);
}

/* The first element of an output that the failed call has written and not spoiled. */
static int looks_whole(const double *output) {
    return output[0] != 42 && !isnan(output[0]);
}

static ra_status crossed_calls(ra_comm *comm, crossing kind, double timeout_seconds, rank_data *d) {
    int odd = ra_comm_rank(comm) == ra_comm_ranks(comm) - 1;
    for (int i = 0; i < ELEMENTS; i++) d->q[i] = (double)((i * 7 + ra_comm_rank(comm)) % 11) / 11 - 0.4;
    RA_TRY(make_plans(comm, kind, timeout_seconds, d));
    RA_TRY(forward(d->plan, d)); /* leaves o and lse for a backward pass */
    if (!odd || kind != CROSSED_PASSES) d->o[0] = 42;
    d->dq[0] = d->dk[0] = d->dv[0] = 42;
    ra_status status = call(comm, kind, odd, timeout_seconds, d);
    if (status == RA_OK) return RA_OK;
    int backward_ran = kind == CROSSED_BACKWARD_PLANS || (odd && (kind == CROSSED_PASSES || kind == CROSSED_STATES));
    int whole = backward_ran ? looks_whole(d->dq) || looks_whole(d->dk) || looks_whole(d->dv) : looks_whole(d->o);
    return whole ? ra_fail(RA_ERR_INTERNAL, "an output looks whole after: %s", ra_last_error()) : status;
}

ra_status crossed_run(ra_comm *comm, crossing kind, double timeout_seconds) {
    rank_data d = {0};
    ra_status status = crossed_calls(comm, kind, timeout_seconds, &d);
    char error[1024];
    snprintf(error, sizeof error, "%s", ra_last_error());
    ra_plan_destroy(d.plan);
    ra_plan_destroy(d.other);
    return status == RA_OK ? RA_OK : ra_fail(status, "%s", error);
}
