/* Plans: made together by all ranks, run many times. */
#include "base/sized.h"
#include "base/status.h"
#include "exec/exec.h"
#include "plan/digest.h"
#include "plan/predict.h"
#include "transport/collective.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ra_plan {
    ra_comm *comm;
    ra_pool pool; /* everything below points into it */
    ra_prediction prediction;
    unsigned char *memory;
    int memory_is_ours;
    ra_program forward, backward;
    ra_program states_again; /* the forward program inside the backward pass, where softmaxes are kept apart */
    ra_traffic forward_traffic, backward_traffic; /* as planned, and as the last pass each way sent */
    void *finished; /* event, on an asynchronous device: the end of what was put on a stream last */
    /* The last pass each way that was put on a stream since the last wait: what is spoiled when it turns out to have
     * failed. */
    ra_forward_io forward_io;
    ra_backward_io backward_io;
    int forward_pending, backward_pending;
};

static const ra_device *device_of(const ra_plan *plan) {
    return plan->prediction.setup.device;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static ra_status take_workspace(ra_plan *plan) {
    const ra_setup *setup = &plan->prediction.setup;
    size_t bytes = plan->prediction.workspace.bytes;
    if (setup->workspace) {
        if (setup->workspace_bytes < bytes)
            RA_REFUSE("options.workspace_bytes is %zu but this plan needs %zu: ask ra_predict first",
                      setup->workspace_bytes, bytes);
        plan->memory = setup->workspace;
        return RA_OK;
    }
    plan->memory = setup->device->allocate(setup->device, bytes);
    if (!plan->memory)
        return ra_fail(RA_ERR_MEMORY, "no memory for a workspace of %zu bytes; use more ranks or another strategy",
                       bytes);
    plan->memory_is_ours = 1;
    return RA_OK;
}

static ra_status bind(ra_plan *plan) {
    ra_prediction *p = &plan->prediction;
    ra_comm *comm = plan->comm;
    RA_TRY(take_workspace(plan));
    RA_TRY(ra_program_bind(&plan->pool, &p->setup, &p->workspace, plan->memory, &p->forward, comm, &plan->forward));
    if (!p->setup.backward) return RA_OK;
    RA_TRY(ra_program_bind(&plan->pool, &p->setup, &p->workspace, plan->memory, &p->backward, comm, &plan->backward));
    if (p->setup.shape.states == 1) return RA_OK;
    return ra_program_bind_again(&plan->pool, &plan->forward, RA_TAGS_STATES_AGAIN, &plan->states_again);
}

/* As planned: the backward pass's may include the forward pass's. */
static void note_traffic(ra_plan *plan) {
    ra_plan_info planned;
    ra_prediction_describe(&plan->prediction, &planned);
    plan->forward_traffic = planned.forward;
    plan->backward_traffic = planned.backward;
}

/* What an asynchronous device needs beside memory. */
static ra_status link_device(ra_plan *plan) {
    const ra_device *device = device_of(plan);
    size_t send = 0, receive = 0;
    if (!ra_device_is_asynchronous(device)) return RA_OK;
    RA_TRY(device->event_create(device, &plan->finished));
    ra_program_group_bytes(&plan->forward, &send, &receive);
    ra_program_group_bytes(&plan->backward, &send, &receive);
    return ra_comm_attach(plan->comm, device, send, receive);
}

static ra_status build(ra_plan *plan, const ra_problem *problem, const ra_options *options) {
    ra_prediction *p = &plan->prediction;
    ra_comm *comm = plan->comm;
    ra_seat seat = {comm->rank, comm->ranks, comm->process_ranks, comm->machine_ranks};
    int previous;
    RA_TRY(ra_setup_make(problem, options, seat, &p->setup));
    p->setup.serial = comm->plans - 1;
    RA_TRY(ra_prediction_make(&plan->pool, p));
    note_traffic(plan);
    RA_TRY(ra_device_enter(p->setup.device, &previous));
    ra_status status = bind(plan);
    if (status == RA_OK) status = link_device(plan);
    ra_device_leave(p->setup.device, previous);
    return status;
}

/* Every rank takes part, also one that failed, so that no rank waits for a plan that never comes. */
static ra_status agree(ra_comm *comm, const ra_digest *mine, double timeout_seconds) {
    ra_seal seal = ra_digest_seal(mine);
    ra_digest pair[2];
    int64_t culprit;
    RA_TRY(ra_comm_judge(comm, &seal, sizeof seal, ra_seals_judge, &culprit, sizeof culprit, timeout_seconds));
    if (culprit < 0) return RA_OK;
    RA_TRY(ra_comm_show(comm, (int)culprit, mine, sizeof *mine, pair, timeout_seconds));
    return ra_digest_explain(&pair[0], &pair[1], (int)culprit, comm->rank);
}

static double timeout_of(const ra_options *options) {
    int has_it = options && options->struct_size >= offsetof(ra_options, timeout_seconds) + sizeof(double);
    double seconds = has_it ? options->timeout_seconds : 0;
    return seconds > 0 && isfinite(seconds) ? seconds : RA_TIMEOUT_DEFAULT;
}

/* A rank's own failure tells it more than that the ranks do not agree. A rank among others says which one it is. */
static ra_status own_failure(const ra_comm *comm, ra_status status, const char *error) {
    return comm->ranks > 1 ? ra_fail(status, "rank %d: %s", comm->rank, error) : ra_fail(status, "%s", error);
}

/* Builds the plan and finds out whether every rank has built the same. */
static ra_status build_together(ra_plan *plan, const ra_problem *problem, const ra_options *options, int wanted) {
    ra_status status = wanted ? build(plan, problem, options) : ra_fail(RA_ERR_ARGUMENT, "plan_out is NULL");
    if (status == RA_OK) {
        ra_digest mine = ra_digest_of(&plan->prediction.setup);
        return agree(plan->comm, &mine, timeout_of(options));
    }
    char error[1024];
    snprintf(error, sizeof error, "%s", ra_last_error());
    ra_digest mine = ra_digest_of_failure(status, error);
    agree(plan->comm, &mine, timeout_of(options));
    return own_failure(plan->comm, status, error);
}

ra_status ra_plan_create(ra_comm *comm, const ra_problem *problem, const ra_options *options, ra_plan **plan_out) {
    RA_TRY(ra_comm_check(comm));
    ra_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return ra_comm_lose(comm, ra_fail(RA_ERR_MEMORY, "rank %d: no memory for a plan", comm->rank));
    plan->comm = comm;
    comm->plans++;
    ra_status status = build_together(plan, problem, options, plan_out != NULL);
    if (status == RA_OK)
        *plan_out = plan;
    else
        ra_plan_destroy(plan);
    return status;
}

/* Where a dead peer leaves the device waiting, so would releasing the memory: a pass that nobody has waited for is
 * waited for here, with a deadline, after which the comm is given up and the device goes on. */
static void end_passes(ra_plan *plan) {
    int pending = plan->forward_pending || plan->backward_pending;
    if (!pending || !plan->comm->ops.ends_on_device || plan->comm->broken) return;
    ra_comm_wait_event(plan->comm, device_of(plan), plan->finished, plan->prediction.setup.timeout_seconds);
}

void ra_plan_destroy(ra_plan *plan) {
    const ra_device *device = plan ? device_of(plan) : NULL;
    int previous, entered = device && ra_device_enter(device, &previous) == RA_OK;
    if (!plan) return;
    end_passes(plan);
    if (plan->memory_is_ours && !plan->comm->memory_held) device->release(device, plan->memory);
    ra_program_release(&plan->forward);
    ra_program_release(&plan->backward);
    if (plan->finished) device->event_destroy(device, plan->finished);
    if (entered) ra_device_leave(device, previous);
    ra_pool_free(&plan->pool);
    free(plan);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* A tensor of [batch, rows, heads, dim] as a view. */
static ra_status view_of(const char *name, const void *data, int strided, const int64_t *stride, int64_t rows,
                         int64_t heads, int64_t dim, ra_view *view_out) {
    int given = stride[0] || stride[1] || stride[2] || stride[3];
    if (rows > 0 && !data) RA_REFUSE("%s.data is NULL, but this rank has %lld rows", name, (long long)rows);
    if (given && !strided) RA_REFUSE("%s.stride is given but %s.strided is not set", name, name);
    *view_out = (ra_view){(void *)data, rows * heads * dim, heads * dim, dim, 1};
    if (strided) *view_out = (ra_view){(void *)data, stride[0], stride[1], stride[2], stride[3]};
    return RA_OK;
}

static ra_status input_view(const char *name, const ra_input *x, int64_t rows, int64_t heads, int64_t dim,
                            ra_view *view_out) {
    return view_of(name, x->data, x->strided, x->stride, rows, heads, dim, view_out);
}

/* Two elements of an output in one place would be written by two threads: where there is more than one along an axis,
 * its stride may not be 0. */
static ra_status output_view(const char *name, const ra_tensor *x, int64_t batch, int64_t rows, int64_t heads,
                             int64_t dim, ra_view *view_out) {
    const int64_t counts[] = {batch, rows, heads, dim};
    for (int i = 0; i < 4 && x->strided && rows > 0; i++)
        if (counts[i] > 1 && x->stride[i] == 0)
            RA_REFUSE("%s.stride[%d] is 0 over %lld elements: an output needs a place for each", name, i,
                      (long long)counts[i]);
    return view_of(name, x->data, x->strided, x->stride, rows, heads, dim, view_out);
}

static ra_status check_run(const ra_plan *plan, const void *stream) {
    if (!plan) RA_REFUSE("plan is NULL");
    if (stream && !ra_device_is_asynchronous(device_of(plan)))
        RA_REFUSE("stream must be NULL: this plan runs on the CPU");
    return ra_comm_check(plan->comm);
}

/* Whether giving the comm up, through this plan or another one, may have ended this plan's passes before they were
 * done. */
static int were_passes_cut(const ra_plan *plan) {
    return plan->finished && plan->comm->ops.ends_on_device && plan->comm->broken;
}

static void spoil_passes(ra_plan *plan, void *stream) {
    if (plan->forward_pending) ra_exec_spoil_forward(&plan->forward, &plan->forward_io, stream);
    if (plan->backward_pending) ra_exec_spoil_backward(&plan->backward, &plan->backward_io, stream);
}

/* Before a pass: those whose end the device has reached with the comm well cannot fail any more. Whoever waited for
 * them in another way may have freed their outputs. */
static void forget_finished(ra_plan *plan) {
    const ra_device *device = device_of(plan);
    const ra_comm *comm = plan->comm;
    int done = 0, pending = plan->forward_pending || plan->backward_pending;
    if (!pending || !plan->finished || !comm->ops.ends_on_device || comm->ranks == 1) return;
    if (device->query(device, plan->finished, &done) == RA_OK && done)
        plan->forward_pending = plan->backward_pending = 0;
}

/* After a pass: marks its end where it may have to be waited for. */
static ra_status mark_end(ra_plan *plan, ra_status status, void *stream) {
    const ra_device *device = device_of(plan);
    if (status != RA_OK || !plan->finished || !plan->comm->ops.ends_on_device) return status;
    status = device->record(device, plan->finished, stream);
    return status == RA_OK ? RA_OK : ra_comm_lose(plan->comm, status);
}

static ra_status run_forward(ra_plan *plan, const ra_forward_io *io, void *stream) {
    int previous;
    RA_TRY(ra_device_enter(device_of(plan), &previous));
    forget_finished(plan);
    ra_status ran = ra_exec_forward(&plan->forward, io, stream, &plan->forward_traffic);
    ra_status status = mark_end(plan, ran, stream);
    if (status != ran) ra_exec_spoil_forward(&plan->forward, io, stream);
    if (status != RA_OK && were_passes_cut(plan)) spoil_passes(plan, stream);
    ra_device_leave(device_of(plan), previous);
    if (status != RA_OK) return status;
    plan->forward_io = *io;
    plan->forward_pending = 1;
    return RA_OK;
}

static ra_status run_backward(ra_plan *plan, const ra_backward_io *io, void *stream) {
    int previous;
    RA_TRY(ra_device_enter(device_of(plan), &previous));
    forget_finished(plan);
    ra_status ran = ra_exec_backward(&plan->backward, &plan->states_again, io, stream, &plan->backward_traffic);
    ra_status status = mark_end(plan, ran, stream);
    if (status != ran) ra_exec_spoil_backward(&plan->backward, io, stream);
    if (status != RA_OK && were_passes_cut(plan)) spoil_passes(plan, stream);
    ra_device_leave(device_of(plan), previous);
    if (status != RA_OK) return status;
    plan->backward_io = *io;
    plan->backward_pending = 1;
    return RA_OK;
}

ra_status ra_plan_forward(ra_plan *plan, const ra_tensors *tensors, void *stream) {
    ra_tensors copy = {0}, *t = &copy;
    RA_TRY(check_run(plan, stream));
    RA_TRY(ra_sized_read("tensors", tensors, sizeof copy.struct_size, sizeof copy, &copy));
    const ra_setup *s = &plan->prediction.setup;
    ra_forward_io io = {.lse = t->lse};
    RA_TRY(input_view("q", &t->q, s->rows_q, s->shape.heads_q, s->shape.dim, &io.q));
    RA_TRY(input_view("k", &t->k, s->rows_k, s->shape.heads_kv, s->shape.dim, &io.k));
    RA_TRY(input_view("v", &t->v, s->rows_k, s->shape.heads_kv, s->shape.dim_v, &io.v));
    RA_TRY(output_view("o", &t->o, s->shape.batch, s->rows_q, s->shape.heads_q, s->shape.dim_v, &io.o));
    return run_forward(plan, &io, stream);
}

ra_status ra_plan_backward(ra_plan *plan, const ra_gradients *gradients, void *stream) {
    ra_gradients copy = {0}, *g = &copy;
    RA_TRY(check_run(plan, stream));
    RA_TRY(ra_sized_read("gradients", gradients, sizeof copy.struct_size, sizeof copy, &copy));
    const ra_setup *s = &plan->prediction.setup;
    if (!s->backward) RA_REFUSE("this plan has no backward pass: set options.backward when it is made");
    if (s->rows_q > 0 && !g->lse) RA_REFUSE("lse is NULL: the backward pass needs what the forward pass gave");
    ra_backward_io io = {.lse = g->lse};
    RA_TRY(input_view("q", &g->q, s->rows_q, s->shape.heads_q, s->shape.dim, &io.q));
    RA_TRY(input_view("k", &g->k, s->rows_k, s->shape.heads_kv, s->shape.dim, &io.k));
    RA_TRY(input_view("v", &g->v, s->rows_k, s->shape.heads_kv, s->shape.dim_v, &io.v));
    RA_TRY(input_view("o", &g->o, s->rows_q, s->shape.heads_q, s->shape.dim_v, &io.o));
    RA_TRY(input_view("dout", &g->dout, s->rows_q, s->shape.heads_q, s->shape.dim_v, &io.dout));
    RA_TRY(output_view("dq", &g->dq, s->shape.batch, s->rows_q, s->shape.heads_q, s->shape.dim, &io.dq));
    RA_TRY(output_view("dk", &g->dk, s->shape.batch, s->rows_k, s->shape.heads_kv, s->shape.dim, &io.dk));
    RA_TRY(output_view("dv", &g->dv, s->shape.batch, s->rows_k, s->shape.heads_kv, s->shape.dim_v, &io.dv));
    return run_backward(plan, &io, stream);
}

static ra_status wait_on(ra_plan *plan, void *stream) {
    const ra_device *device = device_of(plan);
    RA_TRY(device->record(device, plan->finished, stream));
    return ra_comm_wait_event(plan->comm, device, plan->finished, plan->prediction.setup.timeout_seconds);
}

ra_status ra_plan_wait(ra_plan *plan, void *stream) {
    int previous;
    if (!plan) RA_REFUSE("plan is NULL");
    const ra_device *device = device_of(plan);
    if (!ra_device_is_asynchronous(device)) return RA_OK;
    RA_TRY(ra_device_enter(device, &previous));
    ra_status status = wait_on(plan, stream);
    int pending = plan->forward_pending || plan->backward_pending;
    if (status == RA_OK && pending && were_passes_cut(plan)) status = ra_comm_check(plan->comm);
    if (status != RA_OK) spoil_passes(plan, stream);
    plan->forward_pending = plan->backward_pending = 0;
    ra_device_leave(device, previous);
    return status;
}

ra_status ra_plan_describe(const ra_plan *plan, ra_plan_info *info_out) {
    if (!plan) RA_REFUSE("plan is NULL");
    ra_plan_info info;
    ra_prediction_describe(&plan->prediction, &info);
    info.forward = plan->forward_traffic;
    info.backward = plan->backward_traffic;
    return ra_plan_info_copy(&info, info_out);
}
