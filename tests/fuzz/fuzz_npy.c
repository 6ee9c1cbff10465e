/* Any bytes as the beginning of a .npy file: a header or a sentence, never a crash. What is accepted must be consistent
 * with itself, and must survive being written and read again. */
#include "files/npy_file.h"

#include <ringattn/ringattn.h>
#include <stdlib.h>
#include <string.h>

static void require(int holds) {
    if (!holds) abort();
}

static void check_round_trip(const npy_header *header) {
    unsigned char bytes[NPY_WRITE_BYTES];
    npy_header again;
    size_t count = npy_format(header->dtype, header->dims, header->shape, (char *)bytes);
    require(count % 64 == 0 && count <= NPY_WRITE_BYTES);
    require(npy_parse("again", bytes, count, &again) == RA_OK);
    require(again.dtype == header->dtype && again.dims == header->dims && again.data_bytes == header->data_bytes);
    require(memcmp(again.shape, header->shape, (size_t)header->dims * sizeof header->shape[0]) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t needed = 0;
    npy_header header;
    if (npy_measure("fuzz", data, size, &needed) != RA_OK) {
        require(ra_last_error()[0] != '\0');
        return 0;
    }
    if (needed > size || npy_parse("fuzz", data, needed, &header) != RA_OK) return 0;
    require(header.dims >= 0 && header.dims <= NPY_DIMS_MAX && header.data_bytes >= 0);
    require(header.data_offset == (int64_t)needed);
    check_round_trip(&header);
    return 0;
}
