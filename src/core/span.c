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
    int64_t from = clamp(ra_ceil_div(lo - s.first, s.stride), 0, s.count);
    int64_t to = clamp(ra_ceil_div(hi - s.first, s.stride), from, s.count);
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
