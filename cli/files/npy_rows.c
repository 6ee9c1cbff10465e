#include "files/npy_rows.h"

#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Rows are converted through a buffer of about this size, and written in pieces of no more than that. */
enum { CHUNK_BYTES = 1 << 20, WRITE_BYTES = 1 << 24 };

ra_status rows_pread(const char *what, int fd, void *data, size_t bytes, int64_t offset) {
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(fd, (char *)data + done, bytes - done, (off_t)(offset + (int64_t)done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return ra_fail(CLI_FAILED, "%s: reading failed: %s", what, strerror(errno));
        if (got == 0) CLI_RETURN_REFUSAL("%s: the file became shorter while it was read", what);
        done += (size_t)got;
    }
    return RA_OK;
}

ra_status rows_pwrite(const char *what, int fd, const void *data, size_t bytes, int64_t offset) {
    for (size_t done = 0; done < bytes;) {
        ssize_t put = pwrite(fd, (const char *)data + done, bytes - done, (off_t)(offset + (int64_t)done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0)
            return ra_fail(CLI_FAILED, "%s: writing failed: %s", what, put < 0 ? strerror(errno) : "nothing was taken");
        done += (size_t)put;
    }
    return RA_OK;
}

/* How many of the rows from `row` on, at most `most`, stand together. */
static int64_t run_of(const int64_t *positions, int64_t rows, int64_t row, int64_t most) {
    int64_t count = 1;
    while (count < most && row + count < rows && positions[row + count] == positions[row] + count) ++count;
    return count;
}

/* How many rows of so many bytes make a piece of at most `bytes`. */
static int64_t rows_in(int64_t bytes, int64_t row_bytes) {
    return row_bytes < bytes ? bytes / row_bytes : 1;
}

ra_status rows_read(ra_comm *comm, const npy_file *file, const int64_t *positions, int64_t rows, ra_dtype dtype,
                    void *data_out) {
    const npy_header *h = &file->header;
    int64_t width = h->shape[2] * h->shape[3], row_bytes = width * (int64_t)ra_dtype_bytes(h->dtype);
    int64_t most = rows_in(CHUNK_BYTES, row_bytes);
    size_t to_bytes = (size_t)width * ra_dtype_bytes(dtype);
    void *buffer = malloc((size_t)(most * row_bytes));
    if (!buffer) return ra_fail(RA_ERR_MEMORY, "%s: no memory to read through", file->what);
    ra_status status = RA_OK;
    for (int64_t b = 0; b < h->shape[0]; ++b) {
        for (int64_t row = 0, count; status == RA_OK && row < rows; row += count) {
            count = run_of(positions, rows, row, most);
            int64_t offset = h->data_offset + (b * h->shape[1] + positions[row]) * row_bytes;
            status = rows_pread(file->what, file->fd, buffer, (size_t)(count * row_bytes), offset);
            if (status != RA_OK) break;
            char *to = (char *)data_out + (size_t)(b * rows + row) * to_bytes;
            status = ra_convert(dtype, to, h->dtype, buffer, count * width);
            ra_comm_progress(comm);
        }
    }
    free(buffer);
    return status;
}

ra_status rows_write(ra_comm *comm, const char *what, int fd, int64_t offset, int64_t outer, int64_t n,
                     size_t row_bytes, const int64_t *positions, int64_t rows, const void *data) {
    int64_t most = rows_in(WRITE_BYTES, (int64_t)row_bytes);
    for (int64_t i = 0; i < outer; ++i) {
        for (int64_t row = 0, count; row < rows; row += count) {
            count = run_of(positions, rows, row, most);
            const char *from = (const char *)data + (size_t)(i * rows + row) * row_bytes;
            int64_t to = offset + (i * n + positions[row]) * (int64_t)row_bytes;
            CLI_RETURN_ON_ERROR(rows_pwrite(what, fd, from, (size_t)count * row_bytes, to));
            ra_comm_progress(comm);
        }
    }
    return RA_OK;
}
