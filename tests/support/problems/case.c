#include "support/problems/case.h"

#include "support/rng.h"

#include <stdio.h>
#include <string.h>

static int64_t pick(rng *r, const int64_t *from, int count) {
    return from[rng_between(r, 0, count - 1)];
}

/* Cuts [0, length] into `documents` pieces, some of them empty or of one token. */
static void divide(rng *r, int64_t *cu, int64_t documents, int64_t length) {
    cu[0] = 0;
    cu[documents] = length;
    for (int64_t d = 1; d < documents; d++)
        cu[d] = rng_one_in(r, 4) ? cu[rng_between(r, 0, d - 1)] + 1 : rng_between(r, 0, length);
    for (int64_t d = 1; d < documents; d++)
        if (cu[d] > length) cu[d] = length;
    for (int64_t i = 1; i < documents; i++) /* insertion sort */
        for (int64_t j = i; j > 1 && cu[j - 1] > cu[j]; j--) {
            int64_t swap = cu[j];
            cu[j] = cu[j - 1];
            cu[j - 1] = swap;
        }
}

static void make_documents(test_case *c, rng *r) {
    ra_problem *p = &c->problem;
    static const int64_t known[] = {0, 137, 2178, 2267};
    p->batch = 1;
    if (p->seq_q == 2267) {
        memcpy(c->cu_q, known, sizeof known);
        p->documents = 3;
    } else {
        p->documents = rng_between(r, 1, rng_one_in(r, 3) ? CASE_MAX_DOCUMENTS : 5);
        divide(r, c->cu_q, p->documents, p->seq_q);
    }
    p->cu_seqlens_q = c->cu_q;
    if (p->seq_q == p->seq_k && rng_one_in(r, 2)) return;
    divide(r, c->cu_k, p->documents, p->seq_k);
    p->cu_seqlens_k = c->cu_k;
}

static void make_shape(test_case *c, rng *r, double work) {
    static const int64_t lengths[] = {1, 2, 3, 5, 7, 16, 31, 64, 65, 100, 127, 200, 333, 698, 1024, 2267, 3824};
    static const int64_t dims[] = {1, 2, 3, 8, 15, 16, 17, 33, 64, 72, 80, 128, 200, 256};
    static const int64_t heads[][2] = {{1, 1}, {2, 2}, {5, 5}, {8, 1}, {4, 2}, {6, 3}, {5, 1}, {2, 1}};
    ra_problem *p = &c->problem;
    for (;;) {
        const int64_t *h = heads[rng_between(r, 0, 7)];
        p->batch = rng_between(r, 1, 3);
        p->seq_q = pick(r, lengths, 17);
        p->seq_k = rng_one_in(r, 2) ? p->seq_q : pick(r, lengths, 17);
        p->heads_q = h[0];
        p->heads_kv = h[1];
        p->dim = pick(r, dims, 14);
        p->dim_v = rng_one_in(r, 2) ? p->dim : pick(r, dims, 14);
        if ((double)(p->batch * p->heads_q * p->seq_q * p->seq_k) * (double)(p->dim + p->dim_v) <= work) return;
    }
}

/* Few heads of hundreds of rows, of whole chunks of 16 bytes whatever the type. */
static void make_long_shape(test_case *c, rng *r) {
    static const int64_t lengths[] = {129, 192, 260, 333, 384, 448, 514};
    static const int64_t dims[] = {40, 64, 72, 96, 128, 128, 128, 200, 256};
    ra_problem *p = &c->problem;
    p->batch = 1;
    p->seq_q = pick(r, lengths, 7);
    p->seq_k = rng_one_in(r, 3) ? pick(r, lengths, 7) : p->seq_q;
    p->heads_q = rng_between(r, 1, 2);
    p->heads_kv = 1;
    p->dim = pick(r, dims, 9);
    p->dim_v = rng_one_in(r, 4) ? pick(r, dims, 9) : p->dim;
}

static void make_dilation(test_case *c, rng *r) {
    static const int64_t segments[] = {1, 2, 3, 5, 8, 13, 16, 40, 64, 100, 256, 1000, 5000};
    static const int64_t rates[] = {1, 1, 2, 2, 3, 4, 5, 6, 8, 12, 16, 70};
    ra_problem *p = &c->problem;
    p->branches = rng_between(r, 1, CASE_MAX_BRANCHES);
    for (int64_t b = 0; b < p->branches; b++) c->branches[b] = (ra_branch){pick(r, segments, 13), pick(r, rates, 12)};
    p->dilated = c->branches;
    p->dilated_heads = (ra_dilated_heads)rng_between(r, 0, 1);
    p->dilated_offset = (ra_dilated_offset)rng_between(r, 0, 2);
    p->dilated_combine = (ra_dilated_combine)rng_between(r, 0, 1);
}

/* ref now and then, else one of the others that this machine can run, the later and faster ones more often. */
static const char *pick_kernel(rng *r) {
    int count = 0;
    while (ra_kernel_name(count)) count++;
    for (int i = count - 1; i > 0 && !rng_one_in(r, 8); i--)
        if (ra_kernel_usable(i) && (i == 1 || rng_one_in(r, 2))) return ra_kernel_name(i);
    return ra_kernel_name(0);
}

static rng begin(test_case *c, uint64_t seed, ra_dtype dtype) {
    *c = (test_case){.seed = seed, .problem = RA_PROBLEM_INIT, .options = RA_OPTIONS_INIT};
    c->problem.dtype = dtype;
    return (rng){seed * 2654435761u + 12345};
}

/* Of a problem that has its shape. */
static void make_pattern(test_case *c, rng *r) {
    ra_problem *p = &c->problem;
    if (rng_one_in(r, 3)) {
        p->scale = rng_one_in(r, 8) ? 0 : rng_real(r);
    }
    p->causal = rng_one_in(r, 2);
    if (rng_one_in(r, 3)) {
        p->window_left = rng_between(r, -1, rng_one_in(r, 2) ? 5 : p->seq_k);
        p->window_right = rng_between(r, -1, rng_one_in(r, 2) ? 5 : p->seq_k);
    }
    if (rng_one_in(r, 3)) make_documents(c, r);
    if (rng_one_in(r, 2)) make_dilation(c, r);
}

static void make_options(test_case *c, rng *r) {
    c->options.layout = (ra_layout)rng_between(r, RA_LAYOUT_AUTO, RA_LAYOUT_DOCUMENTS);
    c->options.strategy = (ra_strategy)rng_between(r, 0, RA_STRATEGY_PASSQ);
    c->options.kernel = pick_kernel(r);
    c->options.threads = (int)rng_between(r, 1, 2);
    c->options.backward = 1;
}

void case_make(test_case *c, uint64_t seed, ra_dtype dtype, double work) {
    rng r = begin(c, seed, dtype);
    make_shape(c, &r, work);
    make_pattern(c, &r);
    make_options(c, &r);
    c->strides = (int)rng_between(&r, 0, 2);
}

void case_make_long(test_case *c, uint64_t seed, ra_dtype dtype) {
    rng r = begin(c, seed, dtype);
    make_long_shape(c, &r);
    make_pattern(c, &r);
    make_options(c, &r);
}

void case_plain(test_case *c, ra_strategy strategy, const ra_backend *backend) {
    *c = (test_case){.seed = 5, .problem = RA_PROBLEM_INIT, .options = RA_OPTIONS_INIT};
    c->problem.dtype = RA_F64;
    c->problem.seq_q = 203;
    c->problem.heads_q = 2;
    c->problem.dim = 8;
    c->problem.causal = 1;
    c->options.strategy = strategy;
    c->options.layout = RA_LAYOUT_ZIGZAG;
    c->options.backward = 1;
    c->options.backend = backend;
}

const char *case_text(const test_case *c, char *text, size_t bytes) {
    const ra_problem *p = &c->problem;
    snprintf(text, bytes,
             "seed %llu: %s B%lld Sq%lld Sk%lld H%lld:%lld D%lld Dv%lld scale%g causal%d window(%lld,%lld) "
             "documents%lld%s dilated%lld(heads%d offset%d combine%d) %s %s %s threads%d strides%d",
             (unsigned long long)c->seed, ra_dtype_name(p->dtype), (long long)p->batch, (long long)p->seq_q,
             (long long)p->seq_k, (long long)p->heads_q, (long long)p->heads_kv, (long long)p->dim, (long long)p->dim_v,
             p->scale, p->causal, (long long)p->window_left, (long long)p->window_right, (long long)p->documents,
             p->cu_seqlens_k ? "+k" : "", (long long)p->branches, p->dilated_heads, p->dilated_offset,
             p->dilated_combine, ra_layout_name(c->options.layout), ra_strategy_name(c->options.strategy),
             c->options.kernel ? c->options.kernel : "auto", c->options.threads, c->strides);
    return text;
}
