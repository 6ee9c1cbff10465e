/* What the AVX-512-BF16 kernel puts into the table. */
#include "kernel/cpu/avx512bf16/avx512bf16.h"

#include "base/cpu.h"

static ra_kernel overridden; /* the kernel that this one starts as */

static int usable(void) {
    return overridden.usable() && ra_cpu_has("avx512_bf16");
}

static size_t scratch_bytes(const ra_shape *shape, int threads, int backward) {
    if (shape->dtype != RA_BF16) return overridden.scratch_bytes(shape, threads, backward);
    if (backward) return ra_avx512bf16_backward_bytes(shape, threads);
    return (size_t)threads * ra_avx512bf16_forward_bytes(shape);
}

static void forward(const ra_forward_call *call) {
    (call->shape->dtype == RA_BF16 ? ra_avx512bf16_forward : overridden.forward)(call);
}

static void backward(const ra_backward_call *call) {
    (call->shape->dtype == RA_BF16 ? ra_avx512bf16_backward : overridden.backward)(call);
}

void ra_avx512bf16_override(ra_kernel *kernel) {
    overridden = *kernel;
    kernel->usable = usable;
    kernel->scratch_bytes = scratch_bytes;
    kernel->forward = forward;
    kernel->backward = backward;
}
