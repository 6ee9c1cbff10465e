#include "files/npy_file.h"

#include "cli.h"
#include "files/npy_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the command moves little-endian elements between files and memory as they stand"
#endif

/* ---- the header, from bytes ------------------------------------------------------------------------------------ */

ra_status npy_measure(const char *what, const unsigned char *bytes, size_t count, size_t *needed_out) {
    if (count < 6 || memcmp(bytes, "\x93NUMPY", 6) != 0) CLI_RETURN_REFUSAL("%s: is not a .npy file", what);
    if (count < NPY_PREFIX_BYTES) CLI_RETURN_REFUSAL("%s: is truncated: its header is not whole", what);
    int major = bytes[6];
    if (major < 1 || major > 3)
        CLI_RETURN_REFUSAL("%s: is .npy version %d.%d; versions 1 to 3 are read", what, major, bytes[7]);
    size_t length = bytes[8] | (size_t)bytes[9] << 8;
    if (major > 1) length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (length > NPY_HEADER_BYTES_MAX)
        CLI_RETURN_REFUSAL("%s: its header claims %zu bytes, which no array of numbers needs", what, length);
    *needed_out = (major > 1 ? 12 : 10) + length;
    return RA_OK;
}

/* A reader over the header's text, a Python dictionary of literals. */
typedef struct reader {
    const char *what;
    const char *at, *end;
} reader;

static ra_status garbled(const reader *r) {
    CLI_RETURN_REFUSAL("%s: its header is not a .npy header", r->what);
}

static void skip_blanks(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t')) ++r->at;
}

/* Takes `symbol` if it comes next. */
static int take(reader *r, char symbol) {
    skip_blanks(r);
    if (r->at == r->end || *r->at != symbol) return 0;
    ++r->at;
    return 1;
}

/* Takes a quoted string of at most size - 1 plain characters. */
static ra_status take_string(reader *r, char *text_out, size_t size) {
    skip_blanks(r);
    if (r->at == r->end || (*r->at != '\'' && *r->at != '"')) return garbled(r);
    char quote = *r->at++;
    size_t length = 0;
    for (; r->at < r->end && *r->at != quote; ++r->at) {
        if (*r->at < ' ' || *r->at > '~' || *r->at == '\\' || length + 1 >= size) return garbled(r);
        text_out[length++] = *r->at;
    }
    text_out[length] = '\0';
    return take(r, quote) ? RA_OK : garbled(r);
}

static int take_word(reader *r, const char *word) {
    skip_blanks(r);
    size_t length = strlen(word);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0) return 0;
    r->at += length;
    return 1;
}

static ra_status take_length(reader *r, int64_t *length_out) {
    skip_blanks(r);
    const char *begin = r->at;
    int64_t length = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; ++r->at)
        if (__builtin_mul_overflow(length, 10, &length) || __builtin_add_overflow(length, *r->at - '0', &length))
            CLI_RETURN_REFUSAL("%s: its shape is too large", r->what);
    *length_out = length;
    return r->at > begin ? RA_OK : garbled(r);
}

/* ( ), (3,), (3, 4): a comma follows every length but possibly the last of several. */
static ra_status take_shape(reader *r, npy_header *header) {
    if (!take(r, '(')) return garbled(r);
    header->dims = 0;
    int comma = 1;
    while (!take(r, ')')) {
        if (!comma) return garbled(r);
        if (header->dims == NPY_DIMS_MAX) CLI_RETURN_REFUSAL("%s: has more than %d dimensions", r->what, NPY_DIMS_MAX);
        CLI_RETURN_ON_ERROR(take_length(r, &header->shape[header->dims++]));
        comma = take(r, ',');
    }
    return header->dims == 1 && !comma ? garbled(r) : RA_OK;
}

static ra_status take_descr(reader *r, ra_dtype *dtype_out) {
    char descr[16];
    skip_blanks(r);
    if (r->at < r->end && *r->at == '[') CLI_RETURN_REFUSAL("%s: holds records; give f2, f4 or f8", r->what);
    CLI_RETURN_ON_ERROR(take_string(r, descr, sizeof descr));
    static const struct {
        const char *descr;
        ra_dtype dtype;
    } types[] = {{"f2", RA_F16}, {"f4", RA_F32}, {"f8", RA_F64}};
    for (int i = 0; i < 3; ++i) {
        *dtype_out = types[i].dtype;
        if (descr[0] == '<' && strcmp(descr + 1, types[i].descr) == 0) return RA_OK;
    }
    CLI_RETURN_REFUSAL("%s: holds '%s'; give little-endian f2, f4 or f8 ('<f2', '<f4', '<f8')", r->what, descr);
}

static ra_status take_order(reader *r) {
    if (take_word(r, "False")) return RA_OK;
    if (take_word(r, "True")) CLI_RETURN_REFUSAL("%s: is in Fortran order; give a C-order array", r->what);
    return garbled(r);
}

static ra_status take_entry(reader *r, npy_header *header, unsigned *seen) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[16];
    CLI_RETURN_ON_ERROR(take_string(r, key, sizeof key));
    int which = 0;
    while (which < 3 && strcmp(key, keys[which]) != 0) ++which;
    if (which == 3 || (*seen & 1u << which) || !take(r, ':')) return garbled(r);
    *seen |= 1u << which;
    if (which == 0) return take_descr(r, &header->dtype);
    return which == 1 ? take_order(r) : take_shape(r, header);
}

static ra_status parse_dictionary(reader *r, npy_header *header) {
    unsigned seen = 0;
    int comma = 1;
    if (!take(r, '{')) return garbled(r);
    while (!take(r, '}')) {
        if (!comma) return garbled(r);
        CLI_RETURN_ON_ERROR(take_entry(r, header, &seen));
        comma = take(r, ',');
    }
    skip_blanks(r);
    return seen == 7 && r->at == r->end ? RA_OK : garbled(r);
}

ra_status npy_parse(const char *what, const unsigned char *bytes, size_t count, npy_header *header_out) {
    size_t needed = 0;
    CLI_RETURN_ON_ERROR(npy_measure(what, bytes, count, &needed));
    if (count != needed) CLI_RETURN_REFUSAL("%s: is truncated: its header is not whole", what);
    npy_header header = {.data_offset = (int64_t)count};
    reader r = {what, (const char *)bytes + (bytes[6] > 1 ? 12 : 10), (const char *)bytes + count};
    CLI_RETURN_ON_ERROR(parse_dictionary(&r, &header));
    header.data_bytes = (int64_t)ra_dtype_bytes(header.dtype);
    int64_t end;
    for (int i = 0; i < header.dims; ++i)
        if (__builtin_mul_overflow(header.data_bytes, header.shape[i], &header.data_bytes))
            CLI_RETURN_REFUSAL("%s: its shape is too large", what);
    if (__builtin_add_overflow(header.data_bytes, header.data_offset, &end))
        CLI_RETURN_REFUSAL("%s: its shape is too large", what);
    *header_out = header;
    return RA_OK;
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

static ra_status read_header(npy_file *file, int64_t file_bytes) {
    unsigned char prefix[NPY_PREFIX_BYTES];
    size_t have = file_bytes < NPY_PREFIX_BYTES ? (size_t)file_bytes : NPY_PREFIX_BYTES, needed;
    CLI_RETURN_ON_ERROR(rows_pread(file->what, file->fd, prefix, have, 0));
    CLI_RETURN_ON_ERROR(npy_measure(file->what, prefix, have, &needed));
    if ((int64_t)needed > file_bytes) CLI_RETURN_REFUSAL("%s: is truncated: its header is not whole", file->what);
    unsigned char *bytes = malloc(needed);
    if (!bytes) return ra_fail(RA_ERR_MEMORY, "%s: no memory for its header", file->what);
    ra_status status = rows_pread(file->what, file->fd, bytes, needed, 0);
    if (status == RA_OK) status = npy_parse(file->what, bytes, needed, &file->header);
    free(bytes);
    return status;
}

static ra_status check_array(const npy_file *file, int64_t file_bytes) {
    const npy_header *h = &file->header;
    if (h->dims != 4)
        CLI_RETURN_REFUSAL("%s: %s has %d dimensions; give [batch, rows, heads, dim]", file->what, file->path, h->dims);
    for (int i = 0; i < 4; ++i)
        if (h->shape[i] == 0)
            CLI_RETURN_REFUSAL("%s: %s has no elements; every dimension is at least 1", file->what, file->path);
    int64_t expected = h->data_offset + h->data_bytes;
    if (file_bytes < expected)
        CLI_RETURN_REFUSAL("%s: %s is truncated: %" PRId64 " bytes where its header promises %" PRId64, file->what,
                           file->path, file_bytes, expected);
    if (file_bytes > expected)
        CLI_RETURN_REFUSAL("%s: %s has %" PRId64 " bytes behind its data", file->what, file->path,
                           file_bytes - expected);
    return RA_OK;
}

ra_status npy_open(const char *what, const char *path, npy_file *file_out) {
    /* Without O_NONBLOCK a pipe without a writer would wait here for ever. */
    npy_file file = {.what = what, .path = path, .fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    if (file.fd < 0) CLI_RETURN_REFUSAL("%s: cannot open %s: %s", what, path, strerror(errno));
    struct stat info;
    ra_status status = RA_OK;
    if (fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode))
        status = ra_fail(RA_ERR_ARGUMENT, "%s: %s is not a regular file", what, path);
    if (status == RA_OK) status = read_header(&file, info.st_size);
    if (status == RA_OK) status = check_array(&file, info.st_size);
    if (status != RA_OK) {
        close(file.fd);
        return status;
    }
    *file_out = file;
    return RA_OK;
}

void npy_close(npy_file *file) {
    if (file->what) close(file->fd);
    *file = (npy_file){0};
}

size_t npy_format(ra_dtype dtype, int dims, const int64_t *shape, char *buffer) {
    char text[NPY_WRITE_BYTES - 64];
    size_t used = (size_t)snprintf(text, sizeof text, "{'descr': '<f%zu', 'fortran_order': False, 'shape': (",
                                   ra_dtype_bytes(dtype));
    for (int i = 0; i < dims; ++i)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRId64, i ? ", " : "", shape[i]);
    used += (size_t)snprintf(text + used, sizeof text - used, "%s), }", dims == 1 ? "," : "");
    size_t total = (10 + used + 1 + 63) / 64 * 64, length = total - 10;
    memset(buffer, ' ', total);
    memcpy(buffer, "\x93NUMPY\x01\x00", 8);
    buffer[8] = (char)(length & 0xff);
    buffer[9] = (char)(length >> 8);
    memcpy(buffer + 10, text, used);
    buffer[total - 1] = '\n';
    return total;
}
