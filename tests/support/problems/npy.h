/* Reads the golden files: C-order little-endian f8 .npy arrays of up to four dimensions. */
#ifndef RA_TESTS_SUPPORT_NPY_H
#define RA_TESTS_SUPPORT_NPY_H

#include <stdint.h>

typedef struct test_npy {
    double *data;     /* to be freed */
    int64_t shape[4]; /* 1 past the last dimension */
    int64_t count;
} test_npy;

/* Returns NULL, or a sentence about what is wrong with the file. */
const char *test_npy_read(const char *path, test_npy *array_out);

#endif
