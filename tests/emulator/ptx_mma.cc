/* mma.sync: products of the tensor cores that a warp does at once. Sums are of f32, in the order of the depth. */
#include "ptx_code.h"

namespace emulator {
namespace ptx {

/* What a lane brings. */
struct mma_lane {
    uint32_t a[4], b[2];
    float c[4];
};

/* Element `e` of a register. */
template <float VALUE(uint16_t)> static float of_half(uint32_t x, int e) {
    return VALUE((uint16_t)(x >> 16 * e));
}

static float of_tf32(uint32_t x, int) {
    return float_of(x & ~0x1fffu);
}

/* a [16, DEPTH], b [DEPTH, 8] of a warp, out of its lanes' registers, of which one holds EACH elements. */
template <int DEPTH, int EACH, float VALUE(uint32_t, int)> static void multiply(void *const (&all)[WARP]) {
    float a[16][DEPTH], b[DEPTH][8], d[16][8] = {};
    for (int lane = 0; lane < WARP; lane++) {
        const mma_lane *from = (const mma_lane *)all[lane];
        for (int n = 0; n < DEPTH / (4 * EACH); n++)
            for (int e = 0; e < EACH; e++) {
                int depth = n * 4 * EACH + lane % 4 * EACH + e;
                for (int half = 0; half < 2; half++) a[lane / 4 + 8 * half][depth] = VALUE(from->a[2 * n + half], e);
                b[depth][lane / 4] = VALUE(from->b[n], e);
            }
        for (int x = 0; x < 4; x++) d[lane / 4 + x / 2 * 8][lane % 4 * 2 + x % 2] = from->c[x];
    }
    for (int row = 0; row < 16; row++)
        for (int depth = 0; depth < DEPTH; depth++)
            for (int column = 0; column < 8; column++) d[row][column] += a[row][depth] * b[depth][column];
    for (int lane = 0; lane < WARP; lane++)
        for (int x = 0; x < 4; x++) ((mma_lane *)all[lane])->c[x] = d[lane / 4 + x / 2 * 8][lane % 4 * 2 + x % 2];
}

/* {d}, {a}, {b}, {c} */
template <int DEPTH, int EACH, float VALUE(uint32_t, int)> static void mma(frame &f, const instruction &i) {
    mma_lane mine = {};
    for (size_t n = 0; n < i.parts[1].size(); n++) mine.a[n] = (uint32_t)f.get(i, 1, n);
    for (size_t n = 0; n < i.parts[2].size(); n++) mine.b[n] = (uint32_t)f.get(i, 2, n);
    for (size_t n = 0; n < 4; n++) mine.c[n] = f.number(i, 3, n);
    meet(~0u, "mma.sync", &mine, multiply<DEPTH, EACH, VALUE>);
    for (size_t n = 0; n < 4; n++) f.set(i, 0, bits_of(mine.c[n]), n);
}

const known mma_instructions[] = {
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", mma<16, 2, of_half<bf16_value>>},
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", mma<16, 2, of_half<f16_value>>},
    {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", mma<8, 2, of_half<f16_value>>},
    {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", mma<8, 1, of_tf32>},
    {NULL, NULL},
};

} // namespace ptx
} // namespace emulator
