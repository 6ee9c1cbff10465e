/* What threads wait for together: barriers of a block and of a cluster, and meetings of the lanes of a warp. */
#include "launched_blocks.h"

#include <algorithm>
#include <cstring>

namespace emulator {

/* ---- barriers of a block ----------------------------------------------------------------------------------------- */

static void open(named_barrier *b) {
    b->was_any = b->any;
    b->any = false;
    b->arrived = 0;
    wake_all(&b->waiting);
}

/* threads: 0: all of the block that have not ended. Returns whether it is open. */
static bool arrive(named_barrier *b, int threads, bool mine) {
    if (b->arrived && b->threads != threads) fail("a barrier of %d and of %d threads", b->threads, threads);
    b->threads = threads;
    b->any |= mine;
    if (++b->arrived < (threads ? threads : self->of->alive)) return false;
    open(b);
    return true;
}

bool barrier(int id, int threads, bool mine) {
    named_barrier *b = &self->of->barriers[id];
    if (!arrive(b, threads, mine)) {
        b->waiting.push_back(self);
        sleep("barrier", (uint32_t)id);
    }
    return b->was_any;
}

void barrier_arrive(int id, int threads) {
    arrive(&self->of->barriers[id], threads, false);
}

void open_for_the_rest(block *of) {
    named_barrier *b = &of->barriers[0];
    if (b->arrived && !b->threads && b->arrived == of->alive) open(b);
}

/* ---- the cluster's barrier --------------------------------------------------------------------------------------- */

static const char *const waits_for_cluster = "the cluster's barrier";

void cluster_arrive(void) {
    named_barrier &b = self->of->in->barrier;
    int alive = 0;
    for (const auto &of : self->of->in->blocks) alive += of->alive;
    b.waiting.push_back(self);
    if (++b.arrived < alive) return;
    b.arrived = 0;
    for (thread *t : b.waiting) {
        state_of(t).cluster_open = true;
        if (t->waits_for == waits_for_cluster) wake(t);
    }
    b.waiting.clear();
}

void cluster_wait(void) {
    if (!state_of(self).cluster_open) sleep(waits_for_cluster);
    state_of(self).cluster_open = false;
}

/* ---- lanes of a warp --------------------------------------------------------------------------------------------- */

void meet(uint32_t mask, const char *what, void *mine, const std::function<void(void *const (&all)[WARP])> &together) {
    warp *w = self->in;
    if (w->lanes.size() < WARP) mask &= (1u << w->lanes.size()) - 1;
    if (!(mask >> self->lane & 1)) fail("%s by a lane that is not in its mask", what);
    auto found = std::find_if(w->meetings.begin(), w->meetings.end(), [&](const meeting &m) {
        return m.mask == mask && (m.what == what || !strcmp(m.what, what));
    });
    if (found == w->meetings.end()) found = w->meetings.insert(found, {mask, 0, what, {}});
    if (found->come >> self->lane & 1) fail("%s twice by one lane", what);
    found->come |= 1u << self->lane;
    found->mine[self->lane] = mine;
    if (found->come != mask) {
        sleep(what, mask);
        return;
    }
    together(found->mine);
    for (int lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1 && lane != self->lane) wake(w->lanes[(size_t)lane]);
    w->meetings.erase(found);
}

} // namespace emulator
