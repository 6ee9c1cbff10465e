/* Rows of files. A file holds [outer, n, row]; a rank has rows `positions` of the n, in increasing order, and reads or
 * writes those alone. Rows that stand together move together. */
#ifndef CLI_NPY_ROWS_H
#define CLI_NPY_ROWS_H

#include "files/npy_file.h"

#include <ringattn/ringattn.h>

/* All of the bytes or an error, which names `what`. */
ra_status rows_pread(const char *what, int fd, void *data, size_t bytes, int64_t offset);
ra_status rows_pwrite(const char *what, int fd, const void *data, size_t bytes, int64_t offset);

/* file [batch, n, heads, dim] of any type to data_out [batch, rows, heads, dim] of dtype. comm: its ranks are told in
 * between that this one is alive, however slow the file is. */
ra_status rows_read(ra_comm *comm, const npy_file *file, const int64_t *positions, int64_t rows, ra_dtype dtype,
                    void *data_out);

/* data [outer, rows, row_bytes] to the file, whose array [outer, n, row_bytes] begins at offset. comm: likewise. */
ra_status rows_write(ra_comm *comm, const char *what, int fd, int64_t offset, int64_t outer, int64_t n,
                     size_t row_bytes, const int64_t *positions, int64_t rows, const void *data);

#endif
