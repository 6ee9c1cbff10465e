/* The lists of a plan: where those of each compute lie, that one copy brings all of them to the device, and that plans
 * made after one another ask for no memory. On the device of queues. */
#include "support/cmocka.h"
#include "support/queued/queued.h"
#include "support/queued/queued_stream.h"
#include "support/ranks.h"
#include "support/rng.h"

#include "base/status.h"
#include "exec/lists.h"
#include "exec/plan.h"

#include <stdlib.h>
#include <string.h>

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* A kernel that lists bytes. */
struct ra_prepared {
    ra_list_size size;
    unsigned char byte;
    unsigned char *lists, *counters;
    int places;
};

static ra_list_size list_size(const ra_prepared *prepared) {
    return prepared->size;
}

static void place(ra_prepared *prepared, void *lists, void *counters, void *lists_out) {
    prepared->lists = lists;
    prepared->counters = counters;
    prepared->places++;
    memset(lists_out, prepared->byte, prepared->size.lists);
}

enum { STEPS = 5, COMPUTES = 3, PREPARED = 2 * STEPS * COMPUTES };

/* A program with computes of random sizes, some of which have no tiles. */
typedef struct listed {
    ra_schedule schedule;
    ra_setup setup;
    ra_bound_step steps[STEPS];
    ra_bound_compute computes[STEPS][COMPUTES];
    ra_program program;
} listed;

static void make_program(listed *l, const ra_kernel *kernel, rng *r, ra_prepared *prepared, int *count) {
    memset(l, 0, sizeof *l);
    l->schedule.step_count = STEPS;
    l->setup.kernel = kernel;
    for (int s = 0; s < STEPS; s++) {
        l->steps[s].computes = l->computes[s];
        l->steps[s].compute_count = rng_between(r, 0, COMPUTES);
        for (int64_t i = 0; i < l->steps[s].compute_count; i++) {
            if (rng_one_in(r, 4)) continue;
            ra_prepared *p = &prepared[(*count)++];
            *p = (ra_prepared){.byte = (unsigned char)*count};
            if (!rng_one_in(r, 5)) p->size.lists = (size_t)rng_between(r, 1, 9000);
            if (!rng_one_in(r, 3)) p->size.counters = (size_t)rng_between(r, 1, 3000);
            l->computes[s][i].prepared = p;
        }
    }
    l->program = (ra_program){.schedule = &l->schedule, .steps = l->steps, .setup = &l->setup};
}

typedef struct range {
    const unsigned char *from, *to;
} range;

static int by_start(const void *a, const void *b) {
    const range *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : (x->to > y->to) - (x->to < y->to);
}

/* All in the block, aligned, and apart; the lists hold what was placed. */
static void check_places(const ra_prepared *prepared, int count, const ra_block *block) {
    range ranges[2 * PREPARED];
    for (int i = 0; i < count; i++) {
        const ra_prepared *p = &prepared[i];
        assert_int_equal(p->places, 1);
        assert_true((uintptr_t)p->lists % RA_LIST_ALIGNMENT == 0 && (uintptr_t)p->counters % RA_LIST_ALIGNMENT == 0);
        for (size_t b = 0; b < p->size.lists; b++) assert_int_equal(p->lists[b], p->byte);
        ranges[2 * i] = (range){p->lists, p->lists + p->size.lists};
        ranges[2 * i + 1] = (range){p->counters, p->counters + p->size.counters};
    }
    qsort(ranges, (size_t)(2 * count), sizeof *ranges, by_start);
    for (int i = 0; i < 2 * count; i++) {
        assert_true(ranges[i].from >= block->memory && ranges[i].to <= block->memory + block->bytes);
        assert_true(i == 0 || ranges[i].from >= ranges[i - 1].to);
    }
}

static void test_places(void **state) {
    (void)state;
    static const ra_kernel kernel = {.list_size = list_size, .place = place};
    queued_device *queued = queued_create((queued_habits){.seed = 2});
    const ra_device *device = queued_backend(queued)->device;
    ra_uploader *uploader = NULL;
    assert_int_equal(ra_uploader_find(&uploader, device, &uploader), RA_OK);
    for (uint64_t seed = 1; seed <= 40; seed++) {
        static listed forward, backward;
        static ra_prepared prepared[PREPARED];
        rng r = {seed};
        int count = 0;
        int64_t copies = queued_copies(queued);
        ra_upload upload = {0};
        make_program(&forward, &kernel, &r, prepared, &count);
        if (seed % 4)
            make_program(&backward, &kernel, &r, prepared, &count);
        else
            backward.program = (ra_program){0}; /* a plan for the forward pass alone */
        assert_int_equal(ra_lists_upload(uploader, &forward.program, &backward.program, &upload), RA_OK);
        queued_drain(uploader->stream);
        assert_int_equal(queued_copies(queued), copies + 1);
        check_places(prepared, count, upload.memory);
        ra_upload_end(&upload);
    }
    ra_uploaders_destroy(uploader);
    queued_destroy(queued);
}

static void test_nothing_to_upload(void **state) {
    (void)state;
    static const ra_kernel kernel = {.list_size = list_size, .place = place};
    queued_device *queued = queued_create((queued_habits){.seed = 2});
    ra_uploader *uploader = NULL;
    ra_prepared empty = {.byte = 1};
    static listed program;
    rng r = {1};
    int count = 0;
    static ra_prepared prepared[PREPARED];
    assert_int_equal(ra_uploader_find(&uploader, queued_backend(queued)->device, &uploader), RA_OK);
    make_program(&program, &kernel, &r, prepared, &count);
    for (int s = 0; s < STEPS; s++)
        for (int i = 0; i < COMPUTES; i++) program.computes[s][i].prepared = NULL;
    program.steps[0].compute_count = 1;
    program.computes[0][0].prepared = &empty;
    ra_program none = {0};
    ra_upload upload = {0};
    assert_int_equal(ra_lists_upload(uploader, &program.program, &none, &upload), RA_OK);
    assert_null(upload.memory);
    assert_int_equal(queued_copies(queued) + queued_memory_calls(queued), 0);
    ra_uploaders_destroy(uploader);
    queued_destroy(queued);
}

/* ---- plans for packings ------------------------------------------------------------------------------------------ */

enum { RANKS = 3, TOKENS = 3000, DOCUMENTS = 20, WARM = 3, PLANS = 20 };

typedef struct planning {
    queued_device *queued;
    int64_t memory_calls[RANKS][PLANS], copies[RANKS][PLANS]; /* before the plan of that number */
} planning;

/* Documents that end anywhere. */
static void pack(uint64_t seed, int64_t *cu) {
    rng r = {seed};
    for (int64_t d = 1; d < DOCUMENTS; d++)
        cu[d] = d * (TOKENS / DOCUMENTS) + rng_between(&r, 0, TOKENS / DOCUMENTS - 1);
    cu[0] = 0;
    cu[DOCUMENTS] = TOKENS;
}

/* All ranks have come to this point. */
static ra_status meet(ra_comm *comm) {
    char ready = 0, all[RANKS];
    return ra_comm_allgather(comm, &ready, 1, all, 60);
}

static ra_status plan_all(ra_comm *comm, void *user) {
    planning *j = user;
    int rank = ra_comm_rank(comm);
    int64_t cu[DOCUMENTS + 1];
    void *workspace = NULL;
    ra_problem p = RA_PROBLEM_INIT;
    ra_options o = RA_OPTIONS_INIT;
    p.seq_q = TOKENS, p.heads_q = 4, p.heads_kv = 2, p.dim = 16, p.causal = 1, p.documents = DOCUMENTS;
    p.cu_seqlens_q = cu;
    o.backend = queued_backend(j->queued), o.backward = 1, o.threads = 1, o.layout = RA_LAYOUT_DOCUMENTS;
    o.workspace_bytes = 16 << 20;
    RA_TRY(ra_backend_allocate(o.backend, o.workspace_bytes, &workspace));
    o.workspace = workspace;
    for (int i = 0; i < PLANS; i++) {
        ra_plan *plan = NULL;
        pack((uint64_t)i, cu);
        RA_TRY(meet(comm));
        j->memory_calls[rank][i] = queued_memory_calls(j->queued);
        j->copies[rank][i] = queued_copies(j->queued);
        RA_TRY(meet(comm));
        RA_TRY(ra_plan_create(comm, &p, &o, &plan));
        queued_drain(plan->lists.uploader->stream); /* else the next plan may find the pinned block in use */
        ra_plan_destroy(plan);
    }
    RA_TRY(meet(comm));
    ra_backend_release(o.backend, workspace);
    return RA_OK;
}

static void test_plans_after_the_first_ask_for_no_memory(void **state) {
    (void)state;
    static planning j;
    ra_comm *comms[RANKS];
    rank_outcome outcomes[RANKS];
    j = (planning){.queued = queued_create((queued_habits){.seed = 4})};
    assert_int_equal(ra_comm_create_threads(RANKS, comms), RA_OK);
    ranks_run(comms, RANKS, plan_all, &j, outcomes);
    for (int r = 0; r < RANKS; r++) {
        if (outcomes[r].status != RA_OK) fail_msg("rank %d: %s", r, outcomes[r].error);
        for (int i = 1; i < PLANS; i++) {
            assert_int_equal(j.copies[r][i] - j.copies[r][i - 1], RANKS); /* one a rank */
            if (i > WARM) assert_int_equal(j.memory_calls[r][i], j.memory_calls[r][WARM]);
        }
    }
    ranks_destroy(comms, RANKS);
    assert_int_equal(queued_bytes(j.queued), 0);
    assert_int_equal(queued_streams(j.queued), 0);
    queued_destroy(j.queued);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_nothing_to_upload),
        cmocka_unit_test(test_plans_after_the_first_ask_for_no_memory),
    };
    return cmocka_run_group_tests_name("lists", tests, NULL, NULL);
}
