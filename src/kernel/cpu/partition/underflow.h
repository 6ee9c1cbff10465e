/* Numbers too small to be normal (below 2^-126 in f32). Intel's cores take a detour of a hundred cycles or more for
 * every operation that meets one, which made passes over tiny values 70 times slower; there, kernels in f32 take them
 * for 0 while they run. Other cores compute with them at no cost worth speaking of, and do. */
#ifndef RA_KERNEL_UNDERFLOW_H
#define RA_KERNEL_UNDERFLOW_H

#include "base/cpu.h"
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include <xmmintrin.h>

/* For the calling thread; returns what to give to ra_underflow_restore. */
static inline unsigned ra_underflow_to_zero(const ra_shape *shape) {
    enum { DENORMALS_ARE_ZERO = 0x0040, FLUSH_TO_ZERO = 0x8000 };
    unsigned before = _mm_getcsr();
    if (shape->dtype != RA_F64 && ra_cpu_is_slow_on_subnormals())
        _mm_setcsr(before | DENORMALS_ARE_ZERO | FLUSH_TO_ZERO);
    return before;
}

/* The flags of exceptions that were raised meanwhile stay: they are the caller's to see. */
static inline void ra_underflow_restore(unsigned before) {
    enum { FLAGS = 0x003f };
    _mm_setcsr(before | (_mm_getcsr() & FLAGS));
}
#else
static inline unsigned ra_underflow_to_zero(const ra_shape *shape) {
    (void)shape;
    return 0;
}

static inline void ra_underflow_restore(unsigned before) {
    (void)before;
}
#endif

#endif
