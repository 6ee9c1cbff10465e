/* What ranks compare: seals tell every difference, the judge finds the right rank, and the sentence names the field. */
#include "support/cmocka.h"

#include "plan/digest.h"

#include <string.h>

static ra_setup plain_setup(ra_problem problem) {
    ra_setup setup;
    problem.seq_q = problem.seq_q ? problem.seq_q : 100;
    problem.heads_q = 4;
    problem.dim = 8;
    assert_int_equal(ra_setup_make(&problem, NULL, (ra_seat){0, 4, 1, 1}, &setup), RA_OK);
    return setup;
}

static int equal(ra_seal a, ra_seal b) {
    return a.status == b.status && a.hash[0] == b.hash[0] && a.hash[1] == b.hash[1];
}

static void test_every_field_is_in_the_seal(void **state) {
    (void)state;
    ra_setup setup = plain_setup((ra_problem)RA_PROBLEM_INIT);
    ra_digest digest = ra_digest_of(&setup);
    ra_seal seal = ra_digest_seal(&digest);
    for (int f = 0; f < RA_DIGEST_FIELDS; f++)
        for (int bit = 0; bit < 64; bit++) {
            ra_digest other = digest;
            other.fields[f] ^= (int64_t)((uint64_t)1 << bit);
            ra_seal others = ra_digest_seal(&other);
            assert_true(others.hash[0] != seal.hash[0] && others.hash[1] != seal.hash[1]);
        }
    assert_true(equal(ra_digest_seal(&digest), seal));
}

static void test_the_same_setup_has_the_same_seal(void **state) {
    (void)state;
    int64_t cuts[] = {0, 10, 100}, same[] = {0, 10, 100}, other[] = {0, 11, 100};
    ra_problem p = RA_PROBLEM_INIT;
    p.documents = 2;
    p.cu_seqlens_q = cuts;
    ra_setup setup = plain_setup(p);
    ra_digest a = ra_digest_of(&setup);
    p.cu_seqlens_q = same;
    setup = plain_setup(p);
    ra_digest b = ra_digest_of(&setup);
    p.cu_seqlens_q = other;
    setup = plain_setup(p);
    ra_digest c = ra_digest_of(&setup);
    assert_true(equal(ra_digest_seal(&a), ra_digest_seal(&b)));
    assert_false(equal(ra_digest_seal(&a), ra_digest_seal(&c)));
    setup.serial = 1;
    ra_digest d = ra_digest_of(&setup);
    assert_false(equal(ra_digest_seal(&c), ra_digest_seal(&d)));
}

static int64_t judge(const ra_seal *seals, int ranks) {
    int64_t culprit = 99;
    ra_seals_judge(seals, ranks, &culprit);
    return culprit;
}

static void test_the_judge(void **state) {
    (void)state;
    ra_seal seals[5];
    for (int r = 0; r < 5; r++) seals[r] = (ra_seal){.hash = {7, 8}};
    assert_int_equal(judge(seals, 5), -1);
    assert_int_equal(judge(seals, 1), -1);
    seals[3].hash[1]++;
    seals[4].hash[0]++;
    assert_int_equal(judge(seals, 5), 3);
    seals[4].status = RA_ERR_MEMORY;
    assert_int_equal(judge(seals, 5), 4);
    seals[0].status = RA_ERR_ARGUMENT;
    assert_int_equal(judge(seals, 5), 0);
    assert_int_equal(judge(seals, 1), 0);
}

static void expect_words(const char *const *words) {
    for (; *words; words++)
        if (!strstr(ra_last_error(), *words)) fail_msg("'%s' does not say '%s'", ra_last_error(), *words);
}

static void test_the_sentence(void **state) {
    (void)state;
    ra_problem p = RA_PROBLEM_INIT;
    ra_setup setup = plain_setup(p);
    ra_digest first = ra_digest_of(&setup);
    p.seq_q = 101;
    setup = plain_setup(p);
    ra_digest longer = ra_digest_of(&setup);
    ra_digest failed = ra_digest_of_failure(RA_ERR_MEMORY, "no memory for 17 bytes");
    assert_int_equal(ra_digest_explain(&first, &longer, 3, 2), RA_ERR_MISMATCH);
    expect_words((const char *const[]){"rank 2:", "seq_q is 101 on rank 3", "100 on rank 0", NULL});
    assert_int_equal(ra_digest_explain(&first, &failed, 3, 0), RA_ERR_MISMATCH);
    expect_words((const char *const[]){"rank 0:", "rank 3 could not make its plan", "no memory for 17 bytes", NULL});
    assert_int_equal(ra_digest_explain(&first, &first, 3, 0), RA_ERR_INTERNAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_field_is_in_the_seal),
        cmocka_unit_test(test_the_same_setup_has_the_same_seal),
        cmocka_unit_test(test_the_judge),
        cmocka_unit_test(test_the_sentence),
    };
    return cmocka_run_group_tests_name("digest", tests, NULL, NULL);
}
