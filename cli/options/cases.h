/* One case: the sizes and choices of one run. Flags that were given several values make several. */
#ifndef CLI_CASES_H
#define CLI_CASES_H

#include "options/options.h"

typedef struct cli_case {
    int64_t batch, seq_q, seq_k, heads_q, heads_kv, dim, dim_v;
    ra_dtype dtype;
    ra_layout layout;
    ra_strategy strategy;
    char kernel[64]; /* a name, or auto */
    int ranks;
} cli_case;

/* How many cases the flags make, and the i-th of them; seq_default and ranks_default where the flag was not given. */
int64_t cases_count(const cli_options *options);
cli_case cases_at(const cli_options *options, int64_t i, int64_t seq_default, int ranks_default);

/* The problem, with f32 outputs for bf16 and f16. It keeps pointers into options. Refuses, naming the flag, documents
 * that do not fit the case. */
ra_status cases_problem(const cli_options *options, const cli_case *one, ra_problem *problem_out);

/* Likewise how it is computed, on the CPU: devices_choose adds another device. It keeps a pointer to one->kernel. */
ra_options cases_options(const cli_options *options, const cli_case *one, int backward);

#endif
