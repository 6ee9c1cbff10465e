/* A blocked flash kernel in plain C with the compilers' vector types: the baseline of every CPU, and what a kernel for
 * one instruction set falls back to.
 *
 * partition/ divides the work among threads: blocks of query rows forward, blocks of keys backward; the bits do not
 * depend on the number of threads. Only a block of scores exists at any time. The bodies (*_body.inc) are written
 * for a type REAL and a vector of it; a type header says which, how many registers a product may use, and how rows are
 * read and exponentials taken. Every other CPU kernel but ref has these bodies with its own type headers, or, for
 * bf16, the bodies that multiply bf16 as it is.
 */
#ifndef RA_KERNEL_PORTABLE_H
#define RA_KERNEL_PORTABLE_H

#include "kernel/kernel.h"

void ra_portable_forward_f32(const ra_forward_call *call);
void ra_portable_forward_f64(const ra_forward_call *call);
void ra_portable_backward_f32(const ra_backward_call *call);
void ra_portable_backward_f64(const ra_backward_call *call);

/* Scratch: forward of one thread, a multiple of 64; backward of all. */
size_t ra_portable_forward_bytes_f32(const ra_shape *shape);
size_t ra_portable_forward_bytes_f64(const ra_shape *shape);
size_t ra_portable_backward_bytes_f32(const ra_shape *shape, int threads);
size_t ra_portable_backward_bytes_f64(const ra_shape *shape, int threads);

/* x[i] = e^x[i] as the kernel computes it: for its test. */
void ra_portable_exp_f32(float *x, int64_t count);
void ra_portable_exp_f64(double *x, int64_t count);

/* Puts the kernel into the table. */
void ra_portable_override(ra_kernel *kernel);

#endif
