/* ringattn plan: what every rank would hold, compute and send, from the library's predictions alone. */
#include "cli.h"
#include "options/cases.h"
#include "ranks/devices.h"
#include "report/json.h"
#include "report/picture.h"
#include "report/text.h"

#include <stdio.h>
#include <stdlib.h>

enum { SEQ_DEFAULT = 4096, RANKS_LISTED = 16 };

/* One rank, planned for the forward pass alone and for both. */
typedef struct rank_plan {
    ra_plan_info forward, both;
} rank_plan;

/* Over all ranks. */
typedef struct plan_sum {
    int64_t pairs, forward_bytes, backward_bytes;
} plan_sum;

typedef struct whole_plan {
    cli_case one;
    ra_problem problem;
    ra_options how, how_both;
    int backward;     /* asked for */
    rank_plan *rank;  /* [ranks] */
    double imbalance; /* most pairs of a rank over the mean */
    int64_t pairs;
    int has_dense;  /* it is dilated, and without that its pairs can be counted */
    plan_sum dense; /* the same problem without dilation on the same ranks */
} whole_plan;

static const ra_plan_info *chosen(const whole_plan *plan, int rank) {
    return plan->backward ? &plan->rank[rank].both : &plan->rank[rank].forward;
}

/* Q, K, V, O and LSE of one rank; with the backward pass dO, dQ, dK and dV too. */
static int64_t array_bytes(const whole_plan *plan, int rank) {
    const ra_problem *p = &plan->problem;
    const ra_plan_info *info = chosen(plan, rank);
    int64_t in = (int64_t)ra_dtype_bytes(p->dtype), out = (int64_t)ra_dtype_bytes(p->out_dtype);
    int64_t q = p->batch * info->rows_q * p->heads_q, k = p->batch * info->rows_k * p->heads_kv;
    int64_t bytes = q * (p->dim * in + p->dim_v * out + out) + k * (p->dim + p->dim_v) * in;
    if (plan->backward) bytes += q * (p->dim_v * in + p->dim * out) + k * (p->dim + p->dim_v) * out;
    return bytes;
}

static ra_status predict(whole_plan *plan) {
    int64_t most = 0;
    for (int r = 0; r < plan->one.ranks; ++r) {
        rank_plan *rank = &plan->rank[r];
        rank->forward = rank->both = (ra_plan_info)RA_PLAN_INFO_INIT;
        CLI_RETURN_ON_ERROR(ra_predict(&plan->problem, &plan->how, plan->one.ranks, r, &rank->forward));
        /* What "auto" means is found out once. */
        plan->how.layout = plan->how_both.layout = rank->forward.layout;
        plan->how.strategy = plan->how_both.strategy = rank->forward.strategy;
        CLI_RETURN_ON_ERROR(ra_predict(&plan->problem, &plan->how_both, plan->one.ranks, r, &rank->both));
        plan->pairs += rank->forward.pairs;
        if (rank->forward.pairs > most) most = rank->forward.pairs;
    }
    plan->imbalance = plan->pairs ? (double)most * plan->one.ranks / (double)plan->pairs : 1;
    return RA_OK;
}

/* What the dense problem would cost, cut in the same way; nothing where it is refused, as a billion tokens and several
 * heads are, whose pairs do not fit in 63 bits. */
static ra_status predict_dense(whole_plan *plan) {
    ra_problem problem = plan->problem;
    ra_options how = plan->how_both;
    problem.branches = 0;
    how.layout = plan->rank[0].forward.layout;
    how.strategy = plan->rank[0].forward.strategy;
    for (int r = 0; r < plan->one.ranks; ++r) {
        ra_plan_info info = RA_PLAN_INFO_INIT;
        ra_status status = ra_predict(&problem, &how, plan->one.ranks, r, &info);
        if (status == RA_ERR_ARGUMENT) return RA_OK;
        CLI_RETURN_ON_ERROR(status);
        plan->dense.pairs += info.pairs;
        plan->dense.forward_bytes += info.forward.bytes_planned;
        plan->dense.backward_bytes += info.backward.bytes_planned;
    }
    plan->has_dense = 1;
    return RA_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static void write_planned(json_writer *json, const char *key, const ra_traffic *traffic) {
    json_open(json, key, '{');
    json_int(json, "bytes_planned", traffic->bytes_planned);
    json_int(json, "messages_planned", traffic->messages_planned);
    json_close(json, '}');
}

static void write_rank(json_writer *json, const whole_plan *plan, int r) {
    const ra_plan_info *info = chosen(plan, r);
    json_open(json, NULL, '{');
    json_int(json, "rank", r);
    json_int(json, "tokens_q", info->rows_q);
    json_int(json, "tokens_k", info->rows_k);
    json_int(json, "pairs", info->pairs);
    json_int(json, "workspace_bytes", info->workspace_bytes);
    json_int(json, "kv_slot_bytes", info->kv_slot_bytes);
    json_int(json, "state_bytes", info->state_bytes);
    json_int(json, "grad_slot_bytes", info->grad_slot_bytes);
    json_int(json, "scratch_bytes", info->scratch_bytes);
    json_int(json, "workspace_bytes_forward", plan->rank[r].forward.workspace_bytes);
    json_int(json, "workspace_bytes_backward", plan->rank[r].both.workspace_bytes);
    json_int(json, "array_bytes", array_bytes(plan, r));
    json_int(json, "plan_bytes", info->plan_bytes);
    json_int(json, "steps_forward", plan->rank[r].both.steps_forward);
    json_int(json, "steps_backward", plan->rank[r].both.steps_backward);
    write_planned(json, "forward", &plan->rank[r].both.forward);
    write_planned(json, "backward", &plan->rank[r].both.backward);
    json_close(json, '}');
}

static void write_json(const whole_plan *plan) {
    const ra_plan_info *info = chosen(plan, 0);
    const cli_case *one = &plan->one;
    json_writer json = json_begin(stdout);
    json_open(&json, NULL, '{');
    json_text(&json, "version", ra_version());
    json_int(&json, "batch", one->batch);
    json_int(&json, "seq", one->seq_q);
    json_int(&json, "seq_k", one->seq_k);
    json_int(&json, "heads", one->heads_q);
    json_int(&json, "kv_heads", one->heads_kv);
    json_int(&json, "dim", one->dim);
    json_int(&json, "dim_v", one->dim_v);
    json_text(&json, "dtype", ra_dtype_name(one->dtype));
    json_bool(&json, "causal", plan->problem.causal);
    json_text(&json, "kernel", info->kernel);
    json_text(&json, "device", info->device);
    json_text(&json, "strategy", ra_strategy_name(info->strategy));
    json_text(&json, "layout", ra_layout_name(info->layout));
    json_int(&json, "pairs", plan->pairs);
    json_real(&json, "imbalance", plan->imbalance);
    if (plan->has_dense) {
        json_open(&json, "dense", '{');
        json_int(&json, "pairs", plan->dense.pairs);
        json_int(&json, "forward_bytes", plan->dense.forward_bytes);
        json_int(&json, "backward_bytes", plan->dense.backward_bytes);
        json_close(&json, '}');
    }
    json_open(&json, "ranks", '[');
    for (int r = 0; r < one->ranks; ++r) write_rank(&json, plan, r);
    json_close(&json, ']');
    json_close(&json, '}');
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

static void print_rank(const whole_plan *plan, int r) {
    const rank_plan *rank = &plan->rank[r];
    const ra_plan_info *info = chosen(plan, r);
    char text[7][TEXT_BYTES];
    printf("  %4d %9lld %9lld %9s %9s %9s %9s %9s %6lld %9s %6lld\n", r, (long long)info->rows_q,
           (long long)info->rows_k, text_count(info->pairs, text[0]), text_bytes(array_bytes(plan, r), text[1]),
           text_bytes(rank->forward.workspace_bytes, text[2]), text_bytes(rank->both.workspace_bytes, text[3]),
           text_bytes(rank->both.forward.bytes_planned, text[4]), (long long)rank->both.forward.messages_planned,
           text_bytes(rank->both.backward.bytes_planned, text[5]), (long long)rank->both.backward.messages_planned);
}

static void print_total(const whole_plan *plan) {
    int64_t forward = 0, backward = 0, messages_forward = 0, messages_backward = 0;
    char text[3][TEXT_BYTES];
    for (int r = 0; r < plan->one.ranks; ++r) {
        forward += plan->rank[r].both.forward.bytes_planned;
        backward += plan->rank[r].both.backward.bytes_planned;
        messages_forward += plan->rank[r].both.forward.messages_planned;
        messages_backward += plan->rank[r].both.backward.messages_planned;
    }
    printf("   all %9lld %9lld %9s %9s %9s %9s %9s %6lld %9s %6lld\n", (long long)plan->one.seq_q,
           (long long)plan->one.seq_k, text_count(plan->pairs, text[0]), "", "", "", text_bytes(forward, text[1]),
           (long long)messages_forward, text_bytes(backward, text[2]), (long long)messages_backward);
    if (plan->has_dense)
        printf(" dense %9s %9s %9s %9s %9s %9s %9s %6s %9s\n", "", "", text_count(plan->dense.pairs, text[0]), "", "",
               "", text_bytes(plan->dense.forward_bytes, text[1]), "", text_bytes(plan->dense.backward_bytes, text[2]));
    printf("\n  imbalance (most pairs of a rank / mean): %.3f\n\n", plan->imbalance);
}

static void print_tables(const whole_plan *plan) {
    const ra_plan_info *info = chosen(plan, 0);
    const cli_case *one = &plan->one;
    printf("q [%lld, %lld, %lld, %lld]  k [%lld, %lld, %lld, %lld]  v dim %lld  %s%s\n", (long long)one->batch,
           (long long)one->seq_q, (long long)one->heads_q, (long long)one->dim, (long long)one->batch,
           (long long)one->seq_k, (long long)one->heads_kv, (long long)one->dim, (long long)one->dim_v,
           ra_dtype_name(one->dtype), plan->problem.causal ? "  causal" : "");
    printf("%d rank%s, strategy %s, layout %s, kernel %s on %s\n\n", one->ranks, one->ranks == 1 ? "" : "s",
           ra_strategy_name(info->strategy), ra_layout_name(info->layout), info->kernel, info->device);
    printf("  %4s %9s %9s %9s %9s %9s %9s %9s %6s %9s %6s\n", "", "", "", "", "", "workspace", "workspace", "forward",
           "", "backward", "");
    printf("  %4s %9s %9s %9s %9s %9s %9s %9s %6s %9s %6s\n", "rank", "queries", "keys", "pairs", "arrays", "forward",
           "both", "bytes", "msgs", "bytes", "msgs");
    for (int r = 0; r < one->ranks && r < RANKS_LISTED; ++r) print_rank(plan, r);
    if (one->ranks > RANKS_LISTED) printf("   ... and %d more ranks; --json lists all\n", one->ranks - RANKS_LISTED);
    print_total(plan);
}

static ra_status print_text(const whole_plan *plan) {
    print_tables(plan);
    CLI_RETURN_ON_ERROR(picture_print(stdout, &plan->problem, &plan->how, plan->one.ranks, RA_FORWARD));
    if (!plan->backward) return RA_OK;
    return picture_print(stdout, &plan->problem, &plan->how_both, plan->one.ranks, RA_BACKWARD);
}

ra_status cli_plan(const cli_options *options) {
    whole_plan plan = {.one = cases_at(options, 0, SEQ_DEFAULT, 1), .backward = options->backward};
    CLI_RETURN_ON_ERROR(cases_problem(options, &plan.one, &plan.problem));
    plan.how = cases_options(options, &plan.one, 0);
    plan.how_both = cases_options(options, &plan.one, 1);
    CLI_RETURN_ON_ERROR(devices_choose(options, 0, &plan.how));
    CLI_RETURN_ON_ERROR(devices_choose(options, 0, &plan.how_both));
    plan.rank = calloc((size_t)plan.one.ranks, sizeof *plan.rank);
    if (!plan.rank) return ra_fail(RA_ERR_MEMORY, "--ranks: no memory for %d plans", plan.one.ranks);
    ra_status status = predict(&plan);
    if (status == RA_OK && plan.problem.branches > 0) status = predict_dense(&plan);
    if (status == RA_OK && options->json) write_json(&plan);
    if (status == RA_OK && !options->json) status = print_text(&plan);
    free(plan.rank);
    return status;
}
