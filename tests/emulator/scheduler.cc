/* Whose turn it is. Of a launch, RESIDENT blocks are under way; a turn is one of
 *
 *   a warp that can go on: its threads, one after the other, each until it has to wait;
 *   a warp that asks whether something has happened: the same, more rarely;
 *   a piece of work on a list: a copy in, a copy out, a product.
 *
 * Which one is chance. For a whole launch it is chance, too, how soon each kind of work is done (at once, some time, or
 * only when nothing else can be) and which warps are slow. */
#include "coroutines.h"
#include "launched_blocks.h"

#include <algorithm>
#include <mutex>

namespace emulator {

/* ---- chance ------------------------------------------------------------------------------------------------------ */

static uint64_t random_state = [] {
    const char *seed = getenv("RINGATTN_EMULATOR_SEED");
    return (seed ? strtoull(seed, nullptr, 10) : 1) * 0x9e3779b97f4a7c15 + 1;
}();

unsigned chance(unsigned n) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)((random_state >> 32) * n >> 32);
}

/* ---- a launch ---------------------------------------------------------------------------------------------------- */

enum pace { EAGER, AT_RANDOM, LAZY, PACES };

static struct {
    launch_shape shape;
    const std::function<void()> *kernel;
    unsigned next;               /* block to begin */
    int ended;                   /* blocks under way whose threads have all ended */
    std::list<cluster> clusters; /* under way */
    std::vector<warp *> ready[URGENCIES];
    std::vector<std::function<void()>> list[WORK_KINDS];
    pace how[WORK_KINDS];
    uint32_t slow; /* warps, by their number in a block */
    uint64_t idle; /* turns since something other than asking again was done */
} launched;

const std::list<cluster> &clusters_under_way(void) {
    return launched.clusters;
}

dim3 block_size(void) {
    return launched.shape.block;
}

dim3 grid_size(void) {
    return launched.shape.grid;
}

static unsigned count_of(dim3 size) {
    return size.x * size.y * size.z;
}

static bool are_blocks_left(void) {
    return launched.next < count_of(launched.shape.grid);
}

static void begin_block(cluster *in) {
    in->blocks.push_back(make_block(launched.shape, launched.next++, in));
    for (auto &t : in->blocks.back()->threads) {
        make_coroutine(t.get(), launched.kernel);
        wake(t.get());
    }
}

static void begin_blocks(void) {
    while (launched.clusters.size() < RESIDENT / CLUSTER && are_blocks_left()) {
        launched.clusters.emplace_back();
        for (int i = 0; i < CLUSTER && are_blocks_left(); i++) begin_block(&launched.clusters.back());
    }
}

static bool has_ended(const cluster &c) {
    return std::all_of(c.blocks.begin(), c.blocks.end(), [](const auto &b) { return b->alive == 0; });
}

static void end_clusters(void) {
    for (auto c = launched.clusters.begin(); c != launched.clusters.end();) {
        if (!has_ended(*c)) {
            ++c;
            continue;
        }
        for (auto &b : c->blocks) {
            check_ended(*b);
            for (auto &t : b->threads) free_coroutine(t.get());
        }
        c = launched.clusters.erase(c);
    }
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static void get_ready(thread *t, urgency how) {
    warp *w = t->in;
    if (!w->ready[how]) launched.ready[how].push_back(w);
    w->ready[how] |= 1u << t->lane;
}

void wake(thread *sleeper) {
    sleeper->waits_for = nullptr;
    get_ready(sleeper, CAN_GO_ON);
}

void wake_all(std::vector<thread *> *sleepers) {
    for (thread *t : *sleepers) wake(t);
    sleepers->clear();
}

void sleep(const char *what, uint32_t at) {
    launched.idle = 0;
    self->waits_for = what;
    self->waits_at = at;
    leave();
}

void yield(void) {
    get_ready(self, ASKS_AGAIN);
    leave();
}

void give_way(unsigned times) {
    if (chance(times)) return;
    wake(self);
    leave();
}

void put_on_list(work_kind kind, std::function<void()> work) {
    launched.idle = 0;
    launched.list[kind].push_back(std::move(work));
}

/* What is at `i`, which is no longer in the list. */
template <class T> static T take_out(std::vector<T> *list, size_t i) {
    T taken = std::move((*list)[i]);
    (*list)[i] = std::move(list->back());
    list->pop_back();
    return taken;
}

static size_t any_of(size_t count) {
    return chance((unsigned)count);
}

static void do_work(work_kind kind) {
    launched.idle = 0;
    take_out(&launched.list[kind], any_of(launched.list[kind].size()))();
}

/* A slow one seldom where there are others. */
static warp *take_warp(std::vector<warp *> *ready) {
    size_t i = any_of(ready->size());
    for (int again = 0; again < 4 && launched.slow >> (*ready)[i]->number % 32 & 1; again++) i = any_of(ready->size());
    return take_out(ready, i);
}

/* Some of the lanes, now and then: they need not go on together. */
static uint32_t lanes_that_go_on(uint32_t ready) {
    uint32_t some = ready & chance(~0u);
    return chance(8) || !some ? ready : some;
}

static void give_turn(urgency how) {
    warp *w = take_warp(&launched.ready[how]);
    uint32_t lanes = lanes_that_go_on(w->ready[how]);
    unsigned first = chance(WARP); /* an order of the lanes in which any two come either way */
    w->ready[how] &= ~lanes;
    if (w->ready[how]) launched.ready[how].push_back(w);
    for (unsigned i = 0; i < WARP; i++) {
        unsigned lane = i ^ first;
        if (!(lanes >> lane & 1)) continue;
        go_on(w->lanes[lane]);
        self = nullptr;
        if (!w->lanes[lane]->ended) continue;
        launched.idle = 0;
        if (--w->of->alive == 0) launched.ended++;
        open_for_the_rest(w->of);
    }
}

enum { MOST_IDLE_TURNS = 20000000, IDLE_IS_LATE = 10000 };

/* Whether a kind of work, of which there is some, is to be done before anything else. */
static bool is_due(int kind) {
    return launched.how[kind] == EAGER || (launched.how[kind] == AT_RANDOM && !chance(4)) ||
           launched.idle > IDLE_IS_LATE;
}

/* Of a kind that is due; or, where no thread can go on, of one that is not late, or of any. Returns whether there was
 * some. */
static bool take_works_turn(bool are_threads_ready) {
    unsigned first = chance(WORK_KINDS);
    for (int late = 0; late < (are_threads_ready ? 1 : 2); late++)
        for (unsigned i = 0; i < WORK_KINDS; i++) {
            int kind = (int)((first + i) % WORK_KINDS);
            bool can = late || is_due(kind) || (!are_threads_ready && launched.how[kind] != LAZY);
            if (launched.list[kind].empty() || !can) continue;
            do_work((work_kind)kind);
            return true;
        }
    return false;
}

static void take_turn(void) {
    bool can_go_on = !launched.ready[CAN_GO_ON].empty(), ask = !launched.ready[ASKS_AGAIN].empty();
    if (launched.idle++ > MOST_IDLE_TURNS) fail_asleep("threads ask again and again");
    if (take_works_turn(can_go_on || ask)) return;
    if (can_go_on && (!ask || chance(16)))
        give_turn(CAN_GO_ON);
    else if (ask)
        give_turn(ASKS_AGAIN);
    else
        fail_asleep("nobody can go on");
}

static bool is_work_left(void) {
    return std::any_of(std::begin(launched.list), std::end(launched.list), [](const auto &of) { return !of.empty(); });
}

/* What is chance for a whole launch. */
static void choose_pace(void) {
    for (pace &how : launched.how) how = (pace)chance(PACES);
    launched.slow = chance(2) ? chance(~0u) & chance(~0u) : 0;
}

static std::mutex one_at_a_time;

void run(const launch_shape &shape, const std::function<void()> &kernel) {
    std::lock_guard<std::mutex> lock(one_at_a_time);
    if (shape.shared_bytes > MOST_SHARED_BYTES) fail("%zu bytes of shared memory for a block", shape.shared_bytes);
    if (!count_of(shape.grid) || !count_of(shape.block) || count_of(shape.block) > MOST_THREADS)
        fail("a launch of %u blocks of %u threads", count_of(shape.grid), count_of(shape.block));
    launched.shape = shape;
    launched.kernel = &kernel;
    launched.next = 0;
    launched.idle = 0;
    choose_pace();
    begin_blocks();
    while (!launched.clusters.empty()) {
        take_turn();
        if (!launched.ended) continue;
        launched.ended = 0;
        end_clusters();
        begin_blocks();
    }
    while (is_work_left()) take_works_turn(false); /* what has been read is still to be written */
}

} // namespace emulator
