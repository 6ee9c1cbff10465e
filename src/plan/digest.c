#include "plan/digest.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

/* How a field is shown: as a number, the double of these bits, a name; or, of a hash, only that it differs. */
typedef enum field_kind {
    NUMBER,
    FLAG,
    REAL,
    HASH,
    DTYPE,
    HEADS,
    OFFSET,
    COMBINE,
    LAYOUT,
    STRATEGY,
    LENGTH = NUMBER,
    ARRAY = HASH
} field_kind;

#define NAME_OF(kind, field, ...) {#field, kind},
#define NAME_OF_REST(kind, name, value) {name, kind},
static const struct {
    const char *name;
    field_kind kind;
} fields[] = {
    {"the library's version", NUMBER}, {"ranks", NUMBER}, RA_PROBLEM_FIELDS(NAME_OF) RA_DIGEST_REST(NAME_OF_REST)};
_Static_assert(sizeof fields / sizeof *fields == RA_DIGEST_FIELDS, "a digest has a value for each of the fields");

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

/* 0 for no array. Branches are arrays of numbers as well: a segment and a rate each. */
static int64_t hash(const void *values, int64_t count) {
    return values && count > 0 ? (int64_t)hash_from(0, values, count) : 0;
}
_Static_assert(sizeof(ra_branch) == 2 * sizeof(int64_t), "a branch is two numbers");

static int64_t hash_text(const char *text) {
    int64_t words[4] = {0};
    snprintf((char *)words, sizeof words, "%s", text);
    return hash(words, 4);
}

static int64_t bits_of(double real) {
    int64_t bits;
    memcpy(&bits, &real, sizeof bits);
    return bits;
}

/* What a field of the problem p is compared by. */
#define VALUE_NUMBER(field) p->field,
#define VALUE_FLAG(field) p->field != 0,
#define VALUE_REAL(field) bits_of(p->field),
#define VALUE_LENGTH(field, zero, most) p->field,
#define VALUE_ARRAY(field, count) hash(p->field, count),
#define VALUE_DTYPE VALUE_NUMBER
#define VALUE_HEADS VALUE_NUMBER
#define VALUE_OFFSET VALUE_NUMBER
#define VALUE_COMBINE VALUE_NUMBER
#define VALUE_OF(kind, ...) VALUE_##kind(__VA_ARGS__)
#define VALUE_OF_REST(kind, name, value) value,

ra_digest ra_digest_of(const ra_setup *s) {
    const ra_problem *p = &s->problem;
    return (ra_digest){
        .status = RA_OK,
        .fields = {RA_VERSION_NUMBER, s->ranks, RA_PROBLEM_FIELDS(VALUE_OF) RA_DIGEST_REST(VALUE_OF_REST)}};
}

ra_digest ra_digest_of_failure(ra_status status, const char *error) {
    ra_digest digest = {.status = status};
    snprintf(digest.error, sizeof digest.error, "%s", error);
    return digest;
}

/* The name that a value of this kind has; NULL for a kind without names. */
static const char *name_of(field_kind kind, int64_t value) {
    switch (kind) {
    case DTYPE:
        return ra_dtype_name((ra_dtype)value);
    case HEADS:
        return ra_dilated_heads_name((ra_dilated_heads)value);
    case OFFSET:
        return ra_dilated_offset_name((ra_dilated_offset)value);
    case COMBINE:
        return ra_dilated_combine_name((ra_dilated_combine)value);
    case LAYOUT:
        return ra_layout_name((ra_layout)value);
    case STRATEGY:
        return ra_strategy_name((ra_strategy)value);
    default:
        return NULL;
    }
}

static void show(char *text, size_t bytes, int field, int64_t value) {
    const char *name = name_of(fields[field].kind, value);
    double real;
    memcpy(&real, &value, sizeof real);
    if (name)
        snprintf(text, bytes, "%s", name);
    else if (fields[field].kind == REAL)
        snprintf(text, bytes, "%.17g", real);
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
