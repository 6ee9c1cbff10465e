/* The bodies for AVX2 with FMA and F16C. All files here but avx2.c are compiled for those instructions and may only be
 * called where `usable` says so. */
#ifndef RA_KERNEL_AVX2_H
#define RA_KERNEL_AVX2_H

#include "kernel/kernel.h"

void ra_avx2_forward_f32(const ra_forward_call *call);
void ra_avx2_forward_f64(const ra_forward_call *call);
void ra_avx2_backward_f32(const ra_backward_call *call);
void ra_avx2_backward_f64(const ra_backward_call *call);

/* Scratch: forward of one thread, a multiple of 64; backward of all. */
size_t ra_avx2_forward_bytes_f32(const ra_shape *shape);
size_t ra_avx2_forward_bytes_f64(const ra_shape *shape);
size_t ra_avx2_backward_bytes_f32(const ra_shape *shape, int threads);
size_t ra_avx2_backward_bytes_f64(const ra_shape *shape, int threads);

/* x[i] = e^x[i] as the kernel computes it: for its test. */
void ra_avx2_exp_f32(float *x, int64_t count);
void ra_avx2_exp_f64(double *x, int64_t count);

/* Puts the kernel into the table. */
void ra_avx2_override(ra_kernel *kernel);

#endif
