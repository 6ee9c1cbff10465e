/* .npy files: numpy's format, versions 1 to 3, for C-order little-endian f2, f4 and f8.
 *
 *   "\x93NUMPY" major minor | header length (2 or 4 bytes) | {'descr': ..., 'fortran_order': ..., 'shape': ...} | data
 */
#ifndef CLI_NPY_FILE_H
#define CLI_NPY_FILE_H

#include <ringattn/ringattn.h>

enum { NPY_DIMS_MAX = 8, NPY_PREFIX_BYTES = 12, NPY_HEADER_BYTES_MAX = 1 << 16 };

typedef struct npy_header {
    ra_dtype dtype; /* RA_F16, RA_F32 or RA_F64 */
    int dims;
    int64_t shape[NPY_DIMS_MAX];
    int64_t data_offset, data_bytes; /* of the file */
} npy_header;

/* bytes: the beginning of a file, at least NPY_PREFIX_BYTES of it unless the file is shorter. Sets how many bytes from
 * the beginning of the file npy_parse needs. what: the argument that errors name. Pure. */
ra_status npy_measure(const char *what, const unsigned char *bytes, size_t count, size_t *needed_out);

/* bytes: exactly as many as npy_measure said. Pure. */
ra_status npy_parse(const char *what, const unsigned char *bytes, size_t count, npy_header *header_out);

/* An input file [batch, rows, heads, dim]. */
typedef struct npy_file {
    const char *what, *path;
    int fd;
    npy_header header;
} npy_file;

/* Opens and checks everything but the data: that it is a regular file, an array of four dimensions none of which is
 * zero, and exactly as long as its header says. */
ra_status npy_open(const char *what, const char *path, npy_file *file_out);
void npy_close(npy_file *file);

/* The bytes of a header, a multiple of 64 so that the data behind it is aligned. buffer [NPY_WRITE_BYTES]. */
enum { NPY_WRITE_BYTES = 512 };
size_t npy_format(ra_dtype dtype, int dims, const int64_t *shape, char *buffer);

#endif
