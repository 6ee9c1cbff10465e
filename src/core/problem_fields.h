/* The fields of ra_problem, once and in the structure's order: what fills in defaults, checks lengths, compares the
 * problems of two ranks and names a field that differs is made from this list.
 *
 *     X(kind, field, ...)
 *
 *     LENGTH, field, zero, most        at least 1; what 0 stands for (0: nothing, it is refused); the most it may be
 *     ARRAY, field, count              so many int64_t, or NULL
 *     NUMBER, FLAG, REAL, field        an integer; an integer that is zero or not; a double
 *     DTYPE, HEADS, OFFSET, COMBINE, field   an enum whose values have names
 *
 * Expressions call the problem p.
 */
#ifndef RA_CORE_PROBLEM_FIELDS_H
#define RA_CORE_PROBLEM_FIELDS_H

#include "core/problem.h"

#define RA_PROBLEM_LENGTHS(X)                                                                                          \
    X(LENGTH, batch, 1, 1 << 20)                                                                                       \
    X(LENGTH, seq_q, 0, RA_MAX_LENGTH)                                                                                 \
    X(LENGTH, seq_k, p->seq_q, RA_MAX_LENGTH)                                                                          \
    X(LENGTH, heads_q, 0, 1 << 16)                                                                                     \
    X(LENGTH, heads_kv, p->heads_q, p->heads_q)                                                                        \
    X(LENGTH, dim, 0, RA_MAX_DIM)                                                                                      \
    X(LENGTH, dim_v, p->dim, RA_MAX_DIM)

#define RA_PROBLEM_FIELDS(X)                                                                                           \
    X(DTYPE, dtype)                                                                                                    \
    X(DTYPE, out_dtype)                                                                                                \
    RA_PROBLEM_LENGTHS(X)                                                                                              \
    X(REAL, scale)                                                                                                     \
    X(FLAG, causal)                                                                                                    \
    X(NUMBER, window_left)                                                                                             \
    X(NUMBER, window_right)                                                                                            \
    X(NUMBER, documents)                                                                                               \
    X(ARRAY, cu_seqlens_q, p->documents + 1)                                                                           \
    X(ARRAY, cu_seqlens_k, p->documents + 1)                                                                           \
    X(NUMBER, branches)                                                                                                \
    X(ARRAY, dilated, 2 * p->branches)                                                                                 \
    X(HEADS, dilated_heads)                                                                                            \
    X(OFFSET, dilated_offset)                                                                                          \
    X(COMBINE, dilated_combine)

#endif
