/* What the portable kernel puts into the table: the choice between float and double. */
#include "kernel/cpu/portable/portable.h"

static int usable(void) {
    return 1;
}

static size_t scratch_bytes(const ra_shape *shape, int threads, int backward) {
    int is_double = shape->dtype == RA_F64;
    if (backward)
        return is_double ? ra_portable_backward_bytes_f64(shape, threads)
                         : ra_portable_backward_bytes_f32(shape, threads);
    return (size_t)threads * (is_double ? ra_portable_forward_bytes_f64(shape) : ra_portable_forward_bytes_f32(shape));
}

static void forward(const ra_forward_call *call) {
    if (call->shape->dtype == RA_F64)
        ra_portable_forward_f64(call);
    else
        ra_portable_forward_f32(call);
}

static void backward(const ra_backward_call *call) {
    if (call->shape->dtype == RA_F64)
        ra_portable_backward_f64(call);
    else
        ra_portable_backward_f32(call);
}

void ra_portable_override(ra_kernel *kernel) {
    kernel->usable = usable;
    kernel->scratch_bytes = scratch_bytes;
    kernel->forward = forward;
    kernel->backward = backward;
}
