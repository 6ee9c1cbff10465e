/* Causal attention over 3000 tokens, cut across four ranks that are threads of this process: forward, backward, and a
 * check that needs no second implementation.
 *
 *     cc inprocess.c $(pkg-config --cflags --libs ringattn) -lm && ./a.out
 */
#include <math.h>
#include <ringattn/ringattn.h>
#include <stdio.h>
#include <stdlib.h>

enum { tokens = 3000, heads = 4, dim = 32, width = heads * dim, rank_count = 4 };

/* What a rank reports: sums over its own rows. */
typedef struct report {
    ra_plan_info info;
    double dout_o, dv_v; /* <dout, o> and <dv, v> */
} report;

/* Stands in for a model: channel c of the token at `position`, between -1 and 1, for tensor `which`. */
static float value(int which, int64_t position, int c) {
    return (float)sin(0.37 * (double)position + 1.3 * c + 2.1 * which + 0.01 * (double)position * c);
}

static double dot(const float *a, const float *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)a[i] * b[i];
    return sum;
}

/* One rank. It holds its own rows of every tensor and never sees the others'. */
static ra_status rank_main(ra_comm *comm, void *user) {
    int rank = ra_comm_rank(comm), ranks = ra_comm_ranks(comm);
    report *mine = (report *)user + rank;

    /* 1. The problem is that of the whole sequence; the layout is left to the library: balanced, as it is causal. */
    ra_problem problem = RA_PROBLEM_INIT;
    problem.seq_q = tokens, problem.heads_q = heads, problem.dim = dim, problem.causal = 1;
    ra_options options = RA_OPTIONS_INIT;
    options.backward = 1;
    ra_plan *plan;
    ra_status status = ra_plan_create(comm, &problem, &options, &plan);
    if (status != RA_OK) return status;
    ra_plan_describe(plan, &mine->info);

    /* 2. Which rows are ours? Positions say so; a model feeds them to its rotary embedding as well. */
    int64_t rows = mine->info.rows_q, count = rows * width;
    int64_t *positions = malloc((size_t)(rows + 1) * sizeof *positions); /* + 1: a rank may have no rows */
    float *data = malloc((size_t)(8 * count + rows * heads + 1) * sizeof *data);
    if (!positions || !data) abort();
    status = ra_layout_positions(mine->info.layout, tokens, ranks, rank, positions);
    float *q = data, *k = q + count, *v = k + count, *dout = v + count; /* [rows, heads, dim] each */
    float *o = dout + count, *dq = o + count, *dk = dq + count, *dv = dk + count;
    float *lse = dv + count; /* [heads, rows] */
    for (int64_t row = 0; row < rows; row++)
        for (int which = 0; which < 4; which++)
            for (int c = 0; c < width; c++) data[which * count + row * width + c] = value(which, positions[row], c);

    /* 3. Run. All ranks together; a plan can run as often as one likes. */
    ra_tensors tensors = RA_TENSORS_INIT;
    tensors.q.data = q, tensors.k.data = k, tensors.v.data = v, tensors.o.data = o, tensors.lse = lse;
    if (status == RA_OK) status = ra_plan_forward(plan, &tensors, NULL);

    ra_gradients gradients = RA_GRADIENTS_INIT;
    gradients.q = tensors.q, gradients.k = tensors.k, gradients.v = tensors.v, gradients.o = ra_as_input(tensors.o);
    gradients.lse = lse, gradients.dout.data = dout;
    gradients.dq.data = dq, gradients.dk.data = dk, gradients.dv.data = dv;
    if (status == RA_OK) status = ra_plan_backward(plan, &gradients, NULL);

    if (status == RA_OK) {
        ra_plan_describe(plan, &mine->info); /* once more: what was sent */
        mine->dout_o = dot(dout, o, count), mine->dv_v = dot(dv, v, count);
    }
    free(data), free(positions), ra_plan_destroy(plan);
    return status;
}

int main(void) {
    report reports[rank_count] = {0};
    for (int r = 0; r < rank_count; r++) reports[r].info.struct_size = sizeof reports[r].info;
    ra_status status = ra_run_threads(rank_count, rank_main, reports);
    if (status != RA_OK) return fprintf(stderr, "%s: %s\n", ra_status_text(status), ra_last_error()), 1;

    double dout_o = 0, dv_v = 0;
    printf("rank    rows       pairs  workspace kB    sent kB\n");
    for (int r = 0; r < rank_count; r++) {
        const ra_plan_info *info = &reports[r].info;
        double sent = (double)(info->forward.bytes_sent + info->backward.bytes_sent);
        dout_o += reports[r].dout_o, dv_v += reports[r].dv_v;
        printf("%4d %7lld %11lld %13.1f %10.1f\n", r, (long long)info->rows_q, (long long)info->pairs,
               (double)info->workspace_bytes / 1e3, sent / 1e3);
    }
    /* o is linear in v, so <dout, o> = <dv, v> when summed over all ranks, whatever was sent to get there. */
    printf("<dout, o> = %.9g, <dv, v> = %.9g\n", dout_o, dv_v);
    return fabs(dout_o - dv_v) < 1e-5 * fabs(dout_o) ? 0 : 1;
}
