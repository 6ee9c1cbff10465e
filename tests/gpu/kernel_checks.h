/* The checks of kernel_check. They say what is wrong and count it in `failures`. */
#ifndef TESTS_GPU_KERNEL_CHECKS_H
#define TESTS_GPU_KERNEL_CHECKS_H

#include "kernel_setup.h"

/* Row operations: the bits of the CPU's. */
void check_rows(unsigned seed, ra_dtype dtype);

/* Copies and zeros within device memory. */
void check_bytes(unsigned seed);

/* Tiles of every type: what their definition gives. */
void check_random(unsigned first, unsigned seeds);

/* Inputs with infinities and NaN: finite where the ref kernel is, and the other way round. */
void check_nonfinite(unsigned seed, ra_dtype dtype);

/* Outputs that a forward call finishes, with infinities and NaN among the values. */
void check_finished(unsigned seed, ra_dtype dtype);

/* Scores that rise or fall from key to key: what fp64 gives. */
void check_rising(unsigned seed, ra_dtype dtype);

/* Rows that see thousands of keys, of 16-bit types: what fp64 gives. */
void check_long(unsigned seed, ra_dtype dtype);

/* Gradients that a call overwrites: the bits of those that it adds to zeros; and that it finishes: of those, stored. */
void check_overwrite(unsigned seed, ra_dtype dtype);

/* The backward pass: the same bits every time. */
void check_repeats(int repeats);

#endif
