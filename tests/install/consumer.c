/* An outside program: two in-process ranks, forward and backward, on keys that are all alike, so that causal attention
 * is a running mean of v that anyone can check. Prints the library's version. */
#include <math.h>
#include <ringattn/ringattn.h>
#include <stdio.h>

enum { tokens = 5 };

static ra_status rank_main(ra_comm *comm, void *user) {
    double *sums = user; /* [ranks]: of dv, over this rank's rows */
    int rank = ra_comm_rank(comm), ranks = ra_comm_ranks(comm);
    ra_problem problem = RA_PROBLEM_INIT;
    ra_options options = RA_OPTIONS_INIT;
    problem.seq_q = tokens, problem.heads_q = 1, problem.dim = 1, problem.causal = 1;
    options.layout = RA_LAYOUT_STRIPED, options.backward = 1;

    int64_t position[tokens];
    float q[tokens], k[tokens], v[tokens], o[tokens], lse[tokens], dout[tokens], dq[tokens], dk[tokens], dv[tokens];
    int64_t rows = ra_layout_rows(RA_LAYOUT_STRIPED, tokens, ranks, rank);
    ra_status status = ra_layout_positions(RA_LAYOUT_STRIPED, tokens, ranks, rank, position);
    if (status != RA_OK) return status;
    for (int64_t i = 0; i < rows; i++) q[i] = k[i] = dout[i] = 1, v[i] = (float)position[i];

    ra_plan *plan;
    status = ra_plan_create(comm, &problem, &options, &plan);
    if (status != RA_OK) return status;
    ra_tensors tensors = RA_TENSORS_INIT;
    tensors.q.data = q, tensors.k.data = k, tensors.v.data = v, tensors.o.data = o, tensors.lse = lse;
    status = ra_plan_forward(plan, &tensors, NULL);
    for (int64_t i = 0; status == RA_OK && i < rows; i++)
        if (fabs(o[i] - 0.5 * (double)position[i]) > 1e-5) status = RA_ERR_INTERNAL;

    ra_gradients gradients = RA_GRADIENTS_INIT;
    gradients.q = tensors.q, gradients.k = tensors.k, gradients.v = tensors.v, gradients.o = ra_as_input(tensors.o);
    gradients.lse = lse, gradients.dout.data = dout;
    gradients.dq.data = dq, gradients.dk.data = dk, gradients.dv.data = dv;
    if (status == RA_OK) status = ra_plan_backward(plan, &gradients, NULL);
    for (int64_t i = 0; status == RA_OK && i < rows; i++) sums[rank] += dv[i];
    ra_plan_destroy(plan);
    return status;
}

int main(void) {
    double sums[2] = {0};
    ra_status status = ra_run_threads(2, rank_main, sums);
    if (status != RA_OK) {
        fprintf(stderr, "consumer: %s: %s\n", ra_status_text(status), ra_last_error());
        return 1;
    }
    /* Every query spreads a weight of one over the keys. */
    if (fabs(sums[0] + sums[1] - tokens) > 1e-5) {
        fprintf(stderr, "consumer: dv sums to %g, not %d\n", sums[0] + sums[1], tokens);
        return 1;
    }
    printf("%s\n", ra_version());
    return 0;
}
