/* mbarriers, as they lie in shared memory:
 *
 *   arrivals of a phase | arrivals that are missing | bytes that are missing, + 2^21 | 0 | parity
 *           20          |            20             |              22                | 1 |   1     bits
 */
#include "launched_blocks.h"

#include <cstring>

namespace emulator {

struct fields {
    unsigned arrivals, missing, parity;
    int64_t bytes;
};

static const int64_t NO_BYTES = 1 << 21, MOST_BYTES = 1 << 20;

static fields read(block *of, uint32_t offset) {
    uint64_t x;
    if (offset % 8) fail("an mbarrier at %u", offset);
    memcpy(&x, place_in(of, offset, 8), 8);
    if (x >> 62 & 1) fail("the mbarrier at %u has not been made, or has been overwritten", offset);
    return {(unsigned)(x & 0xfffff), (unsigned)(x >> 20 & 0xfffff), (unsigned)(x >> 63),
            (int64_t)(x >> 40 & 0x3fffff) - NO_BYTES};
}

static void write(block *of, uint32_t offset, const fields &f) {
    if (f.bytes <= -MOST_BYTES || f.bytes >= MOST_BYTES)
        fail("an mbarrier that waits for %lld bytes", (long long)f.bytes);
    uint64_t x =
        f.arrivals | (uint64_t)f.missing << 20 | (uint64_t)(f.bytes + NO_BYTES) << 40 | (uint64_t)f.parity << 63;
    memcpy(place_in(of, offset, 8), &x, 8);
}

/* Writes it, and begins the next phase where this one is over. */
static void settle(block *of, uint32_t offset, fields f) {
    if (!f.missing && !f.bytes) {
        f.missing = f.arrivals;
        f.parity ^= 1;
        auto waiting = of->at_mbarriers.find(offset);
        if (waiting != of->at_mbarriers.end()) wake_all(&waiting->second);
    }
    write(of, offset, f);
}

void mbarrier_init(uint32_t address, unsigned count) {
    uint32_t offset;
    block *of = block_at(address, &offset);
    write(of, offset, {count, count, 0, 0});
}

void mbarrier_arrive(uint32_t address, unsigned count) {
    uint32_t offset;
    block *of = block_at(address, &offset);
    fields f = read(of, offset);
    if (f.missing < count) fail("more arrivals at the mbarrier at %u than its phase has", offset);
    f.missing -= count;
    settle(of, offset, f);
}

void mbarrier_expect(uint32_t address, int64_t bytes) {
    uint32_t offset;
    block *of = block_at(address, &offset);
    fields f = read(of, offset);
    f.bytes += bytes;
    write(of, offset, f);
}

void mbarrier_complete(block *of, uint32_t offset, int64_t bytes) {
    fields f = read(of, offset);
    f.bytes -= bytes;
    settle(of, offset, f);
}

bool mbarrier_is_over(uint32_t address, unsigned parity) {
    uint32_t offset;
    block *of = block_at(address, &offset);
    return read(of, offset).parity != parity;
}

void mbarrier_wait(uint32_t address, unsigned parity) {
    uint32_t offset;
    block *of = block_at(address, &offset);
    while (!mbarrier_is_over(address, parity)) {
        of->at_mbarriers[offset].push_back(self);
        sleep(parity ? "mbarrier, parity 1, at" : "mbarrier, parity 0, at", offset);
    }
}

} // namespace emulator
