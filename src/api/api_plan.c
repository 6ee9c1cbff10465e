/* Plans, for callers: checked arguments around exec/plan.h. */
#include "base/sized.h"
#include "base/status.h"
#include "exec/plan.h"

ra_status ra_plan_create(ra_comm *comm, const ra_problem *problem, const ra_options *options, ra_plan **plan_out) {
    RA_TRY(ra_comm_check(comm));
    return ra_plan_build(comm, problem, options, plan_out);
}

void ra_plan_destroy(ra_plan *plan) {
    if (plan) ra_plan_dismantle(plan);
}

/* A tensor of [batch, rows, heads, dim] as a view. */
static ra_status view_of(const char *name, const void *data, int strided, const int64_t *stride, int64_t rows,
                         int64_t heads, int64_t dim, ra_view *view_out) {
    int given = stride[0] || stride[1] || stride[2] || stride[3];
    if (rows > 0 && !data) return ra_refuse("%s.data is NULL, but this rank has %lld rows", name, (long long)rows);
    if (given && !strided) return ra_refuse("%s.stride is given but %s.strided is not set", name, name);
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
            return ra_refuse("%s.stride[%d] is 0 over %lld elements: an output needs a place for each", name, i,
                             (long long)counts[i]);
    return view_of(name, x->data, x->strided, x->stride, rows, heads, dim, view_out);
}

/* An lse of this rank's rows as a view of one element a row. */
static ra_status lse_view(const ra_setup *s, const void *data, int strided, const int64_t *stride, int is_output,
                          ra_view *view_out) {
    const int64_t counts[] = {s->shape.batch, s->shape.heads_q, s->rows_q};
    for (int i = 0; i < 3; i++) {
        if (stride[i] && !strided) return ra_refuse("lse_stride is given but lse_strided is not set");
        if (strided && is_output && data && s->rows_q > 0 && counts[i] > 1 && stride[i] == 0)
            return ra_refuse("lse_stride[%d] is 0 over %lld elements: an output needs a place for each", i,
                             (long long)counts[i]);
    }
    *view_out = ra_array_view(&s->shape, (void *)data);
    if (strided) *view_out = (ra_view){(void *)data, stride[0], stride[2], stride[1], 1};
    return RA_OK;
}

static ra_status check_run(const ra_plan *plan, const void *stream) {
    if (!plan) return ra_refuse("plan is NULL");
    if (stream && !ra_device_is_asynchronous(ra_plan_device(plan)))
        return ra_refuse("stream must be NULL: this plan runs on the CPU");
    return ra_comm_check(plan->comm);
}

ra_status ra_plan_forward(ra_plan *plan, const ra_tensors *tensors, void *stream) {
    ra_tensors copy = {0}, *t = &copy;
    RA_TRY(check_run(plan, stream));
    RA_TRY(ra_sized_read("tensors", tensors, sizeof copy.struct_size, sizeof copy, &copy));
    const ra_setup *s = &plan->prediction.setup;
    ra_forward_io io;
    RA_TRY(input_view("q", &t->q, s->rows_q, s->shape.heads_q, s->shape.dim, &io.q));
    RA_TRY(input_view("k", &t->k, s->rows_k, s->shape.heads_kv, s->shape.dim, &io.k));
    RA_TRY(input_view("v", &t->v, s->rows_k, s->shape.heads_kv, s->shape.dim_v, &io.v));
    RA_TRY(output_view("o", &t->o, s->shape.batch, s->rows_q, s->shape.heads_q, s->shape.dim_v, &io.o));
    RA_TRY(lse_view(s, t->lse, t->lse_strided, t->lse_stride, 1, &io.lse));
    return ra_pass_forward(plan, &io, stream);
}

ra_status ra_plan_backward(ra_plan *plan, const ra_gradients *gradients, void *stream) {
    ra_gradients copy = {0}, *g = &copy;
    RA_TRY(check_run(plan, stream));
    RA_TRY(ra_sized_read("gradients", gradients, sizeof copy.struct_size, sizeof copy, &copy));
    const ra_setup *s = &plan->prediction.setup;
    if (!s->backward) return ra_refuse("this plan has no backward pass: set options.backward when it is made");
    if (s->rows_q > 0 && !g->lse) return ra_refuse("lse is NULL: the backward pass needs what the forward pass gave");
    ra_backward_io io;
    RA_TRY(lse_view(s, g->lse, g->lse_strided, g->lse_stride, 0, &io.lse));
    RA_TRY(input_view("q", &g->q, s->rows_q, s->shape.heads_q, s->shape.dim, &io.q));
    RA_TRY(input_view("k", &g->k, s->rows_k, s->shape.heads_kv, s->shape.dim, &io.k));
    RA_TRY(input_view("v", &g->v, s->rows_k, s->shape.heads_kv, s->shape.dim_v, &io.v));
    RA_TRY(input_view("o", &g->o, s->rows_q, s->shape.heads_q, s->shape.dim_v, &io.o));
    RA_TRY(input_view("dout", &g->dout, s->rows_q, s->shape.heads_q, s->shape.dim_v, &io.dout));
    RA_TRY(output_view("dq", &g->dq, s->shape.batch, s->rows_q, s->shape.heads_q, s->shape.dim, &io.dq));
    RA_TRY(output_view("dk", &g->dk, s->shape.batch, s->rows_k, s->shape.heads_kv, s->shape.dim, &io.dk));
    RA_TRY(output_view("dv", &g->dv, s->shape.batch, s->rows_k, s->shape.heads_kv, s->shape.dim_v, &io.dv));
    return ra_pass_backward(plan, &io, stream);
}

ra_status ra_plan_wait(ra_plan *plan, void *stream) {
    if (!plan) return ra_refuse("plan is NULL");
    return ra_device_is_asynchronous(ra_plan_device(plan)) ? ra_pass_wait(plan, stream) : RA_OK;
}

ra_status ra_plan_describe(const ra_plan *plan, ra_plan_info *info_out) {
    if (!plan) return ra_refuse("plan is NULL");
    ra_plan_info info;
    ra_prediction_describe(&plan->prediction, &info);
    info.forward = plan->forward_traffic;
    info.backward = plan->backward_traffic;
    return ra_plan_info_copy(&info, info_out);
}
