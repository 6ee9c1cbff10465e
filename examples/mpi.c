/* Causal attention over 3000 tokens, cut across the processes of an MPI job: forward, backward, and a check that needs
 * no second implementation.
 *
 *     mpicc mpi.c $(pkg-config --cflags --libs ringattn_mpi) -lm && mpirun -n 4 ./a.out
 */
#include <math.h>
#include <ringattn/mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { tokens = 3000, heads = 4, dim = 32, width = heads * dim };

/* What goes wrong on one rank ends the job; each rank says what it knows first. */
static void must(ra_status status, const char *what) {
    if (status == RA_OK) return;
    fprintf(stderr, "%s: %s: %s\n", what, ra_status_text(status), ra_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Stands in for a model: channel c of the token at `position`, between -1 and 1, for tensor `which`. */
static float value(int which, int64_t position, int c) {
    return (float)sin(0.37 * (double)position + 1.3 * c + 2.1 * which + 0.01 * (double)position * c);
}

static double dot(const float *a, const float *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)a[i] * b[i];
    return sum;
}

/* Rank by rank, in order. */
static void print_table(const ra_plan_info *info) {
    enum { columns = 4 };
    double mine[columns] = {(double)info->rows_q, (double)info->pairs, (double)info->workspace_bytes,
                            (double)(info->forward.bytes_sent + info->backward.bytes_sent)};
    double *all = info->rank == 0 ? malloc((size_t)info->ranks * sizeof mine) : NULL;
    MPI_Gather(mine, columns, MPI_DOUBLE, all, columns, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (!all) return;
    printf("rank    rows       pairs  workspace kB    sent kB\n");
    for (int r = 0; r < info->ranks; r++) {
        const double *row = all + r * columns;
        printf("%4d %7.0f %11.0f %13.1f %10.1f\n", r, row[0], row[1], row[2] / 1e3, row[3] / 1e3);
    }
    free(all);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    ra_comm *comm;
    must(ra_comm_create_mpi(MPI_COMM_WORLD, &comm), "communicator");

    /* 1. The problem is that of the whole sequence; the layout is left to the library: balanced, as it is causal. */
    ra_problem problem = RA_PROBLEM_INIT;
    problem.seq_q = tokens, problem.heads_q = heads, problem.dim = dim, problem.causal = 1;
    ra_options options = RA_OPTIONS_INIT;
    options.backward = 1;
    ra_plan *plan;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    must(ra_plan_create(comm, &problem, &options, &plan), "plan");
    must(ra_plan_describe(plan, &info), "describe");

    /* 2. This rank's rows, and nothing of the others': positions say which they are. */
    int64_t rows = info.rows_q, count = rows * width;
    int64_t *positions = malloc((size_t)(rows + 1) * sizeof *positions); /* + 1: a rank may have no rows */
    float *data = malloc((size_t)(8 * count + rows * heads + 1) * sizeof *data);
    must(positions && data ? RA_OK : RA_ERR_MEMORY, "tensors");
    must(ra_layout_positions(info.layout, tokens, info.ranks, info.rank, positions), "positions");
    float *q = data, *k = q + count, *v = k + count, *dout = v + count; /* [rows, heads, dim] each */
    float *o = dout + count, *dq = o + count, *dk = dq + count, *dv = dk + count;
    for (int64_t i = 0; i < 4 * count; i++)
        data[i] = value((int)(i / count), positions[i % count / width], (int)(i % width));

    /* 3. Run. All ranks together; a plan can run as often as one likes. */
    ra_tensors tensors = RA_TENSORS_INIT;
    tensors.q.data = q, tensors.k.data = k, tensors.v.data = v, tensors.o.data = o;
    tensors.lse = dv + count; /* [heads, rows] */
    must(ra_plan_forward(plan, &tensors, NULL), "forward");
    ra_gradients gradients = RA_GRADIENTS_INIT;
    gradients.q = tensors.q, gradients.k = tensors.k, gradients.v = tensors.v, gradients.o = ra_as_input(tensors.o);
    gradients.lse = tensors.lse, gradients.dout.data = dout;
    gradients.dq.data = dq, gradients.dk.data = dk, gradients.dv.data = dv;
    must(ra_plan_backward(plan, &gradients, NULL), "backward");
    must(ra_plan_describe(plan, &info), "describe"); /* once more: what was sent */

    /* 4. o is linear in v, so <dout, o> = <dv, v> when summed over all ranks, whatever was sent to get there. */
    double sums[2] = {dot(dout, o, count), dot(dv, v, count)};
    MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    print_table(&info);
    if (info.rank == 0) printf("<dout, o> = %.9g, <dv, v> = %.9g\n", sums[0], sums[1]);

    free(data), free(positions), ra_plan_destroy(plan), ra_comm_destroy(comm);
    MPI_Finalize();
    return fabs(sums[0] - sums[1]) < 1e-5 * fabs(sums[0]) ? 0 : 1;
}
