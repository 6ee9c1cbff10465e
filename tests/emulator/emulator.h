/* An emulator of GPUs, which runs the CUDA kernels of this library on a CPU, so that machines without a GPU can see
 * whether they are right, race or hang.
 *
 *   kernel source ── g++ -E ──► translate.py ── g++ ──► an object whose kernels are functions that threads run
 *
 * Every CUDA thread is a coroutine with a stack of its own. They take turns: a warp that can go on is chosen at random,
 * and its threads run until they have to wait. What the hardware does beside the threads (wgmma, copies by the copy
 * engine) is put on lists and done at random times, at the latest when somebody waits for it. So an order that nothing
 * enforces will be another one in another run; where nobody can go on the emulator says who waits for what, and aborts.
 * It says nothing about time.
 *
 *   $RINGATTN_EMULATOR_SEED   the seed of all that is random; 1 if it is not set
 *
 * One launch runs at a time, in the thread that launches it, until it is over: streams are always done. RESIDENT blocks
 * of it are under way, in clusters of CLUSTER neighbours, of which kernels without clusters know nothing. It says that
 * there are MULTIPROCESSORS, so that blocks which take one piece of work after another take several.
 */
#ifndef TESTS_EMULATOR_EMULATOR_H
#define TESTS_EMULATOR_EMULATOR_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <functional>
#include <stdint.h>
#include <vector_types.h>

namespace emulator {

enum { WARP = 32, CLUSTER = 2, RESIDENT = 4, MULTIPROCESSORS = 2, MOST_THREADS = 1024, MOST_SHARED_BYTES = 227 * 1024 };

struct block;
struct warp;

/* ---- the running thread ------------------------------------------------------------------------------------------ */

struct thread {
    uint3 index = {0, 0, 0}; /* threadIdx */
    int lane = 0;
    warp *in = nullptr;
    block *of = nullptr;
    const char *waits_for = nullptr; /* what it is asleep for */
    uint32_t waits_at = 0;           /* and at which mbarrier or barrier */
    bool ended = false;
    struct coroutine *own = nullptr;
};

extern thread *self;

static inline uint3 thread_index(void) {
    return self->index;
}

uint3 block_index(void);
dim3 block_size(void);
dim3 grid_size(void);

/* The dynamic shared memory of the thread's block. */
unsigned char *shared_memory(void);

/* Its place there as an address, and back. Ends the program where that is not inside. */
uint32_t shared_address(const void *place);
unsigned char *shared_place(uint32_t address, size_t bytes);

/* Others may go on first. */
void yield(void);

/* Others go on first, now and then, one time in so many: where the thread has told them something, they may act on it
 * before it does more; where it is about to write, they may write before. */
void give_way(unsigned times = 4);

/* ---- together with others ---------------------------------------------------------------------------------------- */

/* Until all lanes of the mask have come here: then each has what `all[i]` of lane i was given for. all[i] is NULL for
 * lanes that are not in the mask. The last to come calls `together`, which may read and write what the others gave. */
void meet(uint32_t mask, const char *what, void *mine, const std::function<void(void *const (&all)[WARP])> &together);

/* Of the block's barrier `id`, when `threads` have arrived; 0: all of the block that have not ended. Returns whether
 * one of them said yes. */
bool barrier(int id, int threads, bool mine);
void barrier_arrive(int id, int threads);

/* ---- launches ---------------------------------------------------------------------------------------------------- */

struct launch_shape {
    dim3 grid, block;
    size_t shared_bytes;
};

/* Runs it, and returns when it is over. */
void run(const launch_shape &shape, const std::function<void()> &kernel);

/* Says what went wrong, where, and ends the program. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

template <class KERNEL> struct launcher {
    KERNEL kernel;
    launch_shape shape;
    template <class... ARGUMENTS> void operator()(const ARGUMENTS &...arguments) const {
        run(shape, [&] { kernel(arguments...); });
    }
};

/* kernel<<<blocks, threads, shared_bytes, stream>>> */
template <class KERNEL>
launcher<KERNEL> launch(KERNEL kernel, dim3 blocks, dim3 threads, size_t shared_bytes = 0, cudaStream_t = nullptr) {
    return {kernel, {blocks, threads, shared_bytes}};
}

} // namespace emulator

#endif
