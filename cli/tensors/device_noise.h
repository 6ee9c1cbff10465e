/* Random tensors on a device, for timing. */
#ifndef CLI_DEVICE_NOISE_H
#define CLI_DEVICE_NOISE_H

#include "tensors/arrays.h"

/* Fills the inputs of arrays that are in a device's memory: a block of normal numbers, uploaded again and again. The
 * block's length divides no usual size, so rows differ from one another; whole tensors, made number by number here,
 * would take longer than what is timed. */
ra_status device_noise_fill(uint64_t seed, ra_dtype dtype, const rank_arrays *arrays);

#endif
