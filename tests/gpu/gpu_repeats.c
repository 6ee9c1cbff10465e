/* Many repeats with random delays between the ranks give the same bits: 4 in-process ranks share the GPU, each with a
 * stream of its own, and sleep before they call.
 *
 *     gpu_repeats [--count 1000] [--ranks 4]
 */
#include "gpu_test.h"

#include "support/rng.h"

#include <time.h>

enum { SEQ = 3001, HEADS = 4, KV_HEADS = 2, DIM = 64, OUTPUTS = 5 };

typedef struct repeats {
    const ra_backend *backend;
    int count, strategy;
    uint64_t bits[64]; /* of the first repeat, of every rank */
} repeats;

typedef struct array {
    void *device;
    unsigned char *host;
    size_t bytes;
} array;

static ra_status make(const ra_backend *backend, size_t bytes, rng *random, ra_dtype dtype, array *a) {
    *a = (array){.host = malloc(bytes + 1), .bytes = bytes};
    GPU_TRY(ra_backend_allocate(backend, bytes, &a->device));
    for (size_t i = 0; i < bytes / ra_dtype_bytes(dtype); i++) {
        double x = rng_normal(random);
        GPU_TRY(ra_convert(dtype, a->host + i * ra_dtype_bytes(dtype), RA_F64, &x, 1));
    }
    return ra_backend_copy(backend, a->device, a->host, bytes);
}

static void nap(rng *random) {
    if (rng_one_in(random, 3)) return;
    nanosleep(&(struct timespec){.tv_nsec = 1000 * (long)rng_between(random, 0, 2000)}, NULL);
}

static ra_status hash(const ra_backend *backend, array *outputs, uint64_t *hash_out) {
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < OUTPUTS; i++) {
        GPU_TRY(ra_backend_copy(backend, outputs[i].host, outputs[i].device, outputs[i].bytes));
        for (size_t b = 0; b < outputs[i].bytes; b++) h = (h ^ outputs[i].host[b]) * 0x100000001b3u;
    }
    *hash_out = h;
    return RA_OK;
}

static ra_status body(ra_comm *comm, void *user) {
    repeats *r = user;
    int rank = ra_comm_rank(comm);
    rng random = {(uint64_t)rank + 1}, data = {(uint64_t)rank + 100};
    void *stream;
    ra_plan *plan;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    ra_problem p = RA_PROBLEM_INIT;
    p.dtype = RA_BF16, p.seq_q = SEQ, p.heads_q = HEADS, p.heads_kv = KV_HEADS, p.dim = DIM, p.causal = 1;
    ra_options o = RA_OPTIONS_INIT;
    o.backward = 1, o.backend = r->backend, o.strategy = (ra_strategy)r->strategy, o.layout = RA_LAYOUT_ZIGZAG;
    GPU_TRY(ra_plan_create(comm, &p, &o, &plan));
    GPU_TRY(ra_plan_describe(plan, &info));
    GPU_TRY(ra_backend_stream_create(r->backend, &stream));
    size_t q = (size_t)info.rows_q * HEADS * DIM * 2, k = (size_t)info.rows_k * KV_HEADS * DIM * 2;
    array in[4], out[OUTPUTS];
    GPU_TRY(make(r->backend, q, &data, RA_BF16, &in[0]));
    GPU_TRY(make(r->backend, k, &data, RA_BF16, &in[1]));
    GPU_TRY(make(r->backend, k, &data, RA_BF16, &in[2]));
    GPU_TRY(make(r->backend, q, &data, RA_BF16, &in[3]));
    size_t sizes[OUTPUTS] = {q, (size_t)info.rows_q * HEADS * 4, q, k, k};
    for (int i = 0; i < OUTPUTS; i++) GPU_TRY(make(r->backend, sizes[i], &data, RA_BF16, &out[i]));
    ra_tensors t = RA_TENSORS_INIT;
    t.q.data = in[0].device, t.k.data = in[1].device, t.v.data = in[2].device, t.o.data = out[0].device;
    t.lse = out[1].device;
    ra_gradients g = RA_GRADIENTS_INIT;
    g.q = t.q, g.k = t.k, g.v = t.v, g.o = ra_as_input(t.o), g.lse = t.lse, g.dout.data = in[3].device;
    g.dq.data = out[2].device, g.dk.data = out[3].device, g.dv.data = out[4].device;
    for (int i = 0; i < r->count; i++) {
        uint64_t bits = 0;
        nap(&random);
        GPU_TRY(ra_plan_forward(plan, &t, stream));
        nap(&random);
        GPU_TRY(ra_plan_backward(plan, &g, stream));
        if (i > 0 && i % 10 && i + 1 < r->count) continue; /* runs pile up on the streams between looks */
        GPU_TRY(ra_plan_wait(plan, stream));
        GPU_TRY(hash(r->backend, out, &bits));
        if (i == 0)
            r->bits[rank] = bits;
        else if (bits != r->bits[rank]) {
            fprintf(stderr, "rank %d: repeat %d gave other bits\n", rank, i);
            return RA_ERR_INTERNAL;
        }
    }
    ra_plan_destroy(plan);
    for (int i = 0; i < 4; i++) ra_backend_release(r->backend, in[i].device), free(in[i].host);
    for (int i = 0; i < OUTPUTS; i++) ra_backend_release(r->backend, out[i].device), free(out[i].host);
    ra_backend_stream_destroy(r->backend, stream);
    return RA_OK;
}

int main(int argc, char **argv) {
    repeats r = {.backend = gpu_backend(), .count = gpu_number(argc, argv, "--count", 1000)};
    int ranks = gpu_number(argc, argv, "--ranks", 4), bad = 0;
    if (!r.backend) return 0;
    for (r.strategy = RA_STRATEGY_RING; r.strategy <= RA_STRATEGY_PASSQ; r.strategy++) {
        ra_status status = ra_run_threads(ranks, body, &r);
        printf("%s: %d repeats, %s\n", ra_strategy_name((ra_strategy)r.strategy), r.count,
               status == RA_OK ? "the same bits" : ra_last_error());
        bad += status != RA_OK;
    }
    return bad != 0;
}
