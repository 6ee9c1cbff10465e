#include "plan/setup.h"

#include "base/cores.h"
#include "base/sized.h"
#include "base/status.h"
#include "plan/choose.h"

#include <math.h>

static ra_status read_options(const ra_options *in, ra_options *out) {
    ra_options o = RA_OPTIONS_INIT;
    if (in) RA_TRY(ra_sized_read("options", in, sizeof in->struct_size, sizeof o, &o));
    if (!ra_layout_name(o.layout)) return ra_refuse("options.layout %d is no layout", (int)o.layout);
    if (!ra_strategy_name(o.strategy)) return ra_refuse("options.strategy %d is no strategy", (int)o.strategy);
    if (o.threads < 0 || o.threads > 4096)
        return ra_refuse("options.threads is %d; it must be between 0 and 4096", o.threads);
    if (!(o.timeout_seconds >= 0) || isinf(o.timeout_seconds))
        return ra_refuse("options.timeout_seconds must be finite and not negative");
    if (o.timeout_seconds == 0) o.timeout_seconds = RA_TIMEOUT_DEFAULT;
    if (o.workspace && (uintptr_t)o.workspace % 64) return ra_refuse("options.workspace must be 64-byte aligned");
    *out = o;
    return RA_OK;
}

static ra_shape shape_of(const ra_problem *p, int64_t rows_q) {
    return (ra_shape){.batch = p->batch,
                      .heads_q = p->heads_q,
                      .heads_kv = p->heads_kv,
                      .dim = p->dim,
                      .dim_v = p->dim_v,
                      .rows_q = rows_q,
                      .states = ra_problem_states(p),
                      .scale = p->scale,
                      .weight = ra_problem_weight(p),
                      .dtype = p->dtype,
                      .out_dtype = p->out_dtype};
}

ra_cut_problem ra_setup_cut(const ra_setup *setup) {
    return (ra_cut_problem){&setup->problem, setup->layout, setup->ranks};
}

/* Kernels ask the current device what it can do. */
static ra_status choose_kernel(const ra_options *options, ra_setup *setup) {
    const ra_backend *backend;
    int previous;
    RA_TRY(ra_backend_check(options->backend, &backend));
    setup->device = backend->device;
    RA_TRY(ra_device_enter(setup->device, &previous));
    ra_status status = ra_backend_find_kernel(backend, options->kernel, &setup->kernel);
    ra_device_leave(setup->device, previous);
    return status;
}

/* All that must be right and is needed before anything is chosen. */
static ra_status check(const ra_problem *problem, const ra_options *options, ra_seat seat, ra_options *options_out,
                       ra_setup *setup) {
    int rank = seat.rank, ranks = seat.ranks;
    if (ranks < 1 || ranks > RA_MAX_RANKS)
        return ra_refuse("ranks is %d; it must be between 1 and %d", ranks, RA_MAX_RANKS);
    if (rank < 0 || rank >= ranks) return ra_refuse("rank is %d; it must be between 0 and %d", rank, ranks - 1);
    RA_TRY(ra_problem_normalise(problem, &setup->problem));
    RA_TRY(read_options(options, options_out));
    return choose_kernel(options_out, setup);
}

static ra_status choose_layout(const ra_options *options, ra_setup *setup) {
    setup->layout = options->layout;
    return options->layout ? RA_OK : ra_choose_layout(&setup->problem, setup->ranks, &setup->layout);
}

static ra_status choose_strategy(const ra_options *options, int one_device, ra_setup *setup) {
    ra_cut_problem cut = ra_setup_cut(setup);
    setup->strategy = options->strategy;
    return options->strategy ? RA_OK : ra_choose_strategy(&cut, one_device, &setup->strategy);
}

const ra_device *ra_setup_device(const ra_options *options, int *workspace_out) {
    ra_options o;
    const ra_backend *backend;
    if (read_options(options, &o) != RA_OK || ra_backend_check(o.backend, &backend) != RA_OK) return NULL;
    *workspace_out = o.workspace != NULL;
    return backend->device;
}

ra_status ra_setup_layout(const ra_problem *problem, const ra_options *options, int ranks, ra_layout *layout_out) {
    ra_options o = {0};
    ra_setup s = {.ranks = ranks};
    RA_TRY(check(problem, options, (ra_seat){0, ranks, ranks, ranks, 0}, &o, &s));
    RA_TRY(choose_layout(&o, &s));
    *layout_out = s.layout;
    return RA_OK;
}

ra_status ra_setup_make(const ra_problem *problem, const ra_options *options, ra_seat seat, ra_setup *setup_out) {
    int rank = seat.rank, ranks = seat.ranks;
    ra_options o = {0};
    ra_setup s = {.rank = rank, .ranks = ranks};
    RA_TRY(check(problem, options, seat, &o, &s));
    RA_TRY(choose_layout(&o, &s));
    RA_TRY(choose_strategy(&o, seat.one_device, &s));
    s.threads = o.threads ? o.threads : ra_core_share(seat.process_ranks, seat.machine_ranks);
    s.backward = o.backward != 0;
    s.timeout_seconds = o.timeout_seconds;
    s.workspace = o.workspace;
    s.workspace_bytes = o.workspace_bytes;
    s.rows_q = ra_shard_of(s.layout, s.problem.seq_q, ranks, rank).rows;
    s.rows_k = ra_shard_of(s.layout, s.problem.seq_k, ranks, rank).rows;
    s.shape = shape_of(&s.problem, s.rows_q);
    s.gradient_target =
        ra_dtype_bytes(s.problem.out_dtype) == ra_shape_acc_bytes(&s.shape) ? RA_TARGET_OUTPUT : RA_TARGET_WORKSPACE;
    s.o_target = s.shape.states == 1 ? s.gradient_target : RA_TARGET_WORKSPACE; /* several softmaxes have an O each */
    *setup_out = s;
    return RA_OK;
}
