/* Test tensors and the calls of a tile case on the device, for the checks of kernel_check. */
#ifndef TESTS_GPU_CHECK_DEVICE_H
#define TESTS_GPU_CHECK_DEVICE_H

#include "kernel_setup.h"

extern "C" {
#include "support/tiles/tile_case.h"
}

#include <vector>

std::vector<unsigned char> bytes_from(const void *device, size_t bytes);
std::vector<double> doubles_from(ra_dtype dtype, const void *device, int64_t count);

/* A copy of a tensor's memory, and the view of it. */
ra_view on_device(const test_tensor &x);

/* Memory for a tensor, all elements being one value. */
ra_view filled(const test_tensor &x, double value);

void *acc_on_device(ra_dtype acc, const double *from, int64_t count);

/* Copies of the case's parts, their gradients being `start`. parts: [TEST_PARTS] */
void copy_parts(const tile_case &c, ra_kv_rows *parts, double start);

/* Query rows of all heads and batches. */
int64_t rows_of(const ra_shape &shape);

/* Begins the state and runs the case's forward calls. Everything is on the device. */
void accumulate_calls(const tile_case &c, const ra_kv_rows *parts, ra_view q, ra_state state, ra_context context);

/* Runs the case's backward calls. lse, delta: of every state */
void backward_calls(const tile_case &c, const ra_kv_rows *parts, ra_view q, ra_view dout, const void *lse,
                    const void *delta, ra_view dq, ra_context context);

#endif
