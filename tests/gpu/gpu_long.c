/* Sequences as long as a GPU holds, over in-process ranks, with sampled rows checked in fp64. Not part of the tests: it
 * takes minutes and most of the memory.
 *
 *     gpu_long causal   [--tokens 1048576] [--heads 32] [--group 4] [--dim 128] [--ranks 8] [--forward]
 *     gpu_long dilated  [--tokens 16777216] [--heads 8] [--group 8] [--dim 64] [--ranks 8]
 *
 * bf16. Tensors hold all heads; a plan is for `group` of them at a time, whose rows it finds by their strides, so that
 * its workspace is that of a group. dilated: w = 2048, 32768, 524288, r = 1, 16, 256, forward only.
 *
 * Elements are k / 64 for k from -128 to 127, a hash of their place: exact in bf16, and known without keeping them.
 */
#include "gpu_test.h"

#include <ringattn/transport.h>

#include <math.h>
#include <time.h>

enum {
    Q,
    K,
    V,
    DOUT,
    INPUTS,
    O = INPUTS,
    DQ,
    DK,
    DV,
    TENSORS,
    EACH = 8 /* elements of a hash */,
    CHUNK = 1024 /* rows */
};
enum { RANKS_MAX = 64 };

typedef struct job {
    const ra_backend *backend;
    int dilated, backward;
    int64_t tokens, heads, group, dim;
    ra_problem problem; /* of a group */
    ra_options options;
    double seconds[2], worst[TENSORS]; /* of rank 0; of all */
} job;

/* ---- elements ---------------------------------------------------------------------------------------------------- */

static uint64_t hash(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Eight elements of a tensor, from `first` (a multiple of 8) of [tokens, heads, dim] on. */
static uint64_t elements(int tensor, int64_t first) {
    return hash((uint64_t)tensor << 60 ^ (uint64_t)first / EACH);
}

static double element(uint64_t eight, int i) {
    return (double)(int8_t)(eight >> 8 * i) / 64;
}

static void row_of(const job *j, int tensor, int64_t position, int64_t h, double *row_out) {
    for (int64_t d = 0; d < j->dim; d++)
        row_out[d] = element(elements(tensor, (position * j->heads + h) * j->dim + d / EACH * EACH), (int)(d % EACH));
}

static uint16_t bf16_of(double x) {
    float value = (float)x;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static double from_bf16(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- a rank ------------------------------------------------------------------------------------------------------ */

typedef struct rank_data {
    const job *job;
    int rank, ranks;
    int64_t rows, row_elements;
    unsigned char *tensor[TENSORS];
    float *lse; /* [heads, rows], on the device */
} rank_data;

static int64_t position_of(const rank_data *r, int64_t row) {
    int64_t position = 0;
    ra_layout_position(r->job->options.layout, r->job->tokens, r->ranks, r->rank, row, &position);
    return position;
}

static ra_status fill(const rank_data *r, int tensor) {
    uint16_t codes[256], *chunk = malloc((size_t)(CHUNK * r->row_elements) * sizeof *chunk);
    if (!chunk) return RA_ERR_MEMORY;
    for (int i = 0; i < 256; i++) codes[i] = bf16_of((double)(int8_t)i / 64);
    for (int64_t row = 0; row < r->rows; row += CHUNK) {
        int64_t count = r->rows - row < CHUNK ? r->rows - row : CHUNK;
        for (int64_t i = 0; i < count; i++) {
            int64_t first = position_of(r, row + i) * r->row_elements;
            for (int64_t e = 0; e < r->row_elements; e += EACH) {
                uint64_t eight = elements(tensor, first + e);
                for (int b = 0; b < EACH; b++) chunk[i * r->row_elements + e + b] = codes[eight >> 8 * b & 255];
            }
        }
        GPU_TRY(ra_backend_copy(r->job->backend, r->tensor[tensor] + row * r->row_elements * 2, chunk,
                                (size_t)(count * r->row_elements) * 2));
    }
    free(chunk);
    return RA_OK;
}

static ra_tensor heads_from(const rank_data *r, int tensor, int64_t h) {
    const job *j = r->job;
    return (ra_tensor){r->tensor[tensor] + h * j->dim * 2, 1, {0, r->row_elements, j->dim, 1}};
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ra_status run_pass(const rank_data *r, ra_comm *comm, ra_plan *plan, void *stream, ra_pass pass,
                          double *seconds_out) {
    const job *j = r->job;
    char here = 0, all[RANKS_MAX];
    GPU_TRY(ra_comm_allgather(comm, &here, 1, all, 600));
    double start = now();
    for (int64_t h = 0; h < j->heads; h += j->group) {
        ra_tensors t = RA_TENSORS_INIT;
        t.q = ra_as_input(heads_from(r, Q, h)), t.k = ra_as_input(heads_from(r, K, h));
        t.v = ra_as_input(heads_from(r, V, h)), t.o = heads_from(r, O, h);
        t.lse = r->lse + h * r->rows;
        if (pass == RA_FORWARD) {
            GPU_TRY(ra_plan_forward(plan, &t, stream));
            continue;
        }
        ra_gradients g = RA_GRADIENTS_INIT;
        g.q = t.q, g.k = t.k, g.v = t.v, g.o = ra_as_input(t.o), g.lse = t.lse,
        g.dout = ra_as_input(heads_from(r, DOUT, h));
        g.dq = heads_from(r, DQ, h), g.dk = heads_from(r, DK, h), g.dv = heads_from(r, DV, h);
        GPU_TRY(ra_plan_backward(plan, &g, stream));
    }
    GPU_TRY(ra_plan_wait(plan, stream));
    GPU_TRY(ra_comm_allgather(comm, &here, 1, all, 600));
    *seconds_out = now() - start;
    return RA_OK;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static ra_status read_row(const rank_data *r, int tensor, int64_t row, int64_t h, double *row_out) {
    uint16_t bits[256];
    GPU_TRY(ra_backend_copy(r->job->backend, bits, r->tensor[tensor] + (row * r->row_elements + h * r->job->dim) * 2,
                            (size_t)r->job->dim * 2));
    for (int64_t d = 0; d < r->job->dim; d++) row_out[d] = from_bf16(bits[d]);
    return RA_OK;
}

static double dot(const double *x, const double *y, int64_t count) {
    double sum = 0;
    for (int64_t d = 0; d < count; d++) sum += x[d] * y[d];
    return sum;
}

static double error_of(const double *got, const double *want, int64_t count) {
    double off = 0;
    for (int64_t d = 0; d < count; d++) off += (got[d] - want[d]) * (got[d] - want[d]);
    return sqrt(off / (dot(want, want, count) + 1e-30));
}

static void note(double *worst, int tensor, double error) {
    if (!(error <= worst[tensor])) worst[tensor] = error;
}

/* o and dq of one row of a causal problem, from the definition: every key up to its position. */
static ra_status check_causal_row(const rank_data *r, int64_t row, int64_t h, double *worst) {
    const job *j = r->job;
    int64_t position = position_of(r, row), dim = j->dim;
    double scale = 1 / sqrt((double)dim), q[256], dout[256], k[256], v[256], got[256];
    double o[256] = {0}, pk[256] = {0}, pdk[256] = {0}, sum = 0, most = -INFINITY, delta = 0;
    row_of(j, Q, position, h, q);
    row_of(j, DOUT, position, h, dout);
    for (int64_t key = 0; key <= position; key++) {
        row_of(j, K, key, h, k);
        row_of(j, V, key, h, v);
        double s = scale * dot(q, k, dim), dp = dot(dout, v, dim);
        if (s > most) {
            double keep = exp(most - s);
            most = s, sum *= keep, delta *= keep;
            for (int64_t d = 0; d < dim; d++) o[d] *= keep, pk[d] *= keep, pdk[d] *= keep;
        }
        double p = exp(s - most);
        sum += p, delta += p * dp;
        for (int64_t d = 0; d < dim; d++) o[d] += p * v[d], pk[d] += p * k[d], pdk[d] += p * dp * k[d];
    }
    for (int64_t d = 0; d < dim; d++) o[d] /= sum, pk[d] = scale * (pdk[d] - delta / sum * pk[d]) / sum;
    GPU_TRY(read_row(r, O, row, h, got));
    note(worst, O, error_of(got, o, dim));
    if (!j->backward) return RA_OK;
    GPU_TRY(read_row(r, DQ, row, h, got));
    note(worst, DQ, error_of(got, pk, dim));
    return RA_OK;
}

/* dk and dv of a key near the end, which few queries see, all of them this rank's. */
static ra_status check_late_key(const rank_data *r, int64_t h, double *worst) {
    const job *j = r->job;
    int64_t dim = j->dim, row = r->rows - 40, key = position_of(r, row);
    double scale = 1 / sqrt((double)dim), k[256], v[256], q[256], dout[256], o[256], dk[256] = {0}, dv[256] = {0},
           got[256];
    row_of(j, K, key, h, k);
    row_of(j, V, key, h, v);
    for (int64_t i = row; i < r->rows; i++) {
        float lse;
        row_of(j, Q, position_of(r, i), h, q);
        row_of(j, DOUT, position_of(r, i), h, dout);
        GPU_TRY(read_row(r, O, i, h, o));
        GPU_TRY(ra_backend_copy(j->backend, &lse, r->lse + h * r->rows + i, sizeof lse));
        double p = exp(scale * dot(q, k, dim) - lse), ds = p * (dot(dout, v, dim) - dot(dout, o, dim));
        for (int64_t d = 0; d < dim; d++) dv[d] += p * dout[d], dk[d] += scale * ds * q[d];
    }
    GPU_TRY(read_row(r, DK, row, h, got));
    note(worst, DK, error_of(got, dk, dim));
    GPU_TRY(read_row(r, DV, row, h, got));
    note(worst, DV, error_of(got, dv, dim));
    return RA_OK;
}

/* Whole rows [start, start + count) of all heads; the caller frees them. */
static double *rows_of(const job *j, int tensor, int64_t start, int64_t count) {
    double *rows = malloc((size_t)(count * j->heads * j->dim) * sizeof *rows);
    for (int64_t i = 0; rows && i < count * j->heads; i++)
        row_of(j, tensor, start + i / j->heads, i % j->heads, rows + i * j->dim);
    return rows;
}

/* Rows of the rank's first segment of the longest branch, by the definition of that segment alone: nothing reaches out
 * of it, and all shorter segments end there too. */
static ra_status check_dilated(const rank_data *r, double *worst) {
    const job *j = r->job;
    ra_problem p = j->problem;
    int64_t segment = p.dilated[p.branches - 1].segment, start = position_of(r, 0);
    if (start % segment || r->rows < segment)
        return ra_fail(RA_ERR_ARGUMENT, "rank %d has no whole segment to check: take fewer ranks", r->rank);
    p.seq_q = p.seq_k = segment;
    double *q = rows_of(j, Q, start, segment), *k = rows_of(j, K, start, segment), *v = rows_of(j, V, start, segment);
    ra_status status = q && k && v ? RA_OK : RA_ERR_MEMORY;
    for (int64_t i = 0; i < 24 && status == RA_OK; i++) {
        int64_t row = (i * 7919 * 31 + i % 3 * 256 * 101) % segment, h = i % j->heads;
        double want[256], got[256], lse;
        status = ra_reference_row(&p, q, k, v, 0, h, row, want, &lse);
        if (status == RA_OK) status = read_row(r, O, row, h, got);
        if (status == RA_OK) note(worst, O, error_of(got, want, j->dim));
    }
    free(q), free(k), free(v);
    return status;
}

static ra_status check(const rank_data *r, double *worst) {
    if (r->job->dilated) return r->rank == 0 || r->rank == r->ranks - 1 ? check_dilated(r, worst) : RA_OK;
    int64_t h = r->rank * 5 % r->job->heads;
    GPU_TRY(check_causal_row(r, r->rows / 3, h, worst));
    GPU_TRY(check_causal_row(r, r->rows - 1, (h + 3) % r->job->heads, worst));
    return r->job->backward && r->rank == 0 ? check_late_key(r, h, worst) : RA_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static ra_status body(ra_comm *comm, void *user) {
    job *j = user;
    rank_data r = {.job = j, .rank = ra_comm_rank(comm), .ranks = ra_comm_ranks(comm)};
    double seconds[2] = {0}, worst[TENSORS] = {0}, all[RANKS_MAX * TENSORS];
    ra_plan *plan;
    void *stream, *memory;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    GPU_TRY(ra_plan_create(comm, &j->problem, &j->options, &plan));
    GPU_TRY(ra_plan_describe(plan, &info));
    GPU_TRY(ra_backend_stream_create(j->backend, &stream));
    r.rows = info.rows_q;
    r.row_elements = j->heads * j->dim;
    for (int i = 0; i < TENSORS; i++) {
        if (!j->backward && (i == DOUT || i > O)) continue;
        GPU_TRY(ra_backend_allocate(j->backend, (size_t)(r.rows * r.row_elements) * 2, &memory));
        r.tensor[i] = memory;
        if (i < INPUTS) GPU_TRY(fill(&r, i));
    }
    GPU_TRY(ra_backend_allocate(j->backend, (size_t)(r.rows * j->heads) * sizeof(float), &memory));
    r.lse = memory;
    if (r.rank == 0)
        printf(
            "%s, %lld tokens, %lld heads, dim %lld, bf16, %d ranks: %.1f GiB of workspace a rank, kernel %s, %s, %s\n",
            j->dilated ? "dilated" : "causal", (long long)j->tokens, (long long)j->heads, (long long)j->dim, r.ranks,
            (double)info.workspace_bytes / 0x1p30, info.kernel, ra_strategy_name(info.strategy),
            ra_layout_name(info.layout)),
            fflush(stdout);
    GPU_TRY(run_pass(&r, comm, plan, stream, RA_FORWARD, &seconds[0]));
    if (j->backward) GPU_TRY(run_pass(&r, comm, plan, stream, RA_BACKWARD, &seconds[1]));
    int64_t pairs = info.pairs, pairs_of[RANKS_MAX];
    GPU_TRY(ra_comm_allgather(comm, &pairs, sizeof pairs, pairs_of, 600));
    double flop = 0;
    for (int i = 0; i < r.ranks; i++) flop += 4.0 * (double)pairs_of[i] * (double)(j->heads / j->group * j->dim);
    for (int pass = 0; pass < 1 + j->backward && r.rank == 0; pass++)
        printf("  %s: %.2f s, %.0f TFLOP/s\n", pass ? "backward" : "forward", seconds[pass],
               (pass ? 2.5 : 1) * flop / seconds[pass] / 1e12),
            fflush(stdout);
    GPU_TRY(check(&r, worst));
    GPU_TRY(ra_comm_allgather(comm, worst, sizeof worst, all, 3600));
    for (int i = 0; i < r.ranks * TENSORS && r.rank == 0; i++) note(j->worst, i % TENSORS, all[i]);
    for (int i = 0; i < TENSORS; i++) ra_backend_release(j->backend, r.tensor[i]);
    ra_backend_release(j->backend, r.lse);
    ra_backend_stream_destroy(j->backend, stream);
    ra_plan_destroy(plan);
    return RA_OK;
}

int main(int argc, char **argv) {
    static const ra_branch branches[] = {{2048, 1}, {32768, 16}, {524288, 256}};
    job j = {.backend = gpu_backend(), .problem = RA_PROBLEM_INIT, .options = RA_OPTIONS_INIT};
    if (!j.backend) return 0;
    j.dilated = argc > 1 && strcmp(argv[1], "dilated") == 0;
    j.backward = !j.dilated && !gpu_flag(argc, argv, "--forward");
    j.tokens = gpu_number(argc, argv, "--tokens", j.dilated ? 16777216 : 1048576);
    j.heads = gpu_number(argc, argv, "--heads", j.dilated ? 8 : 32);
    j.group = gpu_number(argc, argv, "--group", j.dilated ? 8 : 4);
    j.dim = gpu_number(argc, argv, "--dim", j.dilated ? 64 : 128);
    j.problem.dtype = RA_BF16;
    j.problem.seq_q = j.tokens, j.problem.heads_q = j.group, j.problem.dim = j.dim;
    j.problem.causal = !j.dilated;
    if (j.dilated) j.problem.branches = 3, j.problem.dilated = branches;
    j.options.backend = j.backend, j.options.backward = j.backward, j.options.timeout_seconds = 600;
    j.options.layout = j.dilated ? RA_LAYOUT_CONTIGUOUS : RA_LAYOUT_ZIGZAG;
    int ranks = gpu_number(argc, argv, "--ranks", 8);
    if (ranks > RANKS_MAX || j.group < 1 || j.heads % j.group || j.dim % EACH || j.dim > 256)
        return puts("at most 64 ranks, groups that divide the heads, and a dim that 8 divides"), 2;
    ra_status status = ra_run_threads(ranks, body, &j);
    if (status != RA_OK) return printf("FAILED: %s\n", ra_last_error()), 1;
    printf("  sampled rows against fp64, relative: o %.2g dq %.2g dk %.2g dv %.2g\n", j.worst[O], j.worst[DQ],
           j.worst[DK], j.worst[DV]);
    for (int i = 0; i < TENSORS; i++)
        if (!(j.worst[i] < 0.03)) return puts("FAILED: out of tolerance"), 1;
    return 0;
}
