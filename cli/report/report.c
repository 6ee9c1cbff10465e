#include "report/report.h"

#include "cli.h"

#include <math.h>

ra_status report_gather(ra_comm *comm, const ra_plan *plan, rank_report *mine, double timeout_seconds,
                        rank_report *all_out, ra_plan_info *info_out) {
    *info_out = (ra_plan_info)RA_PLAN_INFO_INIT;
    CLI_RETURN_ON_ERROR(ra_plan_describe(plan, info_out));
    mine->rank = info_out->rank;
    mine->tokens_q = info_out->rows_q;
    mine->tokens_k = info_out->rows_k;
    mine->pairs = info_out->pairs;
    mine->workspace_bytes = info_out->workspace_bytes;
    mine->forward = info_out->forward;
    mine->backward = info_out->backward;
    return ra_comm_allgather(comm, mine, sizeof *mine, all_out, timeout_seconds);
}

void report_traffic(json_writer *json, const char *key, const ra_traffic *traffic) {
    json_open(json, key, '{');
    json_int(json, "bytes_sent", traffic->bytes_sent);
    json_int(json, "messages_sent", traffic->messages_sent);
    json_int(json, "bytes_planned", traffic->bytes_planned);
    json_int(json, "messages_planned", traffic->messages_planned);
    json_close(json, '}');
}

/* A pass is over when its slowest rank is. */
static void write_seconds(json_writer *json, const run_report *report) {
    double plan = 0, forward = 0, backward = 0;
    for (int r = 0; r < report->ranks; ++r) {
        plan = fmax(plan, report->rank[r].seconds_plan);
        forward = fmax(forward, report->rank[r].seconds_forward);
        backward = fmax(backward, report->rank[r].seconds_backward);
    }
    json_open(json, "seconds", '{');
    json_real(json, "plan", plan);
    json_real(json, "forward", forward);
    json_real(json, "backward", backward);
    json_close(json, '}');
}

static void write_rank(json_writer *json, const rank_report *rank) {
    json_open(json, NULL, '{');
    json_int(json, "rank", rank->rank);
    json_int(json, "tokens_q", rank->tokens_q);
    json_int(json, "tokens_k", rank->tokens_k);
    json_int(json, "pairs", rank->pairs);
    json_int(json, "workspace_bytes", rank->workspace_bytes);
    json_int(json, "array_bytes", rank->array_bytes);
    report_traffic(json, "forward", &rank->forward);
    report_traffic(json, "backward", &rank->backward);
    json_close(json, '}');
}

void report_write(FILE *file, const run_report *report) {
    json_writer json = json_begin(file);
    json_open(&json, NULL, '{');
    json_text(&json, "version", ra_version());
    json_text(&json, "kernel", report->kernel);
    json_text(&json, "transport", report->transport);
    json_text(&json, "strategy", ra_strategy_name(report->strategy));
    json_text(&json, "layout", ra_layout_name(report->layout));
    json_text(&json, "device", report->device);
    json_text(&json, "dtype", ra_dtype_name(report->dtype));
    write_seconds(&json, report);
    if (report->checked) {
        json_open(&json, "check", '{');
        json_int(&json, "elements", report->checked->count);
        json_real(&json, "max_abs_error", report->checked->max_abs);
        json_real(&json, "relative_error", deviation_relative(report->checked));
        json_close(&json, '}');
    }
    json_open(&json, "ranks", '[');
    for (int r = 0; r < report->ranks; ++r) write_rank(&json, &report->rank[r]);
    json_close(&json, ']');
    json_close(&json, '}');
}
