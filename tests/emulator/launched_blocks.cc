/* Blocks, their shared memory and its addresses. */
#include "launched_blocks.h"

#include <cstdlib>
#include <cstring>

namespace emulator {

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

enum { ALIGNMENT = 1024, UNWRITTEN = 0xff /* bytes of a NaN */ };

block::~block() {
    free(shared);
}

static void make_memory(block *b, size_t bytes) {
    void *memory;
    if (posix_memalign(&memory, ALIGNMENT, bytes)) fail("no memory for the shared memory of a block");
    memset(memory, UNWRITTEN, bytes);
    b->shared = (unsigned char *)memory;
    b->shared_bytes = bytes;
}

std::unique_ptr<block> make_block(const launch_shape &shape, unsigned number, cluster *in) {
    auto b = std::make_unique<block>();
    unsigned threads = shape.block.x * shape.block.y * shape.block.z;
    b->index = {number % shape.grid.x, number / shape.grid.x % shape.grid.y, number / shape.grid.x / shape.grid.y};
    b->rank = (int)in->blocks.size();
    b->in = in;
    b->alive = (int)threads;
    make_memory(b.get(), shape.shared_bytes);
    b->warps.resize((threads + WARP - 1) / WARP);
    for (unsigned i = 0; i < threads; i++) {
        auto t = std::make_unique<thread_state>();
        warp *w = &b->warps[i / WARP];
        w->of = b.get();
        w->number = (int)(i / WARP);
        t->index = {i % shape.block.x, i / shape.block.x % shape.block.y, i / shape.block.x / shape.block.y};
        t->lane = (int)(i % WARP);
        t->in = w;
        t->of = b.get();
        w->lanes.push_back(t.get());
        b->threads.push_back(std::move(t));
    }
    return b;
}

void check_ended(const block &b) {
    if (b.copies_in)
        fail("a block ended while copies to its shared memory, or from it to another block, were under way");
    for (const auto &t : b.threads)
        if (t->bulk.open->unread) fail("a block ended with bulk copies that are in no group");
    for (const auto &t : b.threads)
        for (const auto &group : t->bulk.committed)
            if (group->unread) fail("a block ended while its shared memory was still to be read by the copy engine");
    for (const auto &w : b.warps)
        if (!w.products.empty()) fail("a block ended while its products were under way");
}

/* ---- shared memory ----------------------------------------------------------------------------------------------- */

uint3 block_index(void) {
    return self->of->index;
}

unsigned char *shared_memory(void) {
    return self->of->shared;
}

uint32_t shared_address(const void *place) {
    ptrdiff_t at = (const unsigned char *)place - self->of->shared;
    if (at < 0 || (size_t)at > self->of->shared_bytes) fail("an address that is not of shared memory");
    return (uint32_t)at;
}

/* Addresses of a cluster's blocks have the block's rank + 1 in bits 24 and up; 0 there is the thread's own. */
block *block_at(uint32_t address, uint32_t *offset_out) {
    uint32_t rank = address >> 24;
    *offset_out = address & 0xffffff;
    if (!rank) return self->of;
    if (rank > self->of->in->blocks.size()) fail("an address of a block that the cluster does not have");
    return self->of->in->blocks[rank - 1].get();
}

unsigned char *place_in(block *of, uint32_t offset, size_t bytes) {
    if (offset + bytes > of->shared_bytes)
        fail("%zu bytes at %u of %zu of shared memory", bytes, offset, of->shared_bytes);
    return of->shared + offset;
}

unsigned char *shared_place(uint32_t address, size_t bytes) {
    uint32_t offset;
    block *of = block_at(address, &offset);
    return place_in(of, offset, bytes);
}

} // namespace emulator
