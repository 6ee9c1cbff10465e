/* A plan: made together by all ranks of a comm, run many times.
 *
 * The life of a pass:
 *
 *     run ─┬─► failed                     its outputs are as they were, or NaN
 *          └─► pending ─┬─► finished      its outputs are whole: the device has reached its end with the comm well
 *                       └─► spoiled       its outputs are NaN: the comm was given up, and the pass may have ended early
 *
 * On the CPU a pass is finished when it returns. So it is on a device, as far as failures of peers go, unless the
 * transport ends on the device (NCCL): there a pass is pending until it was waited for, or another pass finds that the
 * device has reached its end.
 */
#ifndef RA_EXEC_PLAN_H
#define RA_EXEC_PLAN_H

#include "exec/exec.h"
#include "plan/predict.h"

struct ra_plan {
    ra_comm *comm;
    ra_pool pool; /* everything below points into it */
    ra_prediction prediction;
    unsigned char *memory;
    int memory_is_ours;
    ra_sharing sharing; /* with ranks that see each other's memory */
    ra_program forward, backward;
    ra_program states_again; /* the forward program inside the backward pass, where softmaxes are kept apart */
    ra_upload lists;         /* what the kernels of these programs read, on an asynchronous device */
    ra_traffic forward_traffic, backward_traffic; /* as planned, and as the last pass each way sent */
    /* The life of the last pass each way. */
    void *finished; /* event, on an asynchronous device: the end of what was put on a stream last */
    ra_forward_io forward_io;
    ra_backward_io backward_io;
    int forward_pending, backward_pending;
};

static inline const ra_device *ra_plan_device(const ra_plan *plan) {
    return plan->prediction.setup.device;
}

/* ra_plan_create with a comm that is well. Every rank takes part to the end, also one that fails; plan_out NULL is such
 * a failure. */
ra_status ra_plan_build(ra_comm *comm, const ra_problem *problem, const ra_options *options, ra_plan **plan_out);

/* Ends what is pending and frees the plan. */
void ra_plan_dismantle(ra_plan *plan);

/* A pass with views that are right. */
ra_status ra_pass_forward(ra_plan *plan, const ra_forward_io *io, void *stream);
ra_status ra_pass_backward(ra_plan *plan, const ra_backward_io *io, void *stream);

/* ra_plan_wait, on an asynchronous device. */
ra_status ra_pass_wait(ra_plan *plan, void *stream);

/* Before the memory of the passes is released. Where a dead peer leaves the device waiting, so would the release: a
 * pass that nobody has waited for is waited for here, with a deadline, after which the comm is given up and the device
 * goes on. */
void ra_pass_end_all(ra_plan *plan);

#endif
