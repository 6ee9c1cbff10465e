/* ringattn random: a .npy file of random numbers, a few rows at a time. */
#include "cli.h"
#include "files/npy_rows.h"
#include "files/outputs.h"
#include "tensors/noise.h"

#include <stdlib.h>

enum { CHUNK_ELEMENTS = 1 << 18 };

/* The tensor is filled as [1, batch * rows, heads * dim]. */
static ra_status fill(const output_file *file, uint64_t seed) {
    int64_t width = file->shape[2] * file->shape[3], rows = file->shape[0] * file->shape[1];
    int64_t most = width < CHUNK_ELEMENTS ? CHUNK_ELEMENTS / width : 1;
    size_t row_bytes = (size_t)width * ra_dtype_bytes(file->dtype);
    int64_t *positions = malloc((size_t)most * sizeof *positions);
    void *data = malloc((size_t)most * row_bytes);
    ra_status status = positions && data ? RA_OK : ra_fail(RA_ERR_MEMORY, "--shape: no memory for its rows");
    for (int64_t row = 0; status == RA_OK && row < rows; row += most) {
        int64_t count = rows - row < most ? rows - row : most;
        for (int64_t i = 0; i < count; ++i) positions[i] = row + i;
        status = noise_fill(seed, 0, 1, rows, width, positions, count, file->dtype, data);
        if (status == RA_OK)
            status = rows_pwrite(file->what, file->fd, data, (size_t)count * row_bytes,
                                 file->data_offset + row * (int64_t)row_bytes);
    }
    free(positions);
    free(data);
    return status;
}

ra_status cli_random(const cli_options *options) {
    ra_dtype dtype = (ra_dtype)cli_list_at(options->dtype, 0, RA_F32);
    if (dtype == RA_BF16) CLI_RETURN_REFUSAL("--dtype: .npy files have no bf16; give f64, f32 or f16");
    int64_t elements = 1;
    for (int i = 0; i < 4; ++i)
        if (__builtin_mul_overflow(elements, options->shape.values[i], &elements) || elements > INT64_MAX / 16)
            CLI_RETURN_REFUSAL("--shape: the array is too large");
    output_set set = {0};
    char token[OUTPUT_TOKEN_BYTES];
    output_file *file = outputs_add(&set, "--out", options->out, dtype, 4, options->shape.values);
    outputs_token(token);
    ra_status status = outputs_check(&set, 1);
    if (status == RA_OK) status = outputs_name(&set, token);
    if (status == RA_OK) status = outputs_create(&set);
    if (status == RA_OK) status = fill(file, (uint64_t)cli_list_at(options->seed, 0, 1));
    if (status == RA_OK) status = outputs_commit(&set);
    outputs_discard(&set);
    return status;
}
