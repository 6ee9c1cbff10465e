/* The columns of an accumulator's row that a thread has and that are visible, as the bits of words, of which the
 * compiler makes predicates seven at a time: that is fewer instructions than comparisons for each element.
 *
 * A thread has two neighbours of every 8 columns. Here they are numbered without gaps: column 8 n + e, counted from the
 * thread's first one, is number 2 n + e.
 */
#ifndef RA_KERNEL_CUDA_SM90_COLUMN_BITS_CUH
#define RA_KERNEL_CUDA_SM90_COLUMN_BITS_CUH

#include <stdint.h>

/* How many of the thread's columns are below column `end`. */
__device__ __forceinline__ int columns_below(int end) {
    end = max(end, 0);
    return end / 8 * 2 + min(end % 8, 2);
}

/* Bits [from, to), as far as a word has them; neither is negative. */
__device__ __forceinline__ uint32_t bits_between(int from, int to) {
    uint32_t bits;
    asm("bmsk.clamp.b32 %0, %1, %2;\n" : "=r"(bits) : "r"(from), "r"(max(to - from, 0)));
    return bits;
}

/* Of columns [from, to), the 32 from `first` on. */
__device__ __forceinline__ uint32_t column_bits(int from, int to, int first) {
    return bits_between(max(from - first, 0), max(to - first, 0));
}

#endif
