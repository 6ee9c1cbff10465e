/* What a run did: gathered from the ranks, written as JSON. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include "report/json.h"
#include "tensors/compare.h"

#include <ringattn/ringattn.h>

/* What one rank did: plain data, sent between ranks as it stands. */
typedef struct rank_report {
    int64_t rank, tokens_q, tokens_k, pairs;
    int64_t workspace_bytes, array_bytes;
    int64_t check_rows; /* that it was asked to have checked; not written */
    ra_traffic forward, backward;
    double seconds_plan, seconds_forward, seconds_backward;
} rank_report;

/* What is the same on every rank. */
typedef struct run_report {
    const char *kernel, *transport, *device;
    ra_strategy strategy;
    ra_layout layout;
    ra_dtype dtype;
    int ranks;
    const rank_report *rank;  /* [ranks] */
    const deviation *checked; /* NULL: nothing was */
} run_report;

/* Collective: all_out [ranks]. mine: what this rank's plan does not know, which is filled in. */
ra_status report_gather(ra_comm *comm, const ra_plan *plan, rank_report *mine, double timeout_seconds,
                        rank_report *all_out, ra_plan_info *info_out);

void report_write(FILE *file, const run_report *report);

/* {"bytes_sent": ...} of one pass. */
void report_traffic(json_writer *json, const char *key, const ra_traffic *traffic);

#endif
