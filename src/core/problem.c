#include "core/problem.h"

#include "base/sized.h"
#include "base/status.h"
#include "core/problem_fields.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

static ra_status check_length(const char *name, int64_t value, int64_t max) {
    if (value < 1 || value > max)
        return ra_refuse("%s is %lld; it must be between 1 and %lld", name, (long long)value, (long long)max);
    return RA_OK;
}

static ra_status check_types(ra_problem *p) {
    if (p->dtype == RA_DTYPE_DEFAULT) p->dtype = RA_F32;
    if (ra_dtype_bytes(p->dtype) == 0)
        return ra_refuse("dtype %d is no type; use RA_F32, RA_F64, RA_BF16 or RA_F16", p->dtype);
    if (p->out_dtype == RA_DTYPE_DEFAULT) p->out_dtype = p->dtype;
    int half = p->dtype == RA_BF16 || p->dtype == RA_F16;
    if (p->out_dtype != p->dtype && !(half && p->out_dtype == RA_F32))
        return ra_fail(
            RA_ERR_UNSUPPORTED,
            "out_dtype must be the problem's own type or, for bf16 and f16, f32: leave it at RA_DTYPE_DEFAULT");
    return RA_OK;
}

static ra_status check_lengths(ra_problem *p) {
#define CHECK(kind, field, zero, most)                                                                                 \
    if (p->field == 0) p->field = (zero);                                                                              \
    RA_TRY(check_length(#field, p->field, (most)));
    RA_PROBLEM_LENGTHS(CHECK)
#undef CHECK
    return RA_OK;
}

static ra_status check_shape(ra_problem *p) {
    RA_TRY(check_lengths(p));
    if (p->heads_q % p->heads_kv)
        return ra_refuse("heads_kv is %lld, which does not divide heads_q, %lld: every key/value head must serve the "
                         "same number of query heads",
                         (long long)p->heads_kv, (long long)p->heads_q);
    double bytes =
        (double)p->batch * (double)p->heads_q * (double)(p->seq_q + p->seq_k) * (double)(p->dim + p->dim_v) * 8;
    if (bytes > 4e18) return ra_refuse("the problem is too large: its bytes do not fit in 63 bits");
    return RA_OK;
}

static ra_status check_mask(ra_problem *p) {
    if (p->scale == RA_SCALE_DEFAULT) p->scale = 1 / sqrt((double)p->dim);
    if (!isfinite(p->scale)) return ra_refuse("scale is not finite");
    if (p->dtype != RA_F64 && p->scale != 0 && (fabs(p->scale) > FLT_MAX || fabs(p->scale) < FLT_MIN))
        return ra_refuse(
            "scale is %g, which f32 does not hold (%.2g to %.2g in size, or 0): scale q or k by some of it, or use "
            "RA_F64",
            p->scale, (double)FLT_MIN, (double)FLT_MAX);
    if (p->window_left < -1 || p->window_right < -1)
        return ra_refuse("window is (%lld, %lld); each side must be at least 0, or -1 for no limit",
                         (long long)p->window_left, (long long)p->window_right);
    return RA_OK;
}

static ra_status check_cu(const char *name, const int64_t *cu, int64_t documents, int64_t length) {
    if (cu[0] != 0) return ra_refuse("%s must start at 0, not at %lld", name, (long long)cu[0]);
    for (int64_t d = 0; d < documents; d++)
        if (cu[d + 1] < cu[d])
            return ra_refuse("%s must not decrease, but entry %lld is %lld after %lld", name, (long long)(d + 1),
                             (long long)cu[d + 1], (long long)cu[d]);
    if (cu[documents] != length)
        return ra_refuse("%s must end at the length of the sequence, %lld, not at %lld", name, (long long)length,
                         (long long)cu[documents]);
    return RA_OK;
}

static ra_status check_documents(ra_problem *p) {
    if (!p->cu_seqlens_q && !p->cu_seqlens_k) {
        if (p->documents > 1) return ra_refuse("documents is %lld but cu_seqlens_q is NULL", (long long)p->documents);
        p->documents = 1;
        return RA_OK;
    }
    if (!p->cu_seqlens_q) return ra_refuse("cu_seqlens_k is given without cu_seqlens_q");
    RA_TRY(check_length("documents", p->documents, RA_MAX_LENGTH));
    if (!p->cu_seqlens_k && p->documents == 1) { /* one document is none: all queries, all keys */
        RA_TRY(check_cu("cu_seqlens_q", p->cu_seqlens_q, 1, p->seq_q));
        p->cu_seqlens_q = NULL;
        return p->batch == 1 ? RA_OK
                             : ra_fail(RA_ERR_ARGUMENT, "packed documents need batch 1, not %lld", (long long)p->batch);
    }
    if (!p->cu_seqlens_k) p->cu_seqlens_k = p->cu_seqlens_q;
    if (p->batch != 1)
        return ra_refuse("packed documents need batch 1, not %lld: put the documents one after another",
                         (long long)p->batch);
    RA_TRY(check_cu("cu_seqlens_q", p->cu_seqlens_q, p->documents, p->seq_q));
    return check_cu("cu_seqlens_k", p->cu_seqlens_k, p->documents, p->seq_k);
}

static ra_status check_dilation(ra_problem *p) {
    if (p->branches == 0) {
        p->dilated_heads = RA_DILATED_ALL;
        p->dilated_offset = RA_DILATED_HEAD;
        p->dilated_combine = RA_DILATED_LSE;
        return RA_OK;
    }
    RA_TRY(check_length("branches", p->branches, RA_MAX_BRANCHES));
    if (!p->dilated) return ra_refuse("branches is %lld but dilated is NULL", (long long)p->branches);
    for (int64_t b = 0; b < p->branches; b++) {
        RA_TRY(check_length("a dilated branch's segment", p->dilated[b].segment, RA_MAX_LENGTH));
        RA_TRY(check_length("a dilated branch's rate", p->dilated[b].rate, RA_MAX_LENGTH));
    }
    double states = (double)p->branches * (double)p->batch * (double)p->heads_q * (double)p->seq_q;
    if (states * (double)(p->dim_v + 2) * 8 > 4e18)
        return ra_refuse("the problem is too large: its bytes do not fit in 63 bits");
    if ((unsigned)p->dilated_heads > RA_DILATED_GROUPS)
        return ra_refuse("dilated_heads is %d, which is no ra_dilated_heads", (int)p->dilated_heads);
    if ((unsigned)p->dilated_offset > RA_DILATED_GROUP)
        return ra_refuse("dilated_offset is %d, which is no ra_dilated_offset", (int)p->dilated_offset);
    if ((unsigned)p->dilated_combine > RA_DILATED_MEAN)
        return ra_refuse("dilated_combine is %d, which is no ra_dilated_combine", (int)p->dilated_combine);
    return RA_OK;
}

/* The most keys that a row of a document with so many keys can see. */
static double most_seen(const ra_problem *p, double keys) {
    double left = p->window_left < 0 ? keys : (double)p->window_left;
    double right = p->causal ? 0 : p->window_right < 0 ? keys : (double)p->window_right;
    return fmin(keys, left + right + 1);
}

/* At least as many pairs as a head of the document has. A branch keeps one row in `rate` of a segment, and one more
 * where the segment ends early. */
static double most_pairs(const ra_problem *p, ra_document document) {
    double rows = (double)(document.q1 - document.q0), seen = most_seen(p, (double)(document.k1 - document.k0)),
           pairs = 0;
    if (p->branches == 0) return rows * seen;
    for (int64_t b = 0; b < p->branches; b++) {
        double segment = (double)p->dilated[b].segment, rate = (double)p->dilated[b].rate;
        double kept = fmin(rows, rows / rate + rows / segment + 2);
        pairs += kept * fmin(seen, fmin(seen, segment) / rate + 1);
    }
    return pairs;
}

/* What is counted later, pairs over batch and heads, must fit in 63 bits. */
static ra_status check_pairs(const ra_problem *p) {
    double pairs = 0;
    for (int64_t d = 0; d < p->documents; d++) pairs += most_pairs(p, ra_problem_document(p, d));
    if (pairs * (double)p->batch * (double)p->heads_q > 4e18)
        return ra_refuse("the problem is too large: its pairs do not fit in 63 bits");
    return RA_OK;
}

ra_status ra_problem_normalise(const ra_problem *in, ra_problem *out) {
    ra_problem p = RA_PROBLEM_INIT;
    RA_TRY(ra_sized_read("problem", in, offsetof(ra_problem, documents), sizeof p, &p));
    if (p.initialised != 1)
        return ra_refuse(
            "problem was not initialised: start from RA_PROBLEM_INIT or ra_problem_init, which say that there is no "
            "window and that the scale is the default");
    RA_TRY(check_types(&p));
    RA_TRY(check_shape(&p));
    RA_TRY(check_mask(&p));
    RA_TRY(check_documents(&p));
    RA_TRY(check_dilation(&p));
    RA_TRY(check_pairs(&p));
    *out = p;
    return RA_OK;
}

ra_document ra_problem_document(const ra_problem *p, int64_t d) {
    if (!p->cu_seqlens_q) return (ra_document){0, p->seq_q, 0, p->seq_k};
    return (ra_document){p->cu_seqlens_q[d], p->cu_seqlens_q[d + 1], p->cu_seqlens_k[d], p->cu_seqlens_k[d + 1]};
}

void ra_problem_band(const ra_problem *p, ra_document document, int64_t *lo_out, int64_t *hi_out) {
    int64_t none = 2 * RA_MAX_LENGTH; /* beyond any difference of positions */
    int64_t right = p->window_right < 0 || p->window_right > none ? none : p->window_right;
    int64_t left = p->window_left < 0 || p->window_left > none ? none : p->window_left;
    if (p->causal) right = 0;
    int64_t shift = document.k1 - document.q1;
    *lo_out = shift - left;
    *hi_out = shift + right;
}

static int is_mean(const ra_problem *p) {
    return p->branches > 0 && p->dilated_combine == RA_DILATED_MEAN;
}

int64_t ra_problem_states(const ra_problem *p) {
    return is_mean(p) && p->dilated_heads == RA_DILATED_ALL ? p->branches : 1;
}

double ra_problem_weight(const ra_problem *p) {
    return is_mean(p) ? 1 / (double)p->branches : 1;
}
