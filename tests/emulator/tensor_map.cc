/* Tensor maps are made, and their boxes gone through. */
#include "tensor_map.h"

#include "emulator.h"

#include <algorithm>
#include <cstring>

namespace emulator {

CUresult encode_tensor_map(CUtensorMap *map_out, CUtensorMapDataType type, cuuint32_t dimensions, void *base,
                           const cuuint64_t *counts, const cuuint64_t *steps, const cuuint32_t *box,
                           const cuuint32_t *each, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
    tensor_map map = {};
    map.element_bytes = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
    map.base = (unsigned char *)base;
    map.dimensions = (uint16_t)dimensions;
    map.is_made = IS_MADE;
    if (dimensions < 3 || dimensions > MOST_DIMENSIONS || (uintptr_t)base % 16 || !base ||
        interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || swizzle != CU_TENSOR_MAP_SWIZZLE_128B ||
        fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || box[0] * map.element_bytes != 128)
        return CUDA_ERROR_INVALID_VALUE;
    for (cuuint32_t d = 0; d < dimensions; d++) {
        if (!counts[d] || counts[d] >= (cuuint64_t)1 << 32 || !box[d] || box[d] > 256 || each[d] != 1)
            return CUDA_ERROR_INVALID_VALUE;
        map.count[d] = (uint32_t)counts[d];
        map.box[d] = box[d];
        if (d + 1 == dimensions) break;
        if (steps[d] % 16 || steps[d] >= (cuuint64_t)1 << 40) return CUDA_ERROR_INVALID_VALUE;
        map.step[d] = steps[d];
    }
    memcpy(map_out, &map, sizeof map);
    return CUDA_SUCCESS;
}

const tensor_map &tensor_map_at(uint64_t address) {
    const tensor_map &map = *(const tensor_map *)address;
    if (address % 64) fail("a tensor map that does not lie at a multiple of 64 bytes");
    if (map.is_made != IS_MADE) fail("a tensor map that has not been made");
    return map;
}

uint32_t box_bytes(const tensor_map &map) {
    uint32_t bytes = map.element_bytes;
    for (int d = 0; d < map.dimensions; d++) bytes *= map.box[d];
    return bytes;
}

/* The row of the box at `at`, of which dimension 0 is left out; NULL: it is outside. */
static unsigned char *row_at(const tensor_map &map, const int (&first)[MOST_DIMENSIONS],
                             const uint32_t (&at)[MOST_DIMENSIONS]) {
    unsigned char *row = map.base;
    for (int d = 1; d < map.dimensions; d++) {
        int64_t x = (int64_t)first[d] + at[d];
        if (x < 0 || x >= (int64_t)map.count[d]) return nullptr;
        row += (int64_t)map.step[d - 1] * x;
    }
    return row;
}

enum { ROW_BYTES = 128, PIECE = 16 };

void visit_box(const tensor_map &map, const int (&first)[MOST_DIMENSIONS], uint32_t shared,
               const std::function<void(uint32_t, unsigned char *, size_t)> &visit) {
    uint32_t at[MOST_DIMENSIONS] = {}, rows = box_bytes(map) / ROW_BYTES;
    int64_t begin = (int64_t)first[0] * map.element_bytes, end = (int64_t)map.count[0] * map.element_bytes;
    if (shared % ROW_BYTES) fail("a box at %u of shared memory", shared);
    if (begin < 0) fail("a box that begins in front of its row");
    for (uint32_t r = 0; r < rows; r++) {
        unsigned char *row = row_at(map, first, at);
        for (uint32_t piece = 0; piece < ROW_BYTES; piece += PIECE) {
            uint32_t place = shared + r * ROW_BYTES + piece;
            int64_t inside = row ? end - begin - piece : 0;
            unsigned char *device = row ? row + begin + piece : nullptr;
            visit(place ^ (place >> 7 & 7) << 4, device, (size_t)std::clamp<int64_t>(inside, 0, PIECE));
        }
        for (int d = 1; d < map.dimensions && ++at[d] == map.box[d]; d++) at[d] = 0;
    }
}

} // namespace emulator
