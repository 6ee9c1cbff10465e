/* What the emulator has in a CUtensorMap. */
#ifndef TESTS_EMULATOR_TENSOR_MAP_H
#define TESTS_EMULATOR_TENSOR_MAP_H

#include <cuda.h>
#include <functional>
#include <stdint.h>

namespace emulator {

enum { MOST_DIMENSIONS = 5 };

struct tensor_map {
    unsigned char *base;
    uint64_t step[MOST_DIMENSIONS - 1]; /* bytes, of dimensions 1 and up */
    uint32_t count[MOST_DIMENSIONS], box[MOST_DIMENSIONS];
    uint16_t element_bytes, dimensions;
    uint32_t is_made; /* IS_MADE */
};

enum { IS_MADE = 0x7ab1ed };

static_assert(sizeof(tensor_map) <= sizeof(CUtensorMap), "it has its place");

/* The driver's cuTensorMapEncodeTiled, for maps with a swizzle of 128 bytes and boxes of rows of 128 bytes. */
CUresult encode_tensor_map(CUtensorMap *map_out, CUtensorMapDataType type, cuuint32_t dimensions, void *base,
                           const cuuint64_t *counts, const cuuint64_t *steps, const cuuint32_t *box,
                           const cuuint32_t *each, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                           CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

const tensor_map &tensor_map_at(uint64_t address);

/* Visits the pieces, of 16 bytes in shared memory, of the box that begins at `first` and lies in shared memory at
 * `shared`: where each lies there and in device memory, and how many of its bytes are inside of the tensor. */
void visit_box(const tensor_map &map, const int (&first)[MOST_DIMENSIONS], uint32_t shared,
               const std::function<void(uint32_t shared, unsigned char *device, size_t bytes)> &visit);

uint32_t box_bytes(const tensor_map &map);

} // namespace emulator

#endif
