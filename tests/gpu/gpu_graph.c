/* With one rank a call can be captured in a graph, also a plan's first, and the graph gives the same bits as the call;
 * several plans on several streams of one process do not disturb one another.
 *
 *     gpu_graph
 */
#include "gpu_test.h"

#include "support/rng.h"

#include <cuda_runtime_api.h>

enum { PLANS = 3, HEADS = 2, DIM = 64, ARRAYS = 9, OUTPUTS = 5 }; /* q k v dout; o lse dq dk dv */

#define CUDA_TRY(call)                                                                                                 \
    do {                                                                                                               \
        cudaError_t cuda_try_error = (call);                                                                           \
        if (cuda_try_error != cudaSuccess) {                                                                           \
            printf("FAILED %s: %s\n", #call, cudaGetErrorString(cuda_try_error));                                      \
            return RA_ERR_INTERNAL;                                                                                    \
        }                                                                                                              \
    } while (0)

typedef struct work {
    ra_comm *comm;
    ra_plan *plan;
    void *stream;
    ra_tensors t;
    ra_gradients g;
    float *device[ARRAYS];
    size_t bytes[ARRAYS];
    unsigned char *first; /* the outputs of a plain call, one behind the other */
} work;

static ra_status make(work *w, const ra_backend *backend, int64_t seq, uint64_t seed) {
    ra_problem p = RA_PROBLEM_INIT;
    ra_options o = RA_OPTIONS_INIT;
    rng random = {seed};
    p.seq_q = seq, p.heads_q = HEADS, p.dim = DIM, p.causal = 1;
    o.backend = backend, o.backward = 1;
    GPU_TRY(ra_comm_create_self(&w->comm));
    GPU_TRY(ra_backend_stream_create(backend, &w->stream));
    size_t total = 0;
    for (int i = 0; i < ARRAYS; i++) {
        w->bytes[i] = (size_t)seq * HEADS * (i == 5 ? 1 : DIM) * sizeof(float);
        total += w->bytes[i];
        float *host = malloc(w->bytes[i]);
        for (size_t j = 0; j < w->bytes[i] / sizeof *host; j++) host[j] = (float)rng_normal(&random);
        GPU_TRY(ra_backend_allocate(backend, w->bytes[i], (void **)&w->device[i]));
        GPU_TRY(ra_backend_copy(backend, w->device[i], host, w->bytes[i]));
        free(host);
    }
    w->first = malloc(total);
    w->t = (ra_tensors)RA_TENSORS_INIT;
    w->t.q.data = w->device[0], w->t.k.data = w->device[1], w->t.v.data = w->device[2];
    w->t.o.data = w->device[4], w->t.lse = w->device[5];
    w->g = (ra_gradients)RA_GRADIENTS_INIT;
    w->g.q = w->t.q, w->g.k = w->t.k, w->g.v = w->t.v, w->g.o = ra_as_input(w->t.o), w->g.lse = w->t.lse;
    w->g.dout.data = w->device[3];
    w->g.dq.data = w->device[6], w->g.dk.data = w->device[7], w->g.dv.data = w->device[8];
    /* Last, so that its lists may still be on their way at the first pass. */
    return ra_plan_create(w->comm, &p, &o, &w->plan);
}

static void end(work *w, const ra_backend *backend) {
    ra_plan_destroy(w->plan);
    ra_comm_destroy(w->comm);
    ra_backend_stream_destroy(backend, w->stream);
    for (int i = 0; i < ARRAYS; i++) ra_backend_release(backend, w->device[i]);
    free(w->first);
}

static ra_status launch(work *w) {
    GPU_TRY(ra_plan_forward(w->plan, &w->t, w->stream));
    return ra_plan_backward(w->plan, &w->g, w->stream);
}

/* Keeps the outputs, or compares them with those kept; spoils them on the device. */
static ra_status look(work *w, const ra_backend *backend, int keep, int *equal_out) {
    unsigned char *at = w->first;
    *equal_out = 1;
    for (int i = ARRAYS - OUTPUTS; i < ARRAYS; i++) {
        unsigned char *now = malloc(w->bytes[i]);
        GPU_TRY(ra_backend_copy(backend, now, w->device[i], w->bytes[i]));
        if (keep)
            memcpy(at, now, w->bytes[i]);
        else
            *equal_out &= memcmp(at, now, w->bytes[i]) == 0;
        memset(now, 0xff, w->bytes[i]);
        GPU_TRY(ra_backend_copy(backend, w->device[i], now, w->bytes[i]));
        at += w->bytes[i];
        free(now);
    }
    return RA_OK;
}

static ra_status capture(work *w, cudaGraphExec_t *ready_out) {
    cudaGraph_t graph;
    CUDA_TRY(cudaStreamBeginCapture(w->stream, cudaStreamCaptureModeGlobal));
    ra_status status = launch(w);
    CUDA_TRY(cudaStreamEndCapture(w->stream, &graph));
    GPU_TRY(status);
    CUDA_TRY(cudaGraphInstantiate(ready_out, graph, 0));
    CUDA_TRY(cudaGraphDestroy(graph));
    return RA_OK;
}

/* Against the outputs kept. */
static ra_status launch_graph(work *w, const ra_backend *backend, cudaGraphExec_t ready, int times, int *bad) {
    int equal;
    for (int i = 0; i < times; i++) {
        CUDA_TRY(cudaGraphLaunch(ready, w->stream));
        CUDA_TRY(cudaStreamSynchronize(w->stream));
        GPU_TRY(look(w, backend, 0, &equal));
        if (!equal) printf("FAILED: launch %d of the graph gave other bits\n", i), ++*bad;
    }
    CUDA_TRY(cudaGraphExecDestroy(ready));
    return RA_OK;
}

static ra_status check_graph(work *w, const ra_backend *backend, int *bad) {
    cudaGraphExec_t ready;
    GPU_TRY(capture(w, &ready));
    GPU_TRY(launch_graph(w, backend, ready, 5, bad));
    printf("a graph of both passes: the same bits\n");
    return RA_OK;
}

/* Of a plan just made: its lists come to the device beside the capture, and are there for every launch. */
static ra_status check_first_pass(const ra_backend *backend, int *bad) {
    enum { TIMES = 3 };
    for (int i = 0; i < TIMES; i++) {
        work w = {0};
        cudaGraphExec_t ready;
        int equal;
        GPU_TRY(make(&w, backend, 600 + 700 * i, (uint64_t)i + 50));
        GPU_TRY(capture(&w, &ready));
        CUDA_TRY(cudaGraphLaunch(ready, w.stream));
        CUDA_TRY(cudaStreamSynchronize(w.stream));
        GPU_TRY(look(&w, backend, 1, &equal));
        GPU_TRY(launch_graph(&w, backend, ready, 2, bad));
        GPU_TRY(launch(&w));
        GPU_TRY(ra_plan_wait(w.plan, w.stream));
        GPU_TRY(look(&w, backend, 0, &equal));
        if (!equal) printf("FAILED: a plan whose first passes were captured gave other bits\n"), ++*bad;
        end(&w, backend);
    }
    printf("graphs of the first passes of %d plans: the same bits\n", TIMES);
    return RA_OK;
}

static ra_status check(const ra_backend *backend, int *bad) {
    static work w[PLANS];
    int equal;
    for (int i = 0; i < PLANS; i++) {
        GPU_TRY(make(&w[i], backend, 700 + 500 * i, (uint64_t)i + 1));
        GPU_TRY(launch(&w[i]));
        GPU_TRY(ra_plan_wait(w[i].plan, w[i].stream));
        GPU_TRY(look(&w[i], backend, 1, &equal));
    }
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < PLANS; i++) GPU_TRY(launch(&w[i]));
        for (int i = 0; i < PLANS; i++) {
            GPU_TRY(ra_plan_wait(w[i].plan, w[i].stream));
            GPU_TRY(look(&w[i], backend, 0, &equal));
            if (!equal) printf("FAILED: plan %d beside others gave other bits\n", i), ++*bad;
        }
    }
    printf("%d plans on streams of their own at once: the same bits\n", PLANS);
    GPU_TRY(check_graph(&w[0], backend, bad));
    for (int i = 0; i < PLANS; i++) end(&w[i], backend);
    return check_first_pass(backend, bad);
}

int main(void) {
    const ra_backend *backend = gpu_backend();
    int bad = 0;
    if (!backend) return 0;
    if (check(backend, &bad) != RA_OK) {
        printf("FAILED: %s\n", ra_last_error());
        return 1;
    }
    return bad != 0;
}
