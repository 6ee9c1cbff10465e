#include "plan/digest.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

/* How a field is shown: a number, the bits of a double, or a hash, of which only the difference can be told. */
typedef enum field_kind { NUMBER, REAL, HASH } field_kind;

static const struct {
    const char *name;
    field_kind kind;
} fields[RA_DIGEST_FIELDS] = {
    {"the library's version", NUMBER},
    {"ranks", NUMBER},
    {"dtype", NUMBER},
    {"out_dtype", NUMBER},
    {"batch", NUMBER},
    {"seq_q", NUMBER},
    {"seq_k", NUMBER},
    {"heads_q", NUMBER},
    {"heads_kv", NUMBER},
    {"dim", NUMBER},
    {"dim_v", NUMBER},
    {"scale", REAL},
    {"causal", NUMBER},
    {"window_left", NUMBER},
    {"window_right", NUMBER},
    {"documents", NUMBER},
    {"cu_seqlens_q", HASH},
    {"cu_seqlens_k", HASH},
    {"layout", NUMBER},
    {"strategy", NUMBER},
    {"backward", NUMBER},
    {"branches", NUMBER},
    {"dilated", HASH},
    {"dilated_heads", NUMBER},
    {"dilated_offset", NUMBER},
    {"dilated_combine", NUMBER},
    {"device", HASH},
    {"the number of plans made on this communicator before", NUMBER},
};

/* One to one, and every bit of x reaches every bit of the result (the finaliser of splitmix64). */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Each step is one to one in the value, so arrays that differ in one entry never have the same hash. */
static uint64_t hash_from(uint64_t seed, const int64_t *values, int64_t count) {
    uint64_t h = mix(seed + (uint64_t)count);
    for (int64_t i = 0; i < count; i++) h = mix((h ^ (uint64_t)values[i]) + 0x9e3779b97f4a7c15u);
    return h;
}

/* 0 for no array. */
static int64_t hash(const int64_t *values, int64_t count) {
    return values ? (int64_t)hash_from(0, values, count) : 0;
}

ra_digest ra_digest_of(const ra_setup *setup) {
    const ra_problem *p = &setup->problem;
    int64_t version = RA_VERSION_NUMBER, device[2] = {0};
    int64_t scale, dilated[2 * RA_MAX_BRANCHES];
    snprintf((char *)device, sizeof device, "%s", setup->device->name);
    for (int64_t i = 0; i < p->branches; i++) {
        dilated[2 * i] = p->dilated[i].segment;
        dilated[2 * i + 1] = p->dilated[i].rate;
    }
    memcpy(&scale, &p->scale, sizeof scale);
    ra_digest digest = {
        .status = RA_OK,
        .fields = {version,
                   setup->ranks,
                   p->dtype,
                   p->out_dtype,
                   p->batch,
                   p->seq_q,
                   p->seq_k,
                   p->heads_q,
                   p->heads_kv,
                   p->dim,
                   p->dim_v,
                   scale,
                   p->causal != 0,
                   p->window_left,
                   p->window_right,
                   p->documents,
                   hash(p->cu_seqlens_q, p->documents + 1),
                   hash(p->cu_seqlens_k, p->documents + 1),
                   setup->layout,
                   setup->strategy,
                   setup->backward,
                   p->branches,
                   hash(dilated, 2 * p->branches),
                   p->dilated_heads,
                   p->dilated_offset,
                   p->dilated_combine,
                   hash(device, 2),
                   setup->serial},
    };
    return digest;
}

ra_digest ra_digest_of_failure(ra_status status, const char *error) {
    ra_digest digest = {.status = status};
    snprintf(digest.error, sizeof digest.error, "%s", error);
    return digest;
}

static void show(char *text, size_t bytes, int field, int64_t value) {
    double real;
    memcpy(&real, &value, sizeof real);
    if (fields[field].kind == REAL)
        snprintf(text, bytes, "%.17g", real);
    else if (strcmp(fields[field].name, "layout") == 0)
        snprintf(text, bytes, "%s", ra_layout_name((ra_layout)value));
    else if (strcmp(fields[field].name, "strategy") == 0)
        snprintf(text, bytes, "%s", ra_strategy_name((ra_strategy)value));
    else if (strcmp(fields[field].name, "dtype") == 0)
        snprintf(text, bytes, "%s", ra_dtype_name((ra_dtype)value));
    else
        snprintf(text, bytes, "%lld", (long long)value);
}

static ra_status mismatch(int rank, int other, int field, int64_t here, int64_t there) {
    char a[40], b[40];
    if (fields[field].kind == HASH)
        return ra_fail(RA_ERR_MISMATCH,
                       "rank %d: the ranks disagree: rank %d has another %s than rank 0; give every rank "
                       "the same problem",
                       rank, other, fields[field].name);
    show(a, sizeof a, field, here);
    show(b, sizeof b, field, there);
    return ra_fail(RA_ERR_MISMATCH,
                   "rank %d: the ranks disagree: %s is %s on rank %d and %s on rank 0; give every rank "
                   "the same problem",
                   rank, fields[field].name, a, other, b);
}

ra_seal ra_digest_seal(const ra_digest *digest) {
    ra_seal seal = {.status = digest->status};
    for (uint64_t i = 0; i < 2; i++) seal.hash[i] = hash_from(i + 1, digest->fields, RA_DIGEST_FIELDS);
    return seal;
}

static int differs(const ra_seal *a, const ra_seal *b) {
    return a->hash[0] != b->hash[0] || a->hash[1] != b->hash[1];
}

void ra_seals_judge(const void *all, int ranks, void *culprit_out) {
    const ra_seal *seals = all;
    int64_t culprit = -1;
    for (int r = ranks - 1; r > 0; r--)
        if (differs(&seals[r], &seals[0])) culprit = r;
    for (int r = ranks - 1; r >= 0; r--)
        if (seals[r].status != RA_OK) culprit = r;
    memcpy(culprit_out, &culprit, sizeof culprit);
}

ra_status ra_digest_explain(const ra_digest *first, const ra_digest *culprits, int culprit, int rank) {
    if (culprits->status != RA_OK)
        return ra_fail(RA_ERR_MISMATCH, "rank %d: rank %d could not make its plan: %.*s", rank, culprit,
                       (int)sizeof culprits->error - 1, culprits->error);
    for (int f = 0; f < RA_DIGEST_FIELDS; f++)
        if (culprits->fields[f] != first->fields[f])
            return mismatch(rank, culprit, f, culprits->fields[f], first->fields[f]);
    return ra_fail(RA_ERR_INTERNAL, "rank %d: rank %d and rank 0 have equal problems that look different", rank,
                   culprit);
}
