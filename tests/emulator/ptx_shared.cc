/* Shared memory: loads, stores, matrices, mbarriers. */
#include "ptx_code.h"

namespace emulator {
namespace ptx {

static void load(frame &f, const instruction &i) {
    uint32_t x;
    memcpy(&x, shared_place((uint32_t)f.get(i, 1), 4), 4);
    f.set(i, 0, x);
}

static void store(frame &f, const instruction &i) {
    const std::vector<reference> &from = i.parts[1];
    uint32_t to = (uint32_t)f.get(i, 0);
    if (to % (4 * from.size())) fail("%s at %u", i.name.c_str(), to);
    for (size_t n = 0; n < from.size(); n++) {
        uint32_t x = (uint32_t)f.get(from[n]);
        memcpy(shared_place(to + 4 * (uint32_t)n, 4), &x, 4);
    }
}

/* ---- 8 x 8 matrices of 16 bits ----------------------------------------------------------------------------------- */

/* What a lane brings: the address of row lane % 8 of matrix lane / 8, and its registers, one of each matrix. */
struct matrix_lane {
    uint32_t address, registers[4];
};

static unsigned char *element_of(void *const (&all)[WARP], int matrix, int row, int column) {
    const matrix_lane *lane = (const matrix_lane *)all[matrix * 8 + row];
    if (lane->address % 16) fail("a row of a matrix at %u", lane->address);
    return shared_place(lane->address, 16) + column * 2;
}

template <bool TRANSPOSED> static void load_matrices(frame &f, const instruction &i) {
    matrix_lane mine = {(uint32_t)f.get(i, 1), {}};
    meet(~0u, "ldmatrix", &mine, [](void *const(&all)[WARP]) {
        for (int lane = 0; lane < WARP; lane++)
            for (int m = 0; m < 4; m++)
                for (int e = 0; e < 2; e++) {
                    int row = lane / 4, column = lane % 4 * 2 + e;
                    uint16_t x;
                    memcpy(&x, TRANSPOSED ? element_of(all, m, column, row) : element_of(all, m, row, column), 2);
                    ((matrix_lane *)all[lane])->registers[m] |= (uint32_t)x << 16 * e;
                }
    });
    for (size_t m = 0; m < 4; m++) f.set(i, 0, mine.registers[m], m);
}

static void store_matrices(frame &f, const instruction &i) {
    matrix_lane mine = {(uint32_t)f.get(i, 0), {}};
    for (size_t m = 0; m < 4; m++) mine.registers[m] = (uint32_t)f.get(i, 1, m);
    meet(~0u, "stmatrix", &mine, [](void *const(&all)[WARP]) {
        for (int lane = 0; lane < WARP; lane++)
            for (int m = 0; m < 4; m++)
                memcpy(element_of(all, m, lane / 4, lane % 4 * 2), &((matrix_lane *)all[lane])->registers[m], 4);
    });
}

/* ---- mbarriers --------------------------------------------------------------------------------------------------- */

static void init(frame &f, const instruction &i) {
    mbarrier_init((uint32_t)f.get(i, 0), (unsigned)f.get(i, 1));
}

static void arrive(frame &f, const instruction &i) {
    mbarrier_arrive((uint32_t)f.get(i, 1), i.parts.size() > 2 ? (unsigned)f.get(i, 2) : 1);
    give_way();
}

static void expect(frame &f, const instruction &i) {
    mbarrier_expect((uint32_t)f.get(i, 0), (int64_t)f.get(i, 1));
}

static void arrive_expecting(frame &f, const instruction &i) {
    mbarrier_expect((uint32_t)f.get(i, 1), (int64_t)f.get(i, 2));
    mbarrier_arrive((uint32_t)f.get(i, 1), 1);
    give_way();
}

/* Mostly waits as long as it takes, and sometimes says that it has waited long enough, as it may. */
static void try_wait(frame &f, const instruction &i) {
    if (!chance(8) && !mbarrier_is_over((uint32_t)f.get(i, 1), (unsigned)f.get(i, 2))) {
        yield();
        f.set(i, 0, 0);
        return;
    }
    mbarrier_wait((uint32_t)f.get(i, 1), (unsigned)f.get(i, 2));
    f.set(i, 0, 1);
}

static void test_wait(frame &f, const instruction &i) {
    bool over = mbarrier_is_over((uint32_t)f.get(i, 1), (unsigned)f.get(i, 2));
    if (!over) yield();
    f.set(i, 0, over);
}

const known shared_instructions[] = {
    {"ld.shared.b32", load},
    {"ld.shared::cluster.u32", load},
    {"st.shared", store},
    {"st.shared::cluster", store},
    {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", load_matrices<false>},
    {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", load_matrices<true>},
    {"stmatrix.sync.aligned.m8n8.x4.shared.b16", store_matrices},
    {"mbarrier.init", init},
    {"mbarrier.arrive", arrive},
    {"mbarrier.arrive.expect_tx", arrive_expecting},
    {"mbarrier.expect_tx", expect},
    {"mbarrier.try_wait", try_wait},
    {"mbarrier.test_wait", test_wait},
    {NULL, NULL},
};

} // namespace ptx
} // namespace emulator
