/* A span: an arithmetic progression of positions, rows or heads, {first, first + stride, ...}, count of them.
 * Shards, documents, windows and head groups are all spans, so that kernels, transports and the executor need no code
 * for any of them.
 */
#ifndef RA_CORE_SPAN_H
#define RA_CORE_SPAN_H

#include "base/internal.h"

#include <stdint.h>

typedef struct ra_span {
    int64_t first;
    int64_t stride; /* at least 1 */
    int64_t count;  /* 0: empty */
} ra_span;

/* The i-th element. */
static inline int64_t ra_span_at(ra_span s, int64_t i) {
    return s.first + i * s.stride;
}

/* The last element; there must be one. */
static inline int64_t ra_span_last(ra_span s) {
    return ra_span_at(s, s.count - 1);
}

/* Whether both are the same progression. */
static inline int ra_span_same(ra_span a, ra_span b) {
    return a.first == b.first && a.stride == b.stride && a.count == b.count;
}

/* floor(a / b) and ceil(a / b) for b > 0 and any a: C rounds towards zero. */
int64_t ra_floor_div(int64_t a, int64_t b);
int64_t ra_ceil_div(int64_t a, int64_t b);

/* The greatest common divisor of two numbers above 0. */
int64_t ra_gcd(int64_t a, int64_t b);

/* The elements of s that lie in [lo, hi). */
ra_span ra_span_clip(ra_span s, int64_t lo, int64_t hi);

/* The index range [*from_out, *to_out) of the elements of s that lie in [lo, hi). */
void ra_span_indices(ra_span s, int64_t lo, int64_t hi, int64_t *from_out, int64_t *to_out);

/* The elements that a and b share: again a span, whose stride is the least common multiple of theirs. Where that is
 * beyond int64, they share one element at most, and its stride is the greater of theirs. */
RA_INTERNAL ra_span ra_span_intersect(ra_span a, ra_span b);

/* The elements with indices [from, to). */
ra_span ra_span_slice(ra_span s, int64_t from, int64_t to);

#endif
