/* Bytes and messages: what the transport was asked to send is what the plan said, for every rank and both passes; and
 * every layout and strategy gives the same answer. */
#include "support/cmocka.h"
#include "support/faults/faulty.h"
#include "support/problems/sweep.h"
#include "support/ranks.h"
#include "support/scale.h"

#include "plan/digest.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 8 };

typedef struct traffic_run {
    const sweep_data *data;
    sweep_result results[MOST];
} traffic_run;

static ra_status body(ra_comm *comm, void *user) {
    traffic_run *run = user;
    return sweep_run(comm, run->data, 1, &run->results[ra_comm_rank(comm)]);
}

/* What one allgather puts on the wire: everyone's to rank 0, all of it back. */
static void add_allgather(wire_count *count, int rank, int ranks, int64_t bytes) {
    if (ranks == 1) return;
    count->messages += rank == 0 ? ranks - 1 : 1;
    count->bytes += rank == 0 ? (ranks - 1) * ranks * bytes : bytes;
}

/* What the agreement on a plan does: everyone's seal to rank 0, one number back. */
static void add_agreement(wire_count *count, int rank, int ranks) {
    if (ranks == 1) return;
    count->messages += rank == 0 ? ranks - 1 : 1;
    count->bytes += rank == 0 ? (ranks - 1) * (int64_t)sizeof(int64_t) : (int64_t)sizeof(ra_seal);
}

static void check(const sweep_data *data, int ranks) {
    static traffic_run run;
    wire_count counts[MOST] = {{0}}, plain[MOST] = {{0}};
    rank_outcome outcomes[MOST];
    ra_comm *comms[MOST];
    run.data = data;
    assert_int_equal(fault_create(ranks, (fault){.kind = FAULT_NONE}, counts, comms), RA_OK);
    ranks_run(comms, ranks, body, &run, outcomes);
    ranks_destroy(comms, ranks);
    /* Beside the passes there are the plan's agreement and the sweep's comparison, an allgather: how many bytes it is
     * of is what rank 1 has left over. */
    int64_t left_bytes = 0;
    for (int r = 0; r < ranks; r++) {
        if (outcomes[r].status != RA_OK) fail_msg("rank %d: %s", r, outcomes[r].error);
        const ra_plan_info *info = &run.results[r].info;
        ra_plan_info predicted = RA_PLAN_INFO_INIT;
        assert_int_equal(ra_predict(&data->c->problem, &data->c->options, ranks, r, &predicted), RA_OK);
        assert_int_equal(predicted.forward.bytes_planned, info->forward.bytes_planned);
        assert_int_equal(predicted.backward.messages_planned, info->backward.messages_planned);
        assert_int_equal(predicted.workspace_bytes, info->workspace_bytes);
        assert_int_equal(predicted.pairs, info->pairs);
        plain[r].bytes = counts[r].bytes - info->forward.bytes_planned - info->backward.bytes_planned;
        plain[r].messages = counts[r].messages - info->forward.messages_planned - info->backward.messages_planned;
        if (r == 1) left_bytes = plain[r].bytes - (int64_t)sizeof(ra_seal);
    }
    for (int r = 0; r < ranks; r++) {
        wire_count want = {0};
        add_agreement(&want, r, ranks);
        add_allgather(&want, r, ranks, left_bytes);
        assert_int_equal(plain[r].bytes, want.bytes);
        assert_int_equal(plain[r].messages, want.messages);
    }
    assert_int_equal(run.results[0].traffic_differs, 0);
    assert_true(sweep_worst_abs(&run.results[0]) < 1e-11);
}

static void test_every_layout_and_strategy(void **state) {
    (void)state;
    for (uint64_t seed = 500; seed < 500 + scaled_count(12); seed++) {
        static test_case c;
        case_make(&c, seed, RA_F64, 2e6);
        sweep_data *data = sweep_data_make(&c);
        assert_non_null(data);
        for (int ranks = 1; ranks <= MOST; ranks++) {
            c.options.layout = RA_LAYOUT_AUTO;
            c.options.strategy = RA_STRATEGY_AUTO;
            check(data, ranks);
        }
        for (int layout = RA_LAYOUT_CONTIGUOUS; layout <= RA_LAYOUT_DOCUMENTS; layout++)
            for (int strategy = RA_STRATEGY_RING; strategy <= RA_STRATEGY_PASSQ; strategy++)
                for (int ranks = 1; ranks <= MOST; ranks += 2 + (seed & 1)) {
                    c.options.layout = (ra_layout)layout;
                    c.options.strategy = (ra_strategy)strategy;
                    check(data, ranks);
                }
        sweep_data_free(data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_layout_and_strategy)};
    return cmocka_run_group_tests_name("traffic", tests, NULL, NULL);
}
