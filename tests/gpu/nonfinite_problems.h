/* Problems of gpu_nonfinite.cu: what they are, what comes out of them on the device, and whether that is as the rule
 * has it. */
#ifndef RA_TESTS_GPU_NONFINITE_PROBLEMS_H
#define RA_TESTS_GPU_NONFINITE_PROBLEMS_H

#include "kernel_setup.h"

#include <vector>

enum { CALLS = 2 }; /* keys mostly come in two calls, so that states are merged */
enum { RANKS = 3 }; /* at most: queries are sometimes those of several, in the forward pass */

/* [rows, heads, dim] with gaps between rows, in the type and as doubles. */
struct tensor {
    int64_t rows, heads, dim, pitch;
    std::vector<double> exact;
    void *device;
    double at(int64_t row, int64_t h, int64_t d) const {
        return exact[(size_t)(row * pitch + h * dim + d)];
    }
    double &at(int64_t row, int64_t h, int64_t d) {
        return exact[(size_t)(row * pitch + h * dim + d)];
    }
    ra_view view(void) const {
        return {device, 0, pitch, dim, 1};
    }
};

struct problem {
    unsigned seed;
    ra_shape shape;
    ra_dtype acc;
    int64_t keys, split; /* keys [0, split) in the first call */
    int calls;           /* 1: all keys in one */
    int begins;          /* the only call begins the state itself, where it can */
    int64_t o_gap;       /* elements between the rows of o */
    int64_t lo, hi;      /* key - query of those visible */
    bool whole_scores;   /* small integers times powers of 2: scores are exact in every type */
    tensor q, dout, k, v;
    ra_tile tiles[CALLS];
    ra_tile_group groups[CALLS];
    ra_tile_round rounds[CALLS];
    ra_tile_list lists[CALLS];
    int ranks; /* whose queries they are in the forward pass, an even share each */
    ra_tile rank_tiles[CALLS][RANKS];
    ra_tile_group rank_groups[RANKS];
    ra_tile_round rank_round;
};

struct results {
    std::vector<double> o, lse, delta, dq, dk, dv; /* C-order; lse and delta [heads, rows] */
    bool same;                                     /* o is what it is when no lse is wanted */
};

/* The first row of a rank. */
int64_t first_row_of(const problem &p, int rank);

void make_problem(problem *p, ra_dtype dtype, unsigned seed);

/* Both passes, by the chosen kernel. */
results run_problem(const problem &p);

/* How many elements are not as the rule says; the first 20 of a program are printed. */
int count_wrong(const problem &p, const results &got);

#endif
