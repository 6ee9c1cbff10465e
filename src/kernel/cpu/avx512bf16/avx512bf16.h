/* bf16 by AVX-512-BF16 (VDPBF16PS): the bf16 bodies. forward_avx512bf16.c and backward_avx512bf16.c
 * are compiled for those instructions and may only be called where `usable` says so. Other types are the AVX-512
 * kernel's. */
#ifndef RA_KERNEL_AVX512BF16_H
#define RA_KERNEL_AVX512BF16_H

#include "kernel/kernel.h"

void ra_avx512bf16_forward(const ra_forward_call *call);
void ra_avx512bf16_backward(const ra_backward_call *call);

/* Scratch: forward of one thread, a multiple of 64; backward of all. */
size_t ra_avx512bf16_forward_bytes(const ra_shape *shape);
size_t ra_avx512bf16_backward_bytes(const ra_shape *shape, int threads);

/* Puts the kernel into the table, over the AVX-512 kernel. */
void ra_avx512bf16_override(ra_kernel *kernel);

#endif
