/* What the machine could do at best: the rate of fused multiply-adds of a loop that does nothing else. */
#ifndef CLI_PEAK_H
#define CLI_PEAK_H

#include <ringattn/ringattn.h>

/* In 1e9 operations a second (an addition or a multiplication each), on `threads` threads together. Takes about a
 * tenth of a second. bf16 and f16 are computed with as f32. */
double peak_gflops(ra_dtype dtype, int threads);

#endif
