/* What planning costs, counted and not timed, and what it does when there is no memory. The linker puts the functions
 * below before those of the library (tests/CMakeLists.txt). */
#include "support/cmocka.h"

#include "core/rowset.h"

#include <stdlib.h>

/* ---- between planning and what it asks for ----------------------------------------------------------------------- */

/* Looks: how often two ranks' contacts, a rank's sights or a range of ranks' hints were asked for. */
static int64_t looks;

/* Allocations that succeed before one fails; negative: none fails. */
static int64_t allocations_left = -1;

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size) {
    if (allocations_left < 0) return __real_calloc(count, size);
    return allocations_left-- > 0 ? __real_calloc(count, size) : NULL;
}

ra_status __real_ra_pattern_contacts_of(const ra_cut_problem *cut, int q_rank, int k_rank, ra_head_range heads,
                                        ra_contact_emit emit, void *user);
ra_status __wrap_ra_pattern_contacts_of(const ra_cut_problem *cut, int q_rank, int k_rank, ra_head_range heads,
                                        ra_contact_emit emit, void *user);
ra_status __wrap_ra_pattern_contacts_of(const ra_cut_problem *cut, int q_rank, int k_rank, ra_head_range heads,
                                        ra_contact_emit emit, void *user) {
    looks++;
    return __real_ra_pattern_contacts_of(cut, q_rank, k_rank, heads, emit, user);
}

ra_status __real_ra_pattern_sights(const ra_cut_problem *cut, int q_rank, ra_head_range heads, ra_sight_emit emit,
                                   void *user);
ra_status __wrap_ra_pattern_sights(const ra_cut_problem *cut, int q_rank, ra_head_range heads, ra_sight_emit emit,
                                   void *user);
ra_status __wrap_ra_pattern_sights(const ra_cut_problem *cut, int q_rank, ra_head_range heads, ra_sight_emit emit,
                                   void *user) {
    looks++;
    return __real_ra_pattern_sights(cut, q_rank, heads, emit, user);
}

ra_status __real_ra_pattern_hints(const ra_cut_problem *cut, int from, int to, int k_rank, ra_head_range heads,
                                  ra_sight_emit emit, void *user);
ra_status __wrap_ra_pattern_hints(const ra_cut_problem *cut, int from, int to, int k_rank, ra_head_range heads,
                                  ra_sight_emit emit, void *user);
ra_status __wrap_ra_pattern_hints(const ra_cut_problem *cut, int from, int to, int k_rank, ra_head_range heads,
                                  ra_sight_emit emit, void *user) {
    looks++;
    return __real_ra_pattern_hints(cut, from, to, k_rank, heads, emit, user);
}

/* ---- what it costs ----------------------------------------------------------------------------------------------- */

static ra_problem problem_of(int64_t seq) {
    ra_problem p = RA_PROBLEM_INIT;
    p.seq_q = seq;
    p.heads_q = 4;
    p.dim = 64;
    p.causal = 1;
    return p;
}

/* Looks that planning both passes takes a rank. */
static int64_t looks_of(const ra_problem *p, ra_layout layout, ra_strategy strategy, int ranks) {
    ra_options o = RA_OPTIONS_INIT;
    ra_plan_info info = RA_PLAN_INFO_INIT;
    o.layout = layout;
    o.strategy = strategy;
    o.backward = 1;
    looks = 0;
    assert_int_equal(ra_predict(p, &o, ranks, ranks / 3, &info), RA_OK);
    assert_true(looks > 0);
    return looks;
}

/* Twice the ranks take about twice the looks, and no rank takes more than so many for each other rank. */
static void check_growth(const ra_problem *p, ra_layout layout, ra_strategy strategy, int64_t most) {
    int64_t some = looks_of(p, layout, strategy, 256), twice = looks_of(p, layout, strategy, 512);
    if (twice > 5 * some / 2 || some > most * 256 || twice > most * 512)
        fail_msg("%s, %s: %lld looks on 256 ranks, %lld on 512", ra_layout_name(layout), ra_strategy_name(strategy),
                 (long long)some, (long long)twice);
}

static void test_looks_grow_with_ranks(void **state) {
    (void)state;
    ra_problem causal = problem_of(1 << 20), full = causal, window = causal;
    full.causal = 0;
    window.window_left = 4096;
    window.window_right = 0;
    check_growth(&causal, RA_LAYOUT_AUTO, RA_STRATEGY_AUTO, 20);
    check_growth(&full, RA_LAYOUT_AUTO, RA_STRATEGY_AUTO, 40);
    check_growth(&window, RA_LAYOUT_AUTO, RA_STRATEGY_AUTO, 40);
    for (int layout = RA_LAYOUT_CONTIGUOUS; layout <= RA_LAYOUT_DOCUMENTS; layout++)
        for (int strategy = RA_STRATEGY_RING; strategy <= RA_STRATEGY_ALLGATHER; strategy++)
            check_growth(&causal, (ra_layout)layout, (ra_strategy)strategy, 60);
}

static void test_documents_and_branches(void **state) {
    (void)state;
    enum { DOCUMENTS = 2000 };
    static int64_t cu[DOCUMENTS + 1];
    static const ra_branch branches[] = {{2048, 1}, {16384, 8}, {131072, 64}};
    ra_problem packed = problem_of(1 << 20), dilated = packed;
    for (int64_t d = 1; d < DOCUMENTS; d++) cu[d] = packed.seq_q * d / DOCUMENTS + d * 37 % 211;
    cu[DOCUMENTS] = packed.seq_q;
    packed.documents = DOCUMENTS;
    packed.cu_seqlens_q = cu;
    dilated.branches = 3;
    dilated.dilated = branches;
    check_growth(&packed, RA_LAYOUT_AUTO, RA_STRATEGY_AUTO, 60);
    check_growth(&dilated, RA_LAYOUT_AUTO, RA_STRATEGY_AUTO, 200);
}

/* Where each rank meets each other in every document, a ring still looks at each other rank a few times, not at each
 * pair of others. */
static void test_documents_in_bits_on_the_ring(void **state) {
    (void)state;
    enum { DOCUMENTS = 100 };
    static int64_t cu[DOCUMENTS + 1];
    ra_problem packed = problem_of(1 << 15);
    for (int64_t d = 1; d < DOCUMENTS; d++) cu[d] = packed.seq_q * d / DOCUMENTS + d * 37 % 211;
    cu[DOCUMENTS] = packed.seq_q;
    packed.documents = DOCUMENTS;
    packed.cu_seqlens_q = cu;
    check_growth(&packed, RA_LAYOUT_DOCUMENTS, RA_STRATEGY_RING, 2);
    check_growth(&packed, RA_LAYOUT_STRIPED, RA_STRATEGY_RING, 2);
}

/* The layout alone needs each rank's load in each layout, and no strategy. */
static void test_resolving_a_layout_chooses_no_strategy(void **state) {
    (void)state;
    ra_problem causal = problem_of(1 << 20);
    ra_layout layout;
    looks = 0;
    assert_int_equal(ra_layout_resolve(&causal, NULL, 64, &layout), RA_OK);
    assert_true(looks <= 2 * 3 * 64);
}

/* Layouts that are no better than the first are not looked at rank by rank, also where they are as good: in documents
 * of one token nobody sees anything of others. */
static void test_layouts_as_good_as_the_first(void **state) {
    (void)state;
    enum { DOCUMENTS = 1 << 14, RANKS = 512 };
    static int64_t cu[DOCUMENTS + 1];
    ra_problem single = problem_of(DOCUMENTS);
    ra_layout layout;
    for (int64_t d = 0; d <= DOCUMENTS; d++) cu[d] = d;
    single.documents = DOCUMENTS;
    single.cu_seqlens_q = cu;
    looks = 0;
    assert_int_equal(ra_layout_resolve(&single, NULL, RANKS, &layout), RA_OK);
    assert_int_equal(layout, RA_LAYOUT_CONTIGUOUS);
    assert_true(looks < 2 * RANKS);
}

/* ---- want of memory ---------------------------------------------------------------------------------------------- */

/* Whichever allocation fails, the rank learns that there was no memory: it never chooses something else instead. */
static void test_want_of_memory_is_reported(void **state) {
    (void)state;
    static const int64_t cu[] = {0, 100, 700, 701, 1500, 2048};
    ra_problem problems[3] = {problem_of(2048), problem_of(2048), problem_of(2048)};
    problems[1].documents = 5;
    problems[1].cu_seqlens_q = cu;
    problems[2].causal = 0; /* the ring sends no more, which only the sums of all ranks show */
    for (int i = 0; i < 3; i++) {
        ra_plan_info want = RA_PLAN_INFO_INIT, info = RA_PLAN_INFO_INIT;
        int64_t before = 0;
        assert_int_equal(ra_predict(&problems[i], NULL, 6, 2, &want), RA_OK);
        for (int failed = 1; failed; before++) {
            allocations_left = before;
            ra_status status = ra_predict(&problems[i], NULL, 6, 2, &info);
            failed = allocations_left < 0;
            allocations_left = -1;
            assert_int_equal(status, failed ? RA_ERR_MEMORY : RA_OK);
        }
        assert_true(before > 10); /* choosing allocates, and so does the schedule */
        assert_int_equal(info.layout, want.layout);
        assert_int_equal(info.strategy, want.strategy);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_looks_grow_with_ranks),
        cmocka_unit_test(test_documents_and_branches),
        cmocka_unit_test(test_documents_in_bits_on_the_ring),
        cmocka_unit_test(test_resolving_a_layout_chooses_no_strategy),
        cmocka_unit_test(test_layouts_as_good_as_the_first),
        cmocka_unit_test(test_want_of_memory_is_reported),
    };
    return cmocka_run_group_tests_name("planning", tests, NULL, NULL);
}
