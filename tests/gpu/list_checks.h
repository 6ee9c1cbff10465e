/* The parts of list_check. */
#ifndef TESTS_GPU_LIST_CHECKS_H
#define TESTS_GPU_LIST_CHECKS_H

#include "kernel/cuda/prepared.cuh"

enum { ROWS = 64, KEYS = 64 }; /* of blocks */

/* How often something was wrong. */
extern int failures;

void expect(bool right, const char *what, unsigned seed);

/* The items of a backward pass: lists that are whole but for their place. parts: NULL: views have all heads. */
void check_items_of(const gpu_lists &lists, const ra_shape &shape, const ra_kv_rows *parts, int turn_group,
                    unsigned seed);

/* Items of a few lists: heads unevenly apart, several ranks, heads by turns. */
void check_items(void);

/* Lists of dilated problems on several ranks, whose keys lie in slots. */
void check_slots(void);

/* Merged tiles of random lists of so many seeds have the keys that they had. */
void check_merges(unsigned seeds);

/* What the units of random lists of so many seeds cost. */
void check_costs(unsigned seeds);

/* Tensor maps of random lists of so many seeds. */
void check_maps(unsigned seeds);

/* The order in which units are taken (unit_order.cuh). */
void check_order(void);

#endif
