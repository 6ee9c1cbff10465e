#include "tensors/noise.h"

#include "cli.h"

#include <math.h>

/* splitmix64's finaliser: every bit of the result depends on every bit of x. */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

double noise_at(uint64_t seed, uint64_t tensor, uint64_t index) {
    uint64_t bits = mix(mix(seed * 0x9e3779b97f4a7c15u + tensor + 1) + index * 0x9e3779b97f4a7c15u);
    /* Box and Muller, from 32 bits each; the first is never zero. */
    double radius = ((double)(bits >> 32) + 0.5) / 4294967296.0, angle = (double)(bits & 0xffffffffu) / 4294967296.0;
    return sqrt(-2 * log(radius)) * cos(6.283185307179586 * angle);
}

enum { BLOCK = 256 };

ra_status noise_fill(uint64_t seed, uint64_t tensor, int64_t batch, int64_t n, int64_t width, const int64_t *positions,
                     int64_t rows, ra_dtype dtype, void *data_out) {
    double block[BLOCK];
    char *to = data_out;
    for (int64_t row = 0; row < batch * rows; ++row) {
        int64_t position = positions ? positions[row % rows] : row % rows;
        uint64_t first = (uint64_t)((row / rows * n + position) * width);
        for (int64_t d = 0, count; d < width; d += count) {
            count = width - d < BLOCK ? width - d : BLOCK;
            for (int64_t i = 0; i < count; ++i) block[i] = noise_at(seed, tensor, first + (uint64_t)(d + i));
            CLI_RETURN_ON_ERROR(ra_convert(dtype, to, RA_F64, block, count));
            to += (size_t)count * ra_dtype_bytes(dtype);
        }
    }
    return RA_OK;
}
