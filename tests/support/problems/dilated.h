/* Dilated problems of one document, of as many queries as keys and rows of 8 elements, ready to be cut. */
#ifndef TESTS_SUPPORT_DILATED_H
#define TESTS_SUPPORT_DILATED_H

#include "core/problem.h"

/* count 0: no dilation. The branches must stay. */
ra_problem dilated_problem(int64_t seq, int64_t heads, int causal, const ra_branch *branches, int64_t count);

#endif
