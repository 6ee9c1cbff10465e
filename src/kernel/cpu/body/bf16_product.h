/* Products of bf16: C [m, n] of float = or += A [m, depth] . B [depth, n] of bf16, accumulated in float. The
 * instructions there are for it (VDPBF16PS, TDPBF16PS) multiply two neighbours along the depth at once:
 *
 *   A, by rows: `depth` elements in order, any distance from row to row
 *   B, in panels of 16 columns: for every two depths 16 columns x 2, a line of 64 bytes
 *
 *      depth 0,1 | (0,0)(1,0) (0,1)(1,1) (0,2)(1,2) ... |       (depth, column)
 *      depth 2,3 | (2,0)(3,0) ...                       |
 *
 * m and n are multiples of 16 and depth is one of 32: beyond what counts there are zeros in at least one factor.
 * Numbers too small to be normal count as 0, in both instructions.
 */
#ifndef RA_KERNEL_BF16_PRODUCT_H
#define RA_KERNEL_BF16_PRODUCT_H

#include <stdint.h>

enum { LINE = 32 /* elements of a line */, COLUMNS = 16 /* of a panel */, DEPTH = 32 };

typedef uint16_t half; /* the bits of a bf16 */

typedef struct bf16_panels {
    const half *data;
    int64_t panel; /* elements from one panel to the next */
    int64_t depth, n;
} bf16_panels;

enum product_kind { STORE, ADD };

#endif
