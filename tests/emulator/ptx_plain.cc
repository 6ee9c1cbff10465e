/* Registers, predicates, conversions, and what threads of a warp or block do together. */
#include "ptx_code.h"

#include <cmath>

namespace emulator {
namespace ptx {

/* ---- numbers of 16 bits ------------------------------------------------------------------------------------------ */

float bf16_value(uint16_t x) {
    return float_of((uint32_t)x << 16);
}

uint16_t bf16_of(float x) {
    uint32_t bits = bits_of(x);
    if (x != x) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float f16_worked_out(uint16_t x) {
    int exponent = x >> 10 & 31, mantissa = x & 1023;
    float size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                 : exponent     ? ldexpf((float)(1024 + mantissa), exponent - 25)
                                : ldexpf((float)mantissa, -24);
    return x >> 15 ? -size : size;
}

float f16_value(uint16_t x) {
    static const std::vector<float> values = [] {
        std::vector<float> all(1 << 16);
        for (uint32_t i = 0; i < 1 << 16; i++) all[i] = f16_worked_out((uint16_t)i);
        return all;
    }();
    return values[x];
}

/* Rounded to even, as numbers of f32 are when they are scaled by powers of two. */
uint16_t f16_of(float x) {
    uint32_t sign = bits_of(x) >> 16 & 0x8000;
    float size = fabsf(x);
    if (x != x) return 0x7fff;
    if (size >= 65520.0f) return (uint16_t)(sign | 0x7c00);
    if (size < 6.103515625e-5f) return (uint16_t)(sign | (uint32_t)nearbyintf(ldexpf(size, 24)));
    uint32_t bits = bits_of(size);
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | ((bits >> 13) - (112u << 10)));
}

/* ---- registers --------------------------------------------------------------------------------------------------- */

static void nothing(frame &, const instruction &) {
}

static void fence(frame &, const instruction &) {
    give_way();
}

static void set_equal(frame &f, const instruction &i) {
    f.set(i, 0, (uint32_t)f.get(i, 1) == (uint32_t)f.get(i, 2));
}

static void set_unequal(frame &f, const instruction &i) {
    f.set(i, 0, (uint32_t)f.get(i, 1) != (uint32_t)f.get(i, 2));
}

static void select(frame &f, const instruction &i) {
    f.set(i, 0, f.get(i, 3) ? f.get(i, 1) : f.get(i, 2));
}

static void move(frame &f, const instruction &i) {
    bool rank = i.name.find("cluster_ctarank") != std::string::npos;
    if (!rank && i.name.find("tid.x") == std::string::npos) fail("%s is not known", i.name.c_str());
    f.set(i, 0, rank ? (uint32_t)self->of->rank : self->index.x);
}

static void map_address(frame &f, const instruction &i) {
    f.set(i, 0, (uint32_t)(f.get(i, 2) + 1) << 24 | (uint32_t)f.get(i, 1));
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static float flushed(float x) {
    return fabsf(x) < 1.17549435e-38f ? copysignf(0, x) : x;
}

static void exponential(frame &f, const instruction &i) {
    f.set(i, 0, bits_of(flushed(exp2f(flushed(f.number(i, 1))))));
}

static void pack_bf16(frame &f, const instruction &i) {
    f.set(i, 0, (uint32_t)bf16_of(f.number(i, 1)) << 16 | bf16_of(f.number(i, 2)));
}

static void pack_f16(frame &f, const instruction &i) {
    f.set(i, 0, (uint32_t)f16_of(f.number(i, 1)) << 16 | f16_of(f.number(i, 2)));
}

/* Ties away from zero. */
static void round_tf32(frame &f, const instruction &i) {
    uint32_t bits = (uint32_t)f.get(i, 1);
    bool finite = (bits & 0x7f800000) != 0x7f800000;
    f.set(i, 0, finite ? (bits + 0x1000) & ~0x1fffu : bits);
}

template <float VALUE(uint16_t), uint16_t OF(float)> static void multiply_add_two(frame &f, const instruction &i) {
    uint32_t x = (uint32_t)f.get(i, 1), y = (uint32_t)f.get(i, 2), z = (uint32_t)f.get(i, 3), sum = 0;
    for (int half = 0; half < 32; half += 16)
        sum |=
            (uint32_t)OF(fmaf(VALUE((uint16_t)(x >> half)), VALUE((uint16_t)(y >> half)), VALUE((uint16_t)(z >> half))))
            << half;
    f.set(i, 0, sum);
}

/* `width` ones from bit `first` on. */
static void bit_mask(frame &f, const instruction &i) {
    uint64_t first = std::min<uint64_t>((uint32_t)f.get(i, 1), 32),
             width = std::min<uint64_t>((uint32_t)f.get(i, 2), 32);
    f.set(i, 0, (uint32_t)(((1ull << width) - 1) << first));
}

/* ---- together ---------------------------------------------------------------------------------------------------- */

/* The same lane always, but not 0. */
static void elect(frame &f, const instruction &i) {
    meet(~0u, "elect.sync", nullptr, [](auto &) {});
    f.set(i, 0, self->lane == std::min(13, (int)self->in->lanes.size() - 1), 1);
}

static void wait_at_barrier(frame &f, const instruction &i) {
    barrier((int)f.get(i, 0), (int)f.get(i, 1), false);
}

static void arrive_at_barrier(frame &f, const instruction &i) {
    barrier_arrive((int)f.get(i, 0), (int)f.get(i, 1));
    give_way();
}

static void ask_at_barrier(frame &f, const instruction &i) {
    f.set(i, 0, barrier((int)f.get(i, 1), (int)f.get(i, 2), f.get(i, 3) != 0));
}

static void arrive_at_cluster(frame &, const instruction &) {
    cluster_arrive();
    give_way();
}

static void wait_at_cluster(frame &, const instruction &) {
    cluster_wait();
}

/* ---- device memory ----------------------------------------------------------------------------------------------- */

static void load_global(frame &f, const instruction &i) {
    yield();
    f.set(i, 0, *(volatile uint32_t *)f.get(i, 1));
}

static void add_number(frame &f, const instruction &i) {
    *(int32_t *)f.get(i, 0) += (int32_t)f.get(i, 1);
    give_way();
}

static void add_floats(frame &f, const instruction &i) {
    float *to = (float *)f.get(i, 0);
    for (size_t n = 0; n < i.parts[1].size(); n++) to[n] = flushed(flushed(to[n]) + flushed(f.number(i, 1, n)));
}

const known plain_instructions[] = {
    {"fence", fence},
    {"griddepcontrol.wait", nothing},
    {"griddepcontrol.launch_dependents", nothing},
    {"prefetch", nothing},
    {"setmaxnreg", nothing},
    {"setp.eq", set_equal},
    {"setp.ne", set_unequal},
    {"selp", select},
    {"mov", move},
    {"mapa", map_address},
    {"ex2.approx.ftz", exponential},
    {"cvt.rn.bf16x2.f32", pack_bf16},
    {"cvt.rn.f16x2.f32", pack_f16},
    {"cvt.rna.tf32.f32", round_tf32},
    {"fma.rn.bf16x2", multiply_add_two<bf16_value, bf16_of>},
    {"fma.rn.f16x2", multiply_add_two<f16_value, f16_of>},
    {"bmsk.clamp", bit_mask},
    {"elect.sync", elect},
    {"bar.sync", wait_at_barrier},
    {"bar.arrive", arrive_at_barrier},
    {"bar.red.or", ask_at_barrier},
    {"barrier.cluster.arrive", arrive_at_cluster},
    {"barrier.cluster.wait", wait_at_cluster},
    {"ld.relaxed.gpu.global", load_global},
    {"ld.acquire.gpu.global", load_global},
    {"red.relaxed.gpu.global.add.s32", add_number},
    {"red.relaxed.gpu.global.add.f32", add_floats},
    {"red.relaxed.gpu.global.add.v2.f32", add_floats},
    {"red.relaxed.gpu.global.add.v4.f32", add_floats},
    {NULL, NULL},
};

} // namespace ptx
} // namespace emulator
