/* The kernel that is obviously right: one query row (or one key row) at a time, in doubles, straight from the
 * definition. Every other kernel is compared with it. It runs on the calling thread only and needs no scratch. */
#ifndef RA_KERNEL_REF_H
#define RA_KERNEL_REF_H

#include "kernel/kernel.h"

void ra_ref_forward(const ra_forward_call *call);
void ra_ref_backward(const ra_backward_call *call);

/* Puts them into the table. */
void ra_ref_override(ra_kernel *kernel);

#endif
