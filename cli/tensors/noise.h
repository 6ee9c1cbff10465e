/* Random tensors: every element is a function of the seed, which tensor it is in and where it stands, so that any rank
 * can make its own rows and all ranks together make the same tensor whatever the layout. */
#ifndef CLI_NOISE_H
#define CLI_NOISE_H

#include <ringattn/ringattn.h>

/* A standard normal number. */
double noise_at(uint64_t seed, uint64_t tensor, uint64_t index);

/* data_out [batch, rows, width] of dtype: rows `positions` of a tensor [batch, n, width]; positions NULL: all n. */
ra_status noise_fill(uint64_t seed, uint64_t tensor, int64_t batch, int64_t n, int64_t width, const int64_t *positions,
                     int64_t rows, ra_dtype dtype, void *data_out);

#endif
