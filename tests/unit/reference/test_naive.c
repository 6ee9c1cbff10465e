/* The naive reference against the golden files, which the oracle made; and its refusals. */
#include "support/cmocka.h"
#include "support/problems/npy.h"

#include <ringattn/ringattn.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { Q, K, V, DOUT, O, LSE, DQ, DK, DV, ARRAYS, MAX_DOCUMENTS = 32 };

static const char *const names[ARRAYS] = {"q", "k", "v", "dout", "o", "lse", "dq", "dk", "dv"};

typedef struct golden {
    ra_problem problem;
    int64_t cu_q[MAX_DOCUMENTS], cu_k[MAX_DOCUMENTS];
    ra_branch branches[MAX_DOCUMENTS];
    test_npy array[ARRAYS];
} golden;

/* A file in tests/golden, which is found from where this source stands. */
static void golden_path(char *path, size_t bytes, const char *folder, const char *file) {
    const char *here = __FILE__;
    const char *end = strstr(here, "unit/reference/test_naive.c");
    assert_non_null(end);
    snprintf(path, bytes, "%.*sgolden/%s/%s", (int)(end - here), here, folder, file);
}

/* "0,5,9" -> count */
static int64_t parse_list(const char *text, int64_t *list) {
    int64_t count = 0;
    for (char *end; *text; text = *end == ',' ? end + 1 : end) {
        assert_true(count < MAX_DOCUMENTS);
        list[count++] = strtoll(text, &end, 10);
        assert_true(end != text);
    }
    return count;
}

/* "4:1,8:2" */
static void parse_branches(golden *g, const char *text) {
    for (char *end; *text; text = *end == ',' ? end + 1 : end) {
        ra_branch *branch = &g->branches[g->problem.branches++];
        assert_true(g->problem.branches <= MAX_DOCUMENTS);
        branch->segment = strtoll(text, &end, 10);
        assert_true(*end == ':');
        branch->rate = strtoll(end + 1, &end, 10);
    }
    g->problem.dilated = g->branches;
}

static void parse_flag(golden *g, const char *flag) {
    int64_t window[MAX_DOCUMENTS];
    if (strcmp(flag, "--causal") == 0) {
        g->problem.causal = 1;
        return;
    }
    const char *value = strtok(NULL, " \n");
    assert_non_null(value);
    if (strcmp(flag, "--window") == 0) {
        assert_int_equal(parse_list(value, window), 2);
        g->problem.window_left = window[0];
        g->problem.window_right = window[1];
    } else if (strcmp(flag, "--cu-seqlens") == 0) {
        g->problem.documents = parse_list(value, g->cu_q) - 1;
        g->problem.cu_seqlens_q = g->cu_q;
    } else if (strcmp(flag, "--cu-seqlens-k") == 0) {
        assert_int_equal(parse_list(value, g->cu_k) - 1, g->problem.documents);
        g->problem.cu_seqlens_k = g->cu_k;
    } else if (strcmp(flag, "--scale") == 0) {
        g->problem.scale = strtod(value, NULL);
    } else if (strcmp(flag, "--dilated") == 0) {
        parse_branches(g, value);
    } else if (strcmp(flag, "--dilated-heads") == 0) {
        assert_int_equal(ra_dilated_heads_parse(value, &g->problem.dilated_heads), RA_OK);
    } else if (strcmp(flag, "--dilated-offset") == 0) {
        assert_int_equal(ra_dilated_offset_parse(value, &g->problem.dilated_offset), RA_OK);
    } else if (strcmp(flag, "--dilated-combine") == 0) {
        assert_int_equal(ra_dilated_combine_parse(value, &g->problem.dilated_combine), RA_OK);
    } else {
        fail_msg("cases.txt has an unknown flag %s", flag);
    }
}

static void load_arrays(golden *g, const char *name) {
    for (int i = 0; i < ARRAYS; i++) {
        char path[4096], file[16];
        snprintf(file, sizeof file, "%s.npy", names[i]);
        golden_path(path, sizeof path, name, file);
        const char *wrong = test_npy_read(path, &g->array[i]);
        if (wrong) fail_msg("%s: %s", path, wrong);
    }
    g->problem.dtype = RA_F64;
    g->problem.batch = g->array[Q].shape[0];
    g->problem.seq_q = g->array[Q].shape[1];
    g->problem.heads_q = g->array[Q].shape[2];
    g->problem.dim = g->array[Q].shape[3];
    g->problem.seq_k = g->array[K].shape[1];
    g->problem.heads_kv = g->array[K].shape[2];
    g->problem.dim_v = g->array[V].shape[3];
}

static void compare(const char *name, const char *array, const double *got, const test_npy *want) {
    for (int64_t i = 0; i < want->count; i++) {
        double x = got[i], y = want->data[i];
        if (x == y || fabs(x - y) <= 1e-13 * (1 + fabs(y))) continue;
        fail_msg("%s: %s[%lld] is %.17g, the oracle has %.17g", name, array, (long long)i, x, y);
    }
}

/* Every row by itself gives what the whole call gives. */
static void check_rows(golden *g, const double *o, const double *lse) {
    double row[256], row_lse;
    ra_problem *p = &g->problem;
    for (int64_t i = 0; i < p->seq_q; i += 3) {
        int64_t b = i % p->batch, h = i % p->heads_q;
        assert_int_equal(
            RA_OK, ra_reference_row(p, g->array[Q].data, g->array[K].data, g->array[V].data, b, h, i, row, &row_lse));
        assert_true(row_lse == lse[(b * p->heads_q + h) * p->seq_q + i]);
        assert_memory_equal(row, o + ((b * p->seq_q + i) * p->heads_q + h) * p->dim_v,
                            (size_t)p->dim_v * sizeof(double));
    }
}

static void check_case(golden *g, const char *name) {
    double *result[ARRAYS] = {0};
    for (int i = O; i < ARRAYS; i++) {
        result[i] = malloc((size_t)g->array[i].count * sizeof(double));
        assert_non_null(result[i]);
    }
    ra_status status = ra_reference(&g->problem, g->array[Q].data, g->array[K].data, g->array[V].data,
                                    g->array[DOUT].data, result[O], result[LSE], result[DQ], result[DK], result[DV]);
    if (status != RA_OK) fail_msg("%s: %s", name, ra_last_error());
    for (int i = O; i < ARRAYS; i++) compare(name, names[i], result[i], &g->array[i]);
    check_rows(g, result[O], result[LSE]);
    for (int i = O; i < ARRAYS; i++) free(result[i]);
}

static void test_golden(void **state) {
    (void)state;
    char path[4096], line[512];
    int cases = 0;
    golden_path(path, sizeof path, ".", "cases.txt");
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("cannot open %s", path);
    for (; fgets(line, sizeof line, file); cases++) {
        golden g = {.problem = RA_PROBLEM_INIT};
        const char *name = strtok(line, " \n");
        for (const char *flag; (flag = strtok(NULL, " \n"));) parse_flag(&g, flag);
        load_arrays(&g, name);
        check_case(&g, name);
        for (int i = 0; i < ARRAYS; i++) free(g.array[i].data);
    }
    fclose(file);
    assert_true(cases >= 8);
}

static void test_refusals(void **state) {
    (void)state;
    ra_problem problem = RA_PROBLEM_INIT;
    problem.seq_q = 2, problem.heads_q = 1, problem.dim = 1;
    double x[2] = {0}, o[2], lse[2], g[2];
    assert_int_equal(RA_ERR_ARGUMENT, ra_reference(&problem, NULL, x, x, NULL, o, lse, NULL, NULL, NULL));
    assert_int_equal(RA_ERR_ARGUMENT, ra_reference(&problem, x, x, x, x, o, lse, g, NULL, g));
    assert_int_equal(RA_ERR_ARGUMENT, ra_reference_row(&problem, x, x, x, 0, 0, 2, o, lse));
    assert_non_null(strstr(ra_last_error(), "no query 2"));
    assert_int_equal(RA_OK, ra_reference_row(&problem, x, x, x, 0, 0, 1, o, lse));
    problem.dim = 0;
    assert_int_equal(RA_ERR_ARGUMENT, ra_reference_row(&problem, x, x, x, 0, 0, 1, o, lse));
}

/* Both passes of a long sequence cost what a row sees: looking at all keys of every row would take minutes. */
static void test_costs_what_is_seen(void **state) {
    (void)state;
    enum { ROWS = 200000 };
    static const ra_branch branch = {8, 2};
    static int64_t cu[ROWS / 4 + 1];
    double *all = calloc(9 * ROWS, sizeof *all);
    assert_non_null(all);
    for (int64_t i = 0; i < 4 * ROWS; i++) all[i] = 1; /* q, k, v and dout: every score is the scale, 1 */
    for (int64_t i = 0; i <= ROWS / 4; i++) cu[i] = 4 * i;
    ra_problem window = RA_PROBLEM_INIT;
    window.seq_q = ROWS, window.heads_q = 1, window.dim = 1;
    ra_problem documents = window, dilated = window;
    window.window_left = 10;
    window.window_right = 0;
    documents.documents = ROWS / 4;
    documents.cu_seqlens_q = cu;
    dilated.branches = 1;
    dilated.dilated = &branch;
    const ra_problem *problems[] = {&window, &documents, &dilated};
    static const double seen[] = {11, 4, 4}; /* keys that row 100,000 sees */
    for (int i = 0; i < 3; i++) {
        double *o = all + 4 * ROWS, *lse = o + ROWS, *dv = o + 4 * ROWS;
        assert_int_equal(RA_OK, ra_reference(problems[i], all, all + ROWS, all + 2 * ROWS, all + 3 * ROWS, o, lse,
                                             o + 2 * ROWS, o + 3 * ROWS, dv));
        assert_true(fabs(o[ROWS / 2] - 1) < 1e-12);
        assert_true(fabs(lse[ROWS / 2] - 1 - log(seen[i])) < 1e-12);
        assert_true(fabs(dv[ROWS / 2] - 1) < 1e-12); /* as many rows see a key as keys are seen */
    }
    free(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_costs_what_is_seen),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
