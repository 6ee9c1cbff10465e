/* What ranks compare: seals tell every difference, the judge finds the right rank, and the sentence names the field. */
#include "support/cmocka.h"

#include "plan/digest.h"

#include <stdio.h>
#include <string.h>

static ra_setup plain_setup(ra_problem problem) {
    ra_setup setup;
    problem.seq_q = problem.seq_q ? problem.seq_q : 100;
    problem.heads_q = 4;
    problem.dim = 8;
    assert_int_equal(ra_setup_make(&problem, NULL, (ra_seat){0, 4, 1, 1, 0}, &setup), RA_OK);
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

/* A difference in one field of the problem, whichever, shows in the seal, and the sentence names that field. */
static void must_name(ra_problem base, ra_problem other, const char *field, const char *here, const char *there) {
    ra_setup setup = plain_setup(base), others = plain_setup(other);
    ra_digest first = ra_digest_of(&setup), second = ra_digest_of(&others);
    char sentence[128];
    if (here)
        snprintf(sentence, sizeof sentence, ": %s is %s on rank 1 and %s on rank 0;", field, here, there);
    else
        snprintf(sentence, sizeof sentence, ": rank 1 has another %s than rank 0;", field);
    assert_false(equal(ra_digest_seal(&first), ra_digest_seal(&second)));
    assert_int_equal(ra_digest_explain(&first, &second, 1, 2), RA_ERR_MISMATCH);
    if (!strstr(ra_last_error(), sentence)) fail_msg("'%s' does not say '%s'", ra_last_error(), sentence);
}

#define NAMED(base, field, value, here, there)                                                                         \
    do {                                                                                                               \
        ra_problem other = base;                                                                                       \
        other.field = value;                                                                                           \
        must_name(base, other, #field, here, there);                                                                   \
    } while (0)

static void test_every_field_of_the_problem_is_compared(void **state) {
    (void)state;
    static const int64_t one[] = {0, 10, 100}, another[] = {0, 90, 100};
    static const ra_branch branches[] = {{16, 2}, {64, 4}}, rates[] = {{16, 2}, {64, 8}};
    ra_problem plain = RA_PROBLEM_INIT, packed = plain, dilated = plain;
    plain.dtype = packed.dtype = dilated.dtype = RA_BF16;
    packed.documents = 2;
    packed.cu_seqlens_q = packed.cu_seqlens_k = one;
    dilated.branches = 2;
    dilated.dilated = branches;
    NAMED(plain, dtype, RA_F16, "f16", "bf16");
    NAMED(plain, out_dtype, RA_F32, "f32", "bf16");
    NAMED(plain, batch, 2, "2", "1");
    NAMED(plain, seq_k, 77, "77", "100");
    NAMED(plain, heads_kv, 2, "2", "4");
    NAMED(plain, dim_v, 5, "5", "8");
    NAMED(plain, scale, 0.5, "0.5", "0.35355339059327373");
    NAMED(plain, causal, 7, "1", "0");
    NAMED(plain, window_left, 3, "3", "-1");
    NAMED(plain, window_right, 3, "3", "-1");
    NAMED(packed, cu_seqlens_q, another, NULL, NULL);
    NAMED(packed, cu_seqlens_k, another, NULL, NULL);
    NAMED(dilated, branches, 1, "1", "2");
    NAMED(dilated, dilated, rates, NULL, NULL);
    NAMED(dilated, dilated_heads, RA_DILATED_GROUPS, "groups", "all");
    NAMED(dilated, dilated_offset, RA_DILATED_BLOCK, "block", "head");
    NAMED(dilated, dilated_combine, RA_DILATED_MEAN, "mean", "lse");
}

/* What does not matter to the schedule does not set ranks apart: a pointer to branches that are not there. */
static void test_what_is_not_looked_at_is_not_compared(void **state) {
    (void)state;
    static const ra_branch branches[] = {{16, 2}};
    ra_problem p = RA_PROBLEM_INIT, other = p;
    other.dilated = branches;
    other.dilated_combine = RA_DILATED_MEAN;
    ra_setup setup = plain_setup(p), others = plain_setup(other);
    ra_digest a = ra_digest_of(&setup), b = ra_digest_of(&others);
    assert_true(equal(ra_digest_seal(&a), ra_digest_seal(&b)));
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
        cmocka_unit_test(test_every_field_of_the_problem_is_compared),
        cmocka_unit_test(test_what_is_not_looked_at_is_not_compared),
        cmocka_unit_test(test_the_judge),
        cmocka_unit_test(test_the_sentence),
    };
    return cmocka_run_group_tests_name("digest", tests, NULL, NULL);
}
