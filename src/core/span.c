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
    return old_x < 0 ? old_x + m : old_x;
}

/* x + y modulo m, for x and y in [0, m). */
static int64_t add_modulo(int64_t x, int64_t y, int64_t m) {
    return x < m - y ? x + y : x - (m - y);
}

/* x y modulo m, for x and y in [0, m). */
static int64_t multiply_modulo(int64_t x, int64_t y, int64_t m) {
    if (m <= (int64_t)1 << 31) return x * y % m;
    int64_t sum = 0;
    for (; y > 0; y /= 2, x = add_modulo(x, x, m))
        if (y % 2) sum = add_modulo(sum, x, m);
    return sum;
}

int64_t ra_gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

/* x times; where int64 does not hold that, the greater of x and `least`. */
static int64_t multiple_of(int64_t x, int64_t times, int64_t least) {
    int small = (x | times) >> 31 == 0; /* a division is slow */
    if (small || times <= INT64_MAX / x) return x * times;
    return x > least ? x : least;
}

/* The elements of s in [lo, hi], where s.first <= lo <= hi <= its last element. */
static ra_span between(ra_span s, int64_t lo, int64_t hi) {
    int run = s.stride == 1;
    int64_t from = run ? lo - s.first : ra_ceil_div(lo - s.first, s.stride);
    int64_t last = run ? hi - s.first : (hi - s.first) / s.stride;
    return ra_span_slice(s, from, last + 1);
}

/* hi: the lesser of the last elements; b.first <= a.first <= hi. a.first + i a.stride = b.first + j b.stride is solved
 * for i modulo b.stride / gcd (the Chinese remainder theorem). All products are below a modulus, or lie in [a.first,
 * hi] once i is known not to be too large. */
static ra_span solve(ra_span a, ra_span b, int64_t hi) {
    const ra_span none = {a.first, a.stride, 0};
    int64_t past = (a.first - b.first) % b.stride, gap = past ? b.stride - past : 0; /* from a.first to b's next */
    if (gap > hi - a.first) return none;
    int64_t g = ra_gcd(a.stride, b.stride), modulus = b.stride / g, i = 0;
    if (gap % g) return none;
    if (gap) i = multiply_modulo(gap / g, inverse(a.stride / g, modulus), modulus);
    if (i > (hi - a.first) / a.stride) return none;
    int64_t first = ra_span_at(a, i);
    return (ra_span){first, multiple_of(a.stride, modulus, b.stride), (hi - first) / a.stride / modulus + 1};
}

ra_span ra_span_intersect(ra_span a, ra_span b) {
    const ra_span none = {a.first, a.stride, 0};
    if (a.count == 0 || b.count == 0) return none;
    int64_t a_last = ra_span_last(a), b_last = ra_span_last(b);
    int64_t lo = a.first > b.first ? a.first : b.first, hi = a_last < b_last ? a_last : b_last;
    if (lo > hi) return none;
    if (a.stride == 1) return between(b, lo, hi);
    if (b.stride == 1) return between(a, lo, hi);
    return a.first == lo ? solve(a, b, hi) : solve(b, a, hi);
}
