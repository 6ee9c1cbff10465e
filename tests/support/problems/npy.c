/* A .npy file, version 1: "\x93NUMPY" 1 0, the header's length in two bytes, a Python dictionary, the elements. */
#include "support/problems/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "... 'shape': (2, 13, 3, 8), ..." */
static const char *parse_shape(const char *header, test_npy *array) {
    const char *at = strstr(header, "'shape': (");
    if (!at) return "the header has no shape";
    at += strlen("'shape': (");
    array->count = 1;
    for (int i = 0; i < 4; i++) array->shape[i] = 1;
    for (int i = 0; *at != ')'; i++) {
        char *end;
        if (i == 4) return "more than four dimensions";
        array->shape[i] = strtoll(at, &end, 10);
        if (end == at || array->shape[i] < 0) return "the shape is not a list of lengths";
        array->count *= array->shape[i];
        at = end + strspn(end, ", ");
    }
    return NULL;
}

static const char *read_header(FILE *file, test_npy *array) {
    unsigned char start[10];
    char header[1024];
    if (fread(start, 1, sizeof start, file) != sizeof start || memcmp(start, "\x93NUMPY\x01\x00", 8) != 0)
        return "not a .npy file of version 1";
    size_t length = start[8] + 256u * start[9];
    if (length >= sizeof header || fread(header, 1, length, file) != length) return "the header ends early";
    header[length] = 0;
    if (!strstr(header, "'descr': '<f8'") || !strstr(header, "'fortran_order': False")) return "not C-order <f8";
    return parse_shape(header, array);
}

static const char *read_elements(FILE *file, test_npy *array) {
    size_t count = (size_t)array->count;
    array->data = malloc(count * sizeof(double) + 1);
    if (!array->data) return "no memory";
    if (fread(array->data, sizeof(double), count, file) == count) return NULL;
    free(array->data);
    return "the elements end early";
}

const char *test_npy_read(const char *path, test_npy *array_out) {
    FILE *file = fopen(path, "rb");
    if (!file) return "cannot be opened";
    const char *wrong = read_header(file, array_out);
    if (!wrong) wrong = read_elements(file, array_out);
    fclose(file);
    return wrong;
}
