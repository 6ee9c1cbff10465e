/* The kernel table for C++: its functions are C functions. */
#ifndef RA_KERNEL_CUDA_KERNEL_TABLE_H
#define RA_KERNEL_CUDA_KERNEL_TABLE_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernel/kernel.h"

#ifdef __cplusplus
}
#endif

#endif
