/* What CUDA's compiler adds to C++, for device code that the emulator runs: in front of every CUDA source. */
#ifndef TESTS_EMULATOR_DEVICE_CODE_H
#define TESTS_EMULATOR_DEVICE_CODE_H

#include "emulator.h"
#include "ptx.h"

#include <cmath>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <type_traits>

/* ---- keywords ---------------------------------------------------------------------------------------------------- */

#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __shared__
#undef __grid_constant__
#undef __cluster_dims__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __shared__ EMULATOR_SHARED /* for translate.py */

#define __CUDACC_VER_MAJOR__ 13
#define __CUDA_ARCH__ RA_EMULATED_ARCH

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

template <class A, class B> static inline std::common_type_t<A, B> min(A a, B b) {
    return (std::common_type_t<A, B>)a < (std::common_type_t<A, B>)b ? a : b;
}

template <class A, class B> static inline std::common_type_t<A, B> max(A a, B b) {
    return (std::common_type_t<A, B>)a > (std::common_type_t<A, B>)b ? a : b;
}

static inline unsigned __float_as_uint(float x) {
    return emulator::ptx::bits_of(x);
}

static inline float __uint_as_float(unsigned x) {
    return emulator::ptx::float_of(x);
}

static inline float __fmul_rn(float x, float y) {
    return x * y;
}

static inline float __fadd_rn(float x, float y) {
    return x + y;
}

static inline double __dmul_rn(double x, double y) {
    return x * y;
}

static inline double __dadd_rn(double x, double y) {
    return x + y;
}

static inline float __fdividef(float x, float y) {
    return x / y;
}

#define __logf(x) logf(x)

static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    uint64_t both = x | (uint64_t)y << 32;
    unsigned z = 0;
    for (int i = 0; i < 4; i++) z |= (unsigned)(both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return z;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

template <class T> static inline T __ldcg(const T *from) {
    return *from;
}

template <class T> static inline void __stcg(T *to, const std::common_type_t<T> &x) {
    emulator::give_way(16);
    *to = x;
}

template <class T> static inline T atomicAdd(T *to, std::common_type_t<T> x) {
    emulator::yield();
    T before = *to;
    *to = before + x;
    return before;
}

template <class T> static inline T atomicMax(T *to, std::common_type_t<T> x) {
    T before = *to;
    *to = max(before, x);
    return before;
}

static inline void __threadfence(void) {
    emulator::give_way();
}

static inline void __nanosleep(unsigned) {
    emulator::yield();
}

static inline size_t __cvta_generic_to_shared(const void *p) {
    return emulator::shared_address(p);
}

static inline void *__cvta_shared_to_generic(size_t address) {
    return emulator::shared_place((uint32_t)address, 0);
}

/* ---- together ---------------------------------------------------------------------------------------------------- */

static inline void __syncthreads(void) {
    emulator::barrier(0, 0, false);
}

static inline int __syncthreads_or(int mine) {
    return emulator::barrier(0, 0, mine != 0);
}

static inline void __syncwarp(unsigned mask = ~0u) {
    emulator::meet(mask, "__syncwarp", nullptr, [](auto &) {});
}

/* Every lane gives x and gets what the lane `from` gave. */
template <class T> static inline T emulated_shuffle(unsigned mask, T x, int from) {
    struct {
        T given;
        int from;
        T got;
    } mine = {x, from, x};
    using each = decltype(mine);
    emulator::meet(mask, "a shuffle", &mine, [](auto &all) {
        for (void *of : all) {
            if (!of) continue;
            const each *source = (const each *)all[((each *)of)->from];
            if (!source) emulator::fail("a shuffle from a lane that is not in its mask");
            ((each *)of)->got = source->given;
        }
    });
    return mine.got;
}

template <class T> static inline T __shfl_sync(unsigned mask, T x, int from, int width = 32) {
    return emulated_shuffle(mask, x, emulator::self->lane / width * width + from % width);
}

template <class T> static inline T __shfl_xor_sync(unsigned mask, T x, int bits) {
    return emulated_shuffle(mask, x, emulator::self->lane ^ bits);
}

/* One bit of each lane. */
static inline unsigned __ballot_sync(unsigned mask, int mine) {
    struct vote {
        bool given;
        unsigned got;
    } own = {mine != 0, 0};
    emulator::meet(mask, "a vote", &own, [](auto &all) {
        unsigned bits = 0;
        for (int lane = 0; lane < emulator::WARP; lane++)
            if (all[lane] && ((vote *)all[lane])->given) bits |= 1u << lane;
        for (void *of : all)
            if (of) ((vote *)of)->got = bits;
    });
    return own.got;
}

static inline int __any_sync(unsigned mask, int mine) {
    return __ballot_sync(mask, mine) != 0;
}

static inline int __all_sync(unsigned mask, int mine) {
    return __ballot_sync(mask, !mine) == 0;
}

/* ---- what the runtime has for C++ -------------------------------------------------------------------------------- */

template <class... PARAMETERS, class... ARGUMENTS>
static inline cudaError_t emulated_launch(const cudaLaunchConfig_t *config, void (*kernel)(PARAMETERS...),
                                          const ARGUMENTS &...arguments) {
    emulator::launch(kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes)(arguments...);
    return cudaSuccess;
}

#define cudaLaunchKernelEx emulated_launch

template <class... PARAMETERS>
static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *found_out, void (*kernel)(PARAMETERS...)) {
    return cudaFuncGetAttributes(found_out, (const void *)kernel);
}

#endif
