/* What the AMX kernel puts into the table. */
#include "kernel/cpu/amx/amx.h"

#include "base/cpu.h"

static ra_kernel overridden; /* the kernel that this one starts as */

static int usable(void) {
    return overridden.usable() && ra_cpu_has("amx_bf16") && ra_cpu_allow_tiles();
}

static size_t scratch_bytes(const ra_shape *shape, int threads, int backward) {
    if (shape->dtype != RA_BF16) return overridden.scratch_bytes(shape, threads, backward);
    if (backward) return ra_amx_backward_bytes(shape, threads);
    return (size_t)threads * ra_amx_forward_bytes(shape);
}

static void forward(const ra_forward_call *call) {
    (call->shape->dtype == RA_BF16 ? ra_amx_forward : overridden.forward)(call);
}

static void backward(const ra_backward_call *call) {
    (call->shape->dtype == RA_BF16 ? ra_amx_backward : overridden.backward)(call);
}

void ra_amx_override(ra_kernel *kernel) {
    overridden = *kernel;
    kernel->usable = usable;
    kernel->scratch_bytes = scratch_bytes;
    kernel->forward = forward;
    kernel->backward = backward;
}
