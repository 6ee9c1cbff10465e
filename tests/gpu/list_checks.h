/* The parts of list_check. */
#ifndef TESTS_GPU_LIST_CHECKS_H
#define TESTS_GPU_LIST_CHECKS_H

enum { ROWS = 64, KEYS = 64 }; /* of blocks */

/* How often something was wrong. */
extern int failures;

void expect(bool right, const char *what, unsigned seed);

/* Random lists of so many seeds. */
void check_merges(unsigned seeds);

/* Tensor maps of random lists of so many seeds. */
void check_maps(unsigned seeds);

/* The order in which units are taken (unit_order.cuh). */
void check_order(void);

#endif
