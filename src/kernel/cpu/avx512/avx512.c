/* What the AVX-512 kernel puts into the table: the choice between float and double. */
#include "kernel/cpu/avx512/avx512.h"

#include "base/cpu.h"

static int usable(void) {
    return ra_cpu_has("avx512f") && ra_cpu_has("avx512bw") && ra_cpu_has("avx512vl") && ra_cpu_has("avx512dq") &&
           ra_cpu_has("avx2") && ra_cpu_has("fma") && ra_cpu_has("f16c");
}

static size_t scratch_bytes(const ra_shape *shape, int threads, int backward) {
    int is_double = shape->dtype == RA_F64;
    if (backward)
        return is_double ? ra_avx512_backward_bytes_f64(shape, threads) : ra_avx512_backward_bytes_f32(shape, threads);
    return (size_t)threads * (is_double ? ra_avx512_forward_bytes_f64(shape) : ra_avx512_forward_bytes_f32(shape));
}

static void forward(const ra_forward_call *call) {
    if (call->shape->dtype == RA_F64)
        ra_avx512_forward_f64(call);
    else
        ra_avx512_forward_f32(call);
}

static void backward(const ra_backward_call *call) {
    if (call->shape->dtype == RA_F64)
        ra_avx512_backward_f64(call);
    else
        ra_avx512_backward_f32(call);
}

void ra_avx512_override(ra_kernel *kernel) {
    kernel->usable = usable;
    kernel->scratch_bytes = scratch_bytes;
    kernel->forward = forward;
    kernel->backward = backward;
}
