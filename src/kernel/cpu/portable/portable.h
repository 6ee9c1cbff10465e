/* A blocked flash kernel in plain C with the compilers' vector types: the baseline of every CPU, and what a kernel for
 * one instruction set falls back to.
 *
 *   units of work, forward: (group, batch, head, block of query rows); backward: (batch, key/value head)
 *
 * Each unit owns what it writes, so the bits do not depend on the number of threads. Only a block of scores exists at
 * any time. The bodies (*.inc) are written for a type REAL and compiled once for float and once for double.
 */
#ifndef RA_KERNEL_PORTABLE_H
#define RA_KERNEL_PORTABLE_H

#include "kernel/kernel.h"

void ra_portable_forward_f32(const ra_forward_call *call);
void ra_portable_forward_f64(const ra_forward_call *call);
void ra_portable_backward_f32(const ra_backward_call *call);
void ra_portable_backward_f64(const ra_backward_call *call);

/* Scratch of one thread: a multiple of 64. */
size_t ra_portable_forward_bytes_f32(const ra_shape *shape);
size_t ra_portable_forward_bytes_f64(const ra_shape *shape);
size_t ra_portable_backward_bytes_f32(const ra_shape *shape);
size_t ra_portable_backward_bytes_f64(const ra_shape *shape);

/* Puts the kernel into the table. */
void ra_portable_override(ra_kernel *kernel);

#endif
