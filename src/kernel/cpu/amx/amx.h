/* bf16 by AMX-BF16 (TDPBF16PS): the bf16 bodies. forward_amx.c and backward_amx.c are compiled for
 * those instructions and may only be called where `usable` says so. Other types are the AVX-512 kernel's. */
#ifndef RA_KERNEL_AMX_H
#define RA_KERNEL_AMX_H

#include "kernel/kernel.h"

void ra_amx_forward(const ra_forward_call *call);
void ra_amx_backward(const ra_backward_call *call);

/* Scratch: forward of one thread, a multiple of 64; backward of all. */
size_t ra_amx_forward_bytes(const ra_shape *shape);
size_t ra_amx_backward_bytes(const ra_shape *shape, int threads);

/* Puts the kernel into the table, over the AVX-512 kernel. */
void ra_amx_override(ra_kernel *kernel);

#endif
