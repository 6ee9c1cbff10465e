#include "core/span.h"

int64_t ra_floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

int64_t ra_ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b > 0);
}

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) {
    return x < lo ? lo : x > hi ? hi : x;
}

void ra_span_indices(ra_span s, int64_t lo, int64_t hi, int64_t *from_out, int64_t *to_out) {
    int run = s.stride == 1; /* the commonest spans are runs, and divisions are slow */
    int64_t from = clamp(run ? lo - s.first : ra_ceil_div(lo - s.first, s.stride), 0, s.count);
    int64_t to = clamp(run ? hi - s.first : ra_ceil_div(hi - s.first, s.stride), from, s.count);
    *from_out = from;
    *to_out = to;
}

ra_span ra_span_slice(ra_span s, int64_t from, int64_t to) {
    return (ra_span){ra_span_at(s, from), s.stride, to > from ? to - from : 0};
}

ra_span ra_span_clip(ra_span s, int64_t lo, int64_t hi) {
    int64_t from, to;
    ra_span_indices(s, lo, hi, &from, &to);
    return ra_span_slice(s, from, to);
}

/* x with a x = 1 modulo m, for coprime a and m; 0 when m is 1. */
static int64_t inverse(int64_t a, int64_t m) {
    int64_t old_r = a % m, r = m, old_x = 1, x = 0;
    while (r != 0) {
        int64_t quotient = old_r / r, t = old_r - quotient * r;
        old_r = r;
        r = t;
        t = old_x - quotient * x;
        old_x = x;
        x = t;
    }
    return ((old_x % m) + m) % m;
}

int64_t ra_gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

/* a.first + i a.stride = b.first + j b.stride, solved for i modulo b.stride / gcd (the Chinese remainder theorem). */
ra_span ra_span_intersect(ra_span a, ra_span b) {
    if (a.count && a.stride == 1) return ra_span_clip(b, a.first, a.first + a.count);
    if (b.count && b.stride == 1) return ra_span_clip(a, b.first, b.first + b.count);
    int64_t g = ra_gcd(a.stride, b.stride), modulus = b.stride / g, distance = b.first - a.first;
    ra_span common = {a.first, a.stride * modulus, 0};
    if (a.count == 0 || b.count == 0 || distance % g != 0) return common;
    int64_t residue = ((distance / g) % modulus + modulus) % modulus;
    int64_t i = residue * inverse(a.stride / g, modulus) % modulus;
    int64_t a_last = ra_span_last(a), b_last = ra_span_last(b);
    int64_t last = a_last < b_last ? a_last : b_last;
    common.first = a.first + i * a.stride;
    if (common.first < b.first) common.first += ra_ceil_div(b.first - common.first, common.stride) * common.stride;
    common.count = common.first <= last ? (last - common.first) / common.stride + 1 : 0;
    return common;
}
