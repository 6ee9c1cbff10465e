/* What a block under way consists of: for the files of the emulator itself. */
#ifndef TESTS_EMULATOR_LAUNCHED_BLOCKS_H
#define TESTS_EMULATOR_LAUNCHED_BLOCKS_H

#include "emulator.h"

#include <deque>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

namespace emulator {

/* ---- chance ------------------------------------------------------------------------------------------------------ */

/* 0 to n - 1. */
unsigned chance(unsigned n);

/* ---- what is done beside the threads ----------------------------------------------------------------------------- */

/* What the copy engine and the tensor cores do. */
enum work_kind { COPY_IN, COPY_OUT, PRODUCT, WORK_KINDS };

/* A thread's bulk copies out of shared memory, in groups. */
struct bulk_group {
    int unread = 0, unwritten = 0;
    thread *waiting = nullptr; /* for one of them */
};

struct bulk_groups {
    std::shared_ptr<bulk_group> open = std::make_shared<bulk_group>();
    std::deque<std::shared_ptr<bulk_group>> committed;
};

/* A wgmma (ptx_wgmma.cc). */
struct product;

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* Of a thread that can go on: it may have to ask again whether something has happened. */
enum urgency { CAN_GO_ON, ASKS_AGAIN, URGENCIES };

struct meeting {
    uint32_t mask, come = 0;
    const char *what;
    void *mine[WARP] = {};
};

struct warp {
    block *of = nullptr;
    int number = 0;
    std::vector<thread *> lanes;
    uint32_t ready[URGENCIES] = {}; /* lanes that can go on */
    std::list<meeting> meetings;
    std::deque<std::shared_ptr<product>> products; /* one after the other, when all lanes have come to it */
    int64_t first_product = 0;                     /* how many have left the queue */
};

struct thread_state : thread {
    bulk_groups bulk;
    std::vector<std::function<void()>> copies; /* cp.async, not committed */
    std::deque<std::vector<std::function<void()>>> copy_groups;
    int64_t products = 0;      /* wgmma that it has come to */
    int committed = 0;         /* groups of them */
    bool cluster_open = false; /* the cluster's barrier, at which it has arrived */
};

struct named_barrier {
    int arrived = 0, threads = 0; /* threads: 0: all of the block that have not ended */
    bool any = false, was_any = false;
    std::vector<thread *> waiting;
};

struct block {
    uint3 index = {0, 0, 0};
    int rank = 0; /* in its cluster */
    struct cluster *in = nullptr;
    std::vector<std::unique_ptr<thread_state>> threads;
    std::vector<warp> warps;
    unsigned char *shared = nullptr; /* of the block's size, to the byte */
    size_t shared_bytes = 0;
    int copies_in = 0; /* under way, to this block or from it to another one */
    block() = default;
    block(const block &) = delete;
    ~block();
    named_barrier barriers[16];
    std::unordered_map<uint32_t, std::vector<thread *>> at_mbarriers;
    int alive = 0;
};

/* Neighbouring blocks. */
struct cluster {
    std::vector<std::unique_ptr<block>> blocks;
    named_barrier barrier;
};

inline thread_state &state_of(thread *t) {
    return static_cast<thread_state &>(*t);
}

std::unique_ptr<block> make_block(const launch_shape &shape, unsigned number, cluster *in);

/* Fails where something is under way that the block's threads should have waited for. */
void check_ended(const block &b);

/* Those of the launch. */
const std::list<cluster> &clusters_under_way(void);

/* ---- going on ---------------------------------------------------------------------------------------------------- */

/* The thread goes to sleep until somebody wakes it. what: for whom asks why. */
void sleep(const char *what, uint32_t at = 0);
void wake(thread *sleeper);

void wake_all(std::vector<thread *> *sleepers);

/* To be done some time. */
void put_on_list(work_kind kind, std::function<void()> work);

/* A thread of the block has ended: those that wait at barrier 0 for all threads do not wait for it. */
void open_for_the_rest(block *of);

/* The barrier of all threads of a cluster that have not ended. */
void cluster_arrive(void);
void cluster_wait(void);

/* Says what went wrong and who waits for what, and ends the program. */
[[noreturn]] void fail_asleep(const char *what);

/* The block whose shared memory an address of a cluster's is in; the offset in it. */
block *block_at(uint32_t address, uint32_t *offset_out);

/* Bytes of a block's shared memory. */
unsigned char *place_in(block *of, uint32_t offset, size_t bytes);

/* ---- mbarriers (mbarriers.cc) ------------------------------------------------------------------------------------ */

void mbarrier_init(uint32_t address, unsigned count);
void mbarrier_arrive(uint32_t address, unsigned count);
void mbarrier_expect(uint32_t address, int64_t bytes);
bool mbarrier_is_over(uint32_t address, unsigned parity);
void mbarrier_wait(uint32_t address, unsigned parity);

/* Of a barrier in `of`: bytes of a copy have come. */
void mbarrier_complete(block *of, uint32_t offset, int64_t bytes);

} // namespace emulator

#endif
