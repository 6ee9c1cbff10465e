#include "support/cmocka.h"

#include "core/problem_fields.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static ra_problem good(void) {
    ra_problem p = RA_PROBLEM_INIT;
    p.seq_q = 10;
    p.heads_q = 4;
    p.dim = 16;
    return p;
}

static void refused(ra_problem p, const char *word) {
    ra_problem out;
    assert_int_not_equal(ra_problem_normalise(&p, &out), RA_OK);
    if (!strstr(ra_last_error(), word)) fail_msg("'%s' does not name %s", ra_last_error(), word);
}

static void test_defaults(void **state) {
    (void)state;
    ra_problem p = good(), n;
    assert_int_equal(ra_problem_normalise(&p, &n), RA_OK);
    assert_int_equal(n.batch, 1);
    assert_int_equal(n.seq_k, 10);
    assert_int_equal(n.heads_kv, 4);
    assert_int_equal(n.dim_v, 16);
    assert_true(n.scale == 0.25);
    assert_int_equal(n.window_left, -1);
    assert_int_equal(n.window_right, -1);
    assert_int_equal(n.documents, 1);
    assert_int_equal(n.out_dtype, RA_F32);
}

/* The list of fields has them all, in order: nothing but padding lies between one and the next. */
static void test_the_list_of_fields_is_whole(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t offset, bytes;
    } fields[] = {
#define PLACE(kind, field, ...) {#field, offsetof(ra_problem, field), sizeof(((ra_problem *)0)->field)},
        RA_PROBLEM_FIELDS(PLACE)
#undef PLACE
    };
    size_t end = offsetof(ra_problem, initialised) + sizeof(int);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].offset < end || fields[i].offset - end >= fields[i].bytes)
            fail_msg("something is missing before %s", fields[i].name);
        end = fields[i].offset + fields[i].bytes;
    }
    assert_true(sizeof(ra_problem) - end < sizeof(int64_t));
}

static void test_a_zero_scale_can_be_asked_for(void **state) {
    (void)state;
    ra_problem p = good(), n;
    p.scale = 0;
    assert_int_equal(ra_problem_normalise(&p, &n), RA_OK);
    assert_true(n.scale == 0);
}

static void test_doubles_may_have_any_finite_scale(void **state) {
    (void)state;
    static const double scales[] = {1e39, -1e39, 1e-50};
    for (int i = 0; i < 3; i++) {
        ra_problem p = good(), n;
        p.dtype = RA_F64;
        p.scale = scales[i];
        assert_int_equal(ra_problem_normalise(&p, &n), RA_OK);
        assert_true(n.scale == scales[i]);
    }
}

#define REFUSED(field, value, word)                                                                                    \
    do {                                                                                                               \
        ra_problem p = good();                                                                                         \
        p.field = value;                                                                                               \
        refused(p, word);                                                                                              \
    } while (0)

static void test_refusals(void **state) {
    (void)state;
    REFUSED(struct_size, 0, "struct_size");
    REFUSED(struct_size, sizeof(ra_problem) + 8, "struct_size");
    REFUSED(dtype, (ra_dtype)9, "dtype");
    REFUSED(seq_q, 0, "seq_q");
    REFUSED(seq_q, -5, "seq_q");
    REFUSED(seq_k, -1, "seq_k");
    REFUSED(seq_q, RA_MAX_LENGTH + 1, "seq_q");
    REFUSED(batch, -1, "batch");
    REFUSED(heads_q, 0, "heads_q");
    REFUSED(heads_kv, 3, "heads_kv");
    REFUSED(heads_kv, 8, "heads_kv");
    REFUSED(dim, 0, "dim");
    REFUSED(dim, 257, "dim");
    REFUSED(dim_v, 257, "dim_v");
    REFUSED(scale, NAN, "scale");
    REFUSED(scale, INFINITY, "scale");
    REFUSED(scale, 1e39, "scale");
    REFUSED(scale, -1e39, "scale");
    REFUSED(scale, 1e-50, "scale");
    REFUSED(scale, 1e-40, "scale"); /* not normal: some machines would take it for 0 */
    REFUSED(documents, 2, "cu_seqlens_q");
    ra_problem p = good();
    p.window_left = -2;
    refused(p, "window");
    p = good();
    p.seq_q = p.seq_k = RA_MAX_LENGTH;
    refused(p, "too large");
    p = good();
    p.out_dtype = RA_BF16;
    refused(p, "out_dtype");
}

static void taken(ra_problem p) {
    ra_problem out;
    if (ra_problem_normalise(&p, &out) != RA_OK) fail_msg("%s", ra_last_error());
}

/* What is refused is more pairs than can be counted, not long sequences. */
static void test_long_sequences(void **state) {
    (void)state;
    static const ra_branch branches[] = {{4096, 1}, {1 << 20, 256}};
    static const int64_t cu[] = {0, 1 << 30, (int64_t)1 << 31};
    ra_problem p = good();
    p.seq_q = (int64_t)1 << 31;
    p.heads_q = 1;
    refused(p, "too large");
    p.window_left = 10;
    p.window_right = -1;
    refused(p, "too large");
    p.causal = 1;
    taken(p);
    p.heads_q = 32;
    taken(p);
    p = good();
    p.seq_q = 1 << 30;
    refused(p, "too large"); /* four heads */
    p.branches = 2;
    p.dilated = branches;
    taken(p);
    p = good();
    p.seq_q = (int64_t)1 << 31;
    p.heads_q = 1;
    p.documents = 2;
    p.cu_seqlens_q = cu;
    taken(p);
    p.heads_q = 2;
    refused(p, "too large");
}

static void test_document_refusals(void **state) {
    (void)state;
    static const int64_t start[] = {1, 5, 10}, down[] = {0, 7, 5, 10}, end[] = {0, 5, 9}, fine[] = {0, 5, 10};
    static const int64_t empty[] = {0, 5, 5, 10};
    ra_problem p = good(), n;
    p.documents = 2;
    p.cu_seqlens_q = start;
    refused(p, "start at 0");
    p.cu_seqlens_q = end;
    refused(p, "end at");
    p.cu_seqlens_q = fine;
    p.batch = 2;
    refused(p, "batch");
    p.batch = 1;
    p.seq_k = 12;
    refused(p, "cu_seqlens_k");
    static const int64_t one[] = {0, 10};
    p.documents = 1;
    p.cu_seqlens_q = one;
    assert_int_equal(ra_problem_normalise(&p, &n), RA_OK); /* one document has all keys */
    assert_int_equal(ra_problem_document(&n, 0).k1, 12);
    p.documents = 2;
    p.cu_seqlens_q = NULL;
    p.cu_seqlens_k = fine;
    refused(p, "cu_seqlens_q");
    p = good();
    p.documents = 3;
    p.cu_seqlens_q = down;
    refused(p, "decrease");
    p.cu_seqlens_q = empty;
    assert_int_equal(ra_problem_normalise(&p, &n), RA_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_the_list_of_fields_is_whole),
        cmocka_unit_test(test_a_zero_scale_can_be_asked_for),
        cmocka_unit_test(test_doubles_may_have_any_finite_scale),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_long_sequences),
        cmocka_unit_test(test_document_refusals),
    };
    return cmocka_run_group_tests_name("problem", tests, NULL, NULL);
}
