/* Training steps that follow one another without a wait: each has documents of its own, a plan for them in a workspace
 * that all plans share, both passes, and the plan is destroyed while they are on the stream. Its lists must stay until
 * they are done, though the next plan takes memory for its own. The same bits as with a wait after every step.
 *
 *     gpu_packings [--steps 40]
 */
#include "gpu_test.h"

#include "support/rng.h"

#include <stdint.h>

enum { RANKS = 2, TOKENS = 6000, DOCUMENTS = 24, HEADS = 4, DIM = 64, MOST_STEPS = 200 };
enum { Q, K, V, DOUT, INPUTS };
enum { O, DQ, DK, DV, LSE, OUTPUTS };

typedef struct job {
    const ra_backend *backend;
    int steps, waits;
    uint64_t bits[RANKS][MOST_STEPS];
} job;

/* Of one rank: inputs of all steps, outputs of each. */
typedef struct memory {
    void *inputs[INPUTS], *outputs[MOST_STEPS][OUTPUTS], *workspace, *stream;
    size_t bytes, workspace_bytes;
} memory;

static ra_problem problem_of(int step, int64_t *cu) {
    ra_problem p = RA_PROBLEM_INIT;
    rng r = {(uint64_t)step + 1};
    p.seq_q = TOKENS, p.heads_q = HEADS, p.dim = DIM, p.causal = 1, p.dtype = RA_BF16;
    p.documents = DOCUMENTS, p.cu_seqlens_q = cu;
    for (int64_t d = 1; d < DOCUMENTS; d++)
        cu[d] = d * (TOKENS / DOCUMENTS) + rng_between(&r, 0, TOKENS / DOCUMENTS - 1);
    cu[0] = 0;
    cu[DOCUMENTS] = TOKENS;
    return p;
}

static ra_options options_of(const job *j, int step) {
    ra_options o = RA_OPTIONS_INIT;
    o.backend = j->backend, o.backward = 1;
    o.layout = step % 2 ? RA_LAYOUT_DOCUMENTS : RA_LAYOUT_ZIGZAG;
    return o;
}

/* bf16 that is neither large nor special. */
static ra_status fill(const job *j, void *to, size_t bytes, uint64_t seed) {
    rng r = {seed};
    uint16_t *host = malloc(bytes);
    if (!host) return RA_ERR_MEMORY;
    for (size_t i = 0; i < bytes / 2; i++) host[i] = (uint16_t)(0x3e00 + rng_next(&r) % 256 + (rng_next(&r) % 2 << 15));
    ra_status status = ra_backend_copy(j->backend, to, host, bytes);
    free(host);
    return status;
}

static ra_status take(const job *j, int rank, memory *m) {
    int64_t cu[DOCUMENTS + 1];
    for (int step = 0; step < j->steps; step++) {
        ra_problem p = problem_of(step, cu);
        ra_options o = options_of(j, step);
        ra_plan_info info = RA_PLAN_INFO_INIT;
        GPU_TRY(ra_predict(&p, &o, RANKS, rank, &info));
        if ((size_t)info.workspace_bytes > m->workspace_bytes) m->workspace_bytes = (size_t)info.workspace_bytes;
        size_t bytes = (size_t)(info.rows_q > info.rows_k ? info.rows_q : info.rows_k) * HEADS * DIM * 2;
        if (bytes > m->bytes) m->bytes = bytes;
    }
    GPU_TRY(ra_backend_allocate(j->backend, m->workspace_bytes, &m->workspace));
    GPU_TRY(ra_backend_stream_create(j->backend, &m->stream));
    for (int i = 0; i < INPUTS; i++) {
        GPU_TRY(ra_backend_allocate(j->backend, m->bytes, &m->inputs[i]));
        GPU_TRY(fill(j, m->inputs[i], m->bytes, (uint64_t)(10 * rank + i + 1)));
    }
    for (int step = 0; step < j->steps; step++)
        for (int i = 0; i < OUTPUTS; i++) {
            GPU_TRY(ra_backend_allocate(j->backend, m->bytes, &m->outputs[step][i]));
            GPU_TRY(fill(j, m->outputs[step][i], m->bytes, 99));
        }
    return RA_OK;
}

static void give(const job *j, memory *m) {
    for (int i = 0; i < INPUTS; i++) ra_backend_release(j->backend, m->inputs[i]);
    for (int step = 0; step < j->steps; step++)
        for (int i = 0; i < OUTPUTS; i++) ra_backend_release(j->backend, m->outputs[step][i]);
    ra_backend_release(j->backend, m->workspace);
    ra_backend_stream_destroy(j->backend, m->stream);
}

static ra_status run_step(ra_comm *comm, const job *j, memory *m, int step) {
    int64_t cu[DOCUMENTS + 1];
    ra_problem p = problem_of(step, cu);
    ra_options o = options_of(j, step);
    ra_plan *plan = NULL;
    ra_tensors t = RA_TENSORS_INIT;
    ra_gradients g = RA_GRADIENTS_INIT;
    void **in = m->inputs, **out = m->outputs[step];
    if (!j->waits) o.workspace = m->workspace, o.workspace_bytes = m->workspace_bytes;
    GPU_TRY(ra_plan_create(comm, &p, &o, &plan));
    t.q.data = in[Q], t.k.data = in[K], t.v.data = in[V], t.o.data = out[O], t.lse = out[LSE];
    g.q = t.q, g.k = t.k, g.v = t.v, g.o = ra_as_input(t.o), g.lse = t.lse, g.dout.data = in[DOUT];
    g.dq.data = out[DQ], g.dk.data = out[DK], g.dv.data = out[DV];
    ra_status status = ra_plan_forward(plan, &t, m->stream);
    if (status == RA_OK) status = ra_plan_backward(plan, &g, m->stream);
    if (status == RA_OK && (j->waits || step == j->steps - 1)) status = ra_plan_wait(plan, m->stream);
    ra_plan_destroy(plan);
    return status;
}

static ra_status hash(const job *j, const memory *m, int step, uint64_t *bits_out) {
    uint64_t bits = 0xcbf29ce484222325u;
    unsigned char *host = malloc(m->bytes);
    if (!host) return RA_ERR_MEMORY;
    for (int i = 0; i < OUTPUTS; i++) {
        ra_status status = ra_backend_copy(j->backend, host, m->outputs[step][i], m->bytes);
        if (status != RA_OK) return free(host), status;
        for (size_t b = 0; b < m->bytes; b++) bits = (bits ^ host[b]) * 0x100000001b3u;
    }
    free(host);
    *bits_out = bits;
    return RA_OK;
}

static ra_status body(ra_comm *comm, void *user) {
    job *j = user;
    static memory all[RANKS];
    int rank = ra_comm_rank(comm);
    memory *m = &all[rank];
    memset(m, 0, sizeof *m);
    GPU_TRY(take(j, rank, m));
    for (int step = 0; step < j->steps; step++) GPU_TRY(run_step(comm, j, m, step));
    for (int step = 0; step < j->steps; step++) GPU_TRY(hash(j, m, step, &j->bits[rank][step]));
    give(j, m);
    return RA_OK;
}

int main(int argc, char **argv) {
    static job waiting, ahead;
    const ra_backend *backend = gpu_backend();
    int steps = gpu_number(argc, argv, "--steps", 40), bad = 0;
    if (!backend) return 0;
    if (steps < 1 || steps > MOST_STEPS) return puts("--steps is between 1 and 200"), 1;
    waiting = (job){.backend = backend, .steps = steps, .waits = 1};
    ahead = (job){.backend = backend, .steps = steps};
    if (ra_run_threads(RANKS, body, &waiting) != RA_OK || ra_run_threads(RANKS, body, &ahead) != RA_OK)
        return printf("FAILED: %s\n", ra_last_error()), 1;
    for (int r = 0; r < RANKS; r++)
        for (int step = 0; step < steps; step++)
            if (waiting.bits[r][step] != ahead.bits[r][step])
                printf("FAILED: rank %d, step %d has other bits without waits\n", r, step), bad++;
    if (!bad) printf("%d steps of %d ranks without a wait: the same bits\n", steps, RANKS);
    return bad != 0;
}
