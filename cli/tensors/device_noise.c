#include "tensors/device_noise.h"

#include "cli.h"
#include "tensors/noise.h"

#include <stdlib.h>

enum { BLOCK_ELEMENTS = 4194301 }; /* a prime */

static ra_status upload(const ra_backend *backend, unsigned char *to, size_t bytes, const unsigned char *block,
                        size_t block_bytes) {
    for (size_t at = 0; to && at < bytes; at += block_bytes)
        CLI_RETURN_ON_ERROR(
            ra_backend_copy(backend, to + at, block, bytes - at < block_bytes ? bytes - at : block_bytes));
    return RA_OK;
}

ra_status device_noise_fill(uint64_t seed, ra_dtype dtype, const rank_arrays *arrays) {
    size_t most = 0, block_bytes = BLOCK_ELEMENTS * ra_dtype_bytes(dtype);
    void *const inputs[] = {arrays->q, arrays->k, arrays->v, arrays->dout};
    for (int i = ARRAY_Q; i <= ARRAY_DOUT; ++i)
        if (arrays->size[i] > most) most = arrays->size[i];
    if (most < block_bytes) block_bytes = most;
    unsigned char *block = malloc(block_bytes + 1);
    if (!block) return ra_fail(RA_ERR_MEMORY, "no memory for random numbers");
    ra_status status = RA_OK;
    for (int i = ARRAY_Q; status == RA_OK && i <= ARRAY_DOUT; ++i) {
        int64_t elements = (int64_t)(block_bytes / ra_dtype_bytes(dtype));
        status = noise_fill(seed, (uint64_t)i, 1, elements, 1, NULL, elements, dtype, block);
        if (status == RA_OK && block_bytes)
            status = upload(arrays->backend, inputs[i], arrays->size[i], block, block_bytes);
    }
    free(block);
    return status;
}
