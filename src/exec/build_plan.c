/* Making a plan, which all ranks do together, and taking it apart. */
#include "base/sized.h"
#include "base/status.h"
#include "exec/lists.h"
#include "exec/plan.h"
#include "plan/digest.h"
#include "transport/collective.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static ra_status take_workspace(ra_plan *plan) {
    const ra_setup *setup = &plan->prediction.setup;
    size_t bytes = plan->prediction.workspace.bytes;
    if (setup->workspace) {
        if (setup->workspace_bytes < bytes)
            return ra_refuse("options.workspace_bytes is %zu but this plan needs %zu: ask ra_predict first",
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

/* What is not copied counts as what it stands for: messages of the strategy, though there are others where keys stay.
 */
static void count_as_planned(const ra_schedule *planned, const ra_program *program) {
    ra_bound_step *first = &program->steps[0];
    ra_schedule_traffic(&program->setup->problem, planned, &first->sent_bytes, &first->sent_messages);
}

/* What was planned, or what is done instead where keys stay. */
static ra_status bind_program(ra_plan *plan, const ra_schedule *planned, ra_program *program_out) {
    const ra_prediction *p = &plan->prediction;
    const ra_schedule *stays = plan->sharing.stays[planned->pass];
    RA_TRY(ra_program_bind(&plan->pool, &p->setup, &p->workspace, plan->memory, stays ? stays : planned, &plan->sharing,
                           plan->comm, program_out));
    if (stays) count_as_planned(planned, program_out);
    return RA_OK;
}

static ra_status bind_programs(ra_plan *plan) {
    const ra_prediction *p = &plan->prediction;
    RA_TRY(bind_program(plan, &p->forward, &plan->forward));
    if (!p->setup.backward) return RA_OK;
    RA_TRY(bind_program(plan, &p->backward, &plan->backward));
    if (p->setup.shape.states == 1) return RA_OK;
    return ra_program_bind_again(&plan->pool, &plan->forward, RA_TAGS_STATES_AGAIN, &plan->states_again);
}

static ra_status bind(ra_plan *plan) {
    const ra_device *device = ra_plan_device(plan);
    ra_uploader *uploader;
    RA_TRY(bind_programs(plan));
    if (!ra_device_is_asynchronous(device)) return RA_OK;
    RA_TRY(ra_comm_uploader(plan->comm, device, &uploader));
    return ra_lists_upload(uploader, &plan->forward, &plan->backward, &plan->lists);
}

/* As planned: the backward pass's may include the forward pass's. */
static void note_traffic(ra_plan *plan) {
    ra_plan_info planned;
    ra_prediction_describe(&plan->prediction, &planned);
    plan->forward_traffic = planned.forward;
    plan->backward_traffic = planned.backward;
}

/* What the comm, and an asynchronous device, need beside memory. */
static ra_status link_device(ra_plan *plan) {
    const ra_device *device = ra_plan_device(plan);
    ra_group_size most = {0};
    if (ra_device_is_asynchronous(device)) RA_TRY(device->event_create(device, &plan->finished));
    ra_program_group_size(&plan->forward, &most);
    ra_program_group_size(&plan->backward, &most);
    return ra_comm_attach(plan->comm, device, most);
}

/* All of the plan that needs no other rank. */
static ra_status prepare(ra_plan *plan, int serial, const ra_common *common, const ra_problem *problem,
                         const ra_options *options) {
    ra_prediction *p = &plan->prediction;
    ra_comm *comm = plan->comm;
    ra_seat seat = {ra_comm_rank(comm), ra_comm_ranks(comm), ra_comm_process_ranks(comm), ra_comm_machine_ranks(comm),
                    common->one_device && common->no_workspace};
    int previous;
    RA_TRY(ra_setup_make(problem, options, seat, &p->setup));
    p->setup.serial = serial;
    RA_TRY(ra_prediction_make(&plan->pool, p));
    note_traffic(plan);
    RA_TRY(ra_device_enter(p->setup.device, &previous));
    ra_status status = take_workspace(plan);
    ra_device_leave(p->setup.device, previous);
    return status;
}

/* Binds it to memory, of which some may be other ranks', and to the comm. */
static ra_status complete(ra_plan *plan) {
    const ra_device *device = ra_plan_device(plan);
    int previous;
    RA_TRY(ra_device_enter(device, &previous));
    ra_status status = bind(plan);
    if (status == RA_OK) status = link_device(plan);
    ra_device_leave(device, previous);
    return status;
}

/* Every rank takes part, also one that failed, so that no rank waits for a plan that never comes. */
static ra_status agree(ra_comm *comm, const ra_digest *mine, double timeout_seconds) {
    ra_seal seal = ra_digest_seal(mine);
    ra_digest shown[2]; /* of rank 0 and of the culprit */
    int64_t culprit;
    RA_TRY(ra_comm_judge(comm, &seal, sizeof seal, ra_seals_judge, &culprit, sizeof culprit, timeout_seconds));
    if (culprit < 0) return RA_OK;
    RA_TRY(ra_comm_show(comm, (int)culprit, mine, sizeof *mine, shown, timeout_seconds));
    return ra_digest_explain(&shown[0], &shown[1], (int)culprit, ra_comm_rank(comm));
}

/* Of options that may be wrong in other ways. */
static double timeout_of(const ra_options *options) {
    ra_options o = RA_OPTIONS_INIT;
    if (options && ra_sized_read("options", options, sizeof o.struct_size, sizeof o, &o) != RA_OK)
        return RA_TIMEOUT_DEFAULT;
    return o.timeout_seconds > 0 && isfinite(o.timeout_seconds) ? o.timeout_seconds : RA_TIMEOUT_DEFAULT;
}

/* A rank's own failure tells it more than that the ranks do not agree. A rank among others says which one it is. */
static ra_status own_failure(const ra_comm *comm, ra_status status, const char *error) {
    if (ra_comm_ranks(comm) == 1) return ra_fail(status, "%s", error);
    return ra_fail(status, "rank %d: %s", ra_comm_rank(comm), error);
}

/* Why this rank could not make its plan; status RA_OK: it could. */
typedef struct outcome {
    ra_status status;
    char error[1024];
} outcome;

static void note_outcome(outcome *made, ra_status status) {
    if (made->status != RA_OK || status == RA_OK) return; /* the first failure counts */
    made->status = status;
    snprintf(made->error, sizeof made->error, "%s", ra_last_error());
}

/* Builds the plan and finds out whether every rank has built the same. A rank that fails takes part in every exchange.
 */
static ra_status build_together(ra_plan *plan, const ra_problem *problem, const ra_options *options, int wanted) {
    ra_comm *comm = plan->comm;
    double timeout = timeout_of(options);
    int serial = ra_comm_count_plan(comm);
    outcome made = {.status = RA_OK};
    ra_common common = {0};
    int has_workspace = 0;
    const ra_device *device = ra_setup_device(options, &has_workspace);
    if (ra_comm_shares_memory(comm))
        note_outcome(&made, ra_sharing_find(comm, device, has_workspace, timeout, &common));
    if (made.status == RA_OK)
        note_outcome(&made, wanted ? prepare(plan, serial, &common, problem, options)
                                   : ra_fail(RA_ERR_ARGUMENT, "plan_out is NULL"));
    if (common.one_device)
        note_outcome(&made, ra_sharing_arrange(&plan->pool, comm, made.status == RA_OK ? &plan->prediction : NULL,
                                               plan->memory, timeout, &plan->sharing));
    if (made.status == RA_OK) note_outcome(&made, complete(plan));
    if (made.status == RA_OK) {
        ra_digest mine = ra_digest_of(&plan->prediction.setup);
        return agree(comm, &mine, timeout);
    }
    ra_digest mine = ra_digest_of_failure(made.status, made.error);
    agree(comm, &mine, timeout);
    return own_failure(comm, made.status, made.error);
}

ra_status ra_plan_build(ra_comm *comm, const ra_problem *problem, const ra_options *options, ra_plan **plan_out) {
    ra_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return ra_comm_lose(comm, ra_fail(RA_ERR_MEMORY, "rank %d: no memory for a plan", ra_comm_rank(comm)));
    plan->comm = comm;
    ra_status status = build_together(plan, problem, options, plan_out != NULL);
    if (status == RA_OK)
        *plan_out = plan;
    else
        ra_plan_dismantle(plan);
    return status;
}

/* A plan whose setup failed has no device, and nothing that belongs to one. */
void ra_plan_dismantle(ra_plan *plan) {
    const ra_device *device = ra_plan_device(plan);
    int previous, entered = device && ra_device_enter(device, &previous) == RA_OK;
    ra_pass_end_all(plan);
    if (plan->memory_is_ours && !ra_comm_holds_memory(plan->comm)) device->release(device, plan->memory);
    ra_program_release(&plan->forward);
    ra_program_release(&plan->backward);
    ra_upload_end(&plan->lists);
    if (plan->finished) device->event_destroy(device, plan->finished);
    if (entered) ra_device_leave(device, previous);
    ra_pool_free(&plan->pool);
    free(plan);
}
