/* The life of a pass: pending, then finished or spoiled. plan.h has the picture. */
#include "base/status.h"
#include "exec/plan.h"

static int is_any_pending(const ra_plan *plan) {
    return plan->forward_pending || plan->backward_pending;
}

static void forget_all(ra_plan *plan) {
    plan->forward_pending = plan->backward_pending = 0;
}

/* Whether passes of this plan go on after the host has posted their last group. */
static int ends_on_device(const ra_plan *plan) {
    return plan->finished && ra_comm_ends_on_device(plan->comm);
}

/* Whether giving the comm up, through this plan or another one, may have ended this plan's passes before they were
 * done. */
static int ended_early(const ra_plan *plan) {
    return ends_on_device(plan) && ra_comm_is_broken(plan->comm);
}

static void spoil_pending(ra_plan *plan, void *stream) {
    if (plan->forward_pending) ra_exec_spoil_forward(&plan->forward, &plan->forward_io, stream);
    if (plan->backward_pending) ra_exec_spoil_backward(&plan->backward, &plan->backward_io, stream);
}

/* Before a pass: those whose end the device has reached with the comm well cannot fail any more. Whoever waited for
 * them in another way may have freed their outputs. */
static void forget_finished(ra_plan *plan) {
    const ra_device *device = ra_plan_device(plan);
    int done = 0;
    if (!is_any_pending(plan) || !ends_on_device(plan) || ra_comm_ranks(plan->comm) == 1) return;
    if (device->query(device, plan->finished, &done) == RA_OK && done) forget_all(plan);
}

/* Before a pass: its kernels are behind the upload of what they read. */
static ra_status join_lists(ra_plan *plan, void *stream) {
    ra_status status = ra_upload_join(&plan->lists, stream);
    return status == RA_OK ? RA_OK : ra_comm_lose(plan->comm, status);
}

/* After a pass: marks its end where it may have to be waited for, and for the next plan that takes the lists' memory.
 * After one that failed there is none, for the comm is lost. */
static ra_status mark_end(ra_plan *plan, ra_status status, void *stream) {
    const ra_device *device = ra_plan_device(plan);
    if (status != RA_OK) return status;
    status = ra_upload_mark(&plan->lists, stream);
    if (status == RA_OK && ends_on_device(plan)) status = device->signal(device, plan->finished, stream);
    return status == RA_OK ? RA_OK : ra_comm_lose(plan->comm, status);
}

ra_status ra_pass_forward(ra_plan *plan, const ra_forward_io *io, void *stream) {
    int previous;
    RA_TRY(ra_device_enter(ra_plan_device(plan), &previous));
    forget_finished(plan);
    ra_status ran = join_lists(plan, stream);
    if (ran == RA_OK) ran = ra_exec_forward(&plan->forward, io, stream, &plan->forward_traffic);
    ra_status status = mark_end(plan, ran, stream);
    if (status != ran) ra_exec_spoil_forward(&plan->forward, io, stream);
    if (status != RA_OK && ended_early(plan)) spoil_pending(plan, stream);
    ra_device_leave(ra_plan_device(plan), previous);
    if (status != RA_OK) return status;
    plan->forward_io = *io;
    plan->forward_pending = 1;
    return RA_OK;
}

ra_status ra_pass_backward(ra_plan *plan, const ra_backward_io *io, void *stream) {
    int previous;
    RA_TRY(ra_device_enter(ra_plan_device(plan), &previous));
    forget_finished(plan);
    ra_status ran = join_lists(plan, stream);
    if (ran == RA_OK) ran = ra_exec_backward(&plan->backward, &plan->states_again, io, stream, &plan->backward_traffic);
    ra_status status = mark_end(plan, ran, stream);
    if (status != ran) ra_exec_spoil_backward(&plan->backward, io, stream);
    if (status != RA_OK && ended_early(plan)) spoil_pending(plan, stream);
    ra_device_leave(ra_plan_device(plan), previous);
    if (status != RA_OK) return status;
    plan->backward_io = *io;
    plan->backward_pending = 1;
    return RA_OK;
}

static ra_status wait_for_end(ra_plan *plan) {
    double timeout_seconds = plan->prediction.setup.timeout_seconds;
    return ra_comm_wait_event(plan->comm, ra_plan_device(plan), plan->finished, timeout_seconds);
}

ra_status ra_pass_wait(ra_plan *plan, void *stream) {
    const ra_device *device = ra_plan_device(plan);
    int previous;
    RA_TRY(ra_device_enter(device, &previous));
    ra_status status = device->signal(device, plan->finished, stream);
    status = status == RA_OK ? wait_for_end(plan) : ra_comm_lose(plan->comm, status);
    if (status == RA_OK && is_any_pending(plan) && ended_early(plan)) status = ra_comm_check(plan->comm);
    if (status != RA_OK) spoil_pending(plan, stream);
    forget_all(plan);
    ra_device_leave(device, previous);
    return status;
}

void ra_pass_end_all(ra_plan *plan) {
    if (is_any_pending(plan) && ends_on_device(plan) && !ra_comm_is_broken(plan->comm)) wait_for_end(plan);
}
