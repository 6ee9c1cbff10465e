/* A sample of a result's rows against the definition, in fp64. */
#ifndef CLI_CHECK_ROWS_H
#define CLI_CHECK_ROWS_H

#include "files/npy_file.h"
#include "files/outputs.h"
#include "tensors/compare.h"

/* Called between rows; an error ends the check. */
typedef ra_status (*check_rows_tick)(void *user);

/* Compares `rows` rows of out, which is open and whole, spread over batch, heads and sequence. Holds the keys and
 * values of one head in doubles. Sets *deviation_out. */
ra_status check_rows(const ra_problem *problem, const npy_file *q, const npy_file *k, const npy_file *v,
                     const output_file *out, int64_t rows, check_rows_tick tick, void *user, deviation *deviation_out);

#endif
