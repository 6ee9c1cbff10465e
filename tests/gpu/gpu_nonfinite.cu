/* Infinities, NaN and huge scores at random places in q, k, v and dout: both passes of every CUDA kernel and type
 * against the rule, worked out in doubles pair by pair.
 *
 *   gpu_nonfinite [--kernel NAME] [--seeds N] [--seed FIRST]
 *
 * A seed is a problem of each type that a kernel has code of its own for, sixteen on Hopper. In some the queries are
 * those of several ranks, in some the pairs of a call count several times.
 *
 * The rule. A pair takes part when it is visible and its score is not -inf. A row that has a part in a score of +inf or
 * NaN has o, lse and dq NaN, and makes NaN of dk and dv of its keys; a value or gradient that is not finite makes
 * whatever is multiplied by it not finite, a weight of 0 included; and nothing reaches what has no part in it. One
 * thing is left open: o where the score is -inf and the value is not finite.
 *
 * What is finite is compared, element by element, with a tolerance relative to the sum of the terms' sizes. Scores
 * whose own rounding would show (huge ones that f32 cannot hold) must still give finite results, with o between the
 * values.
 */
#include "nonfinite_problems.h"

#include <cstdio>
#include <cstring>

/* The types for which the kernel has code that those before it in the table have not. */
static std::vector<ra_dtype> types_of(const ra_kernel *of) {
    if (strcmp(of->name, "cuda_sm80") == 0) return {RA_F32, RA_F64, RA_BF16, RA_F16};
    if (strcmp(of->name, "cuda_sm75") == 0) return {RA_F32, RA_F16};
    if (strcmp(of->name, "cuda_sm86") == 0) return {RA_F32, RA_F64, RA_BF16, RA_F16};
    if (strncmp(of->name, "cuda_sm90", 9) == 0) return {RA_BF16, RA_F16};
    return {RA_F32};
}

int main(int argc, char **argv) {
    kernel_options options = {NULL, 1, 150, 0, 0};
    kernel_options_read(&options, "gpu_nonfinite", argc, argv);
    if (!kernel_choose(options.name)) return 0;
    int problems = 0, bad = 0;
    for (unsigned seed = options.first; seed < options.first + options.seeds; seed++)
        for (int n = 0; ra_cuda_kernel_at(n); n++) {
            kernel = ra_cuda_kernel_at(n);
            if (!kernel->usable() || (options.name && strcmp(options.name, kernel->name) != 0)) continue;
            for (ra_dtype dtype : types_of(kernel)) {
                problem p;
                make_problem(&p, dtype, seed);
                bad += count_wrong(p, run_problem(p)) != 0;
                problems++;
                give_all_back();
            }
        }
    printf("%d problems, %d wrong\n", problems, bad);
    return bad != 0;
}
