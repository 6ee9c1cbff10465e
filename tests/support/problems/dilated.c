#include "support/problems/dilated.h"

#include "support/cmocka.h"

ra_problem dilated_problem(int64_t seq, int64_t heads, int causal, const ra_branch *branches, int64_t count) {
    ra_problem p = RA_PROBLEM_INIT, n;
    p.seq_q = seq;
    p.heads_q = heads;
    p.dim = 8;
    p.causal = causal;
    p.branches = count;
    p.dilated = branches;
    assert_int_equal(ra_problem_normalise(&p, &n), RA_OK);
    return n;
}
