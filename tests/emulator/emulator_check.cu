/* Whether the emulator sees what it is for: kernels that are right give the right result in every order of events,
 * those with something taken out do not in some, and one that hangs is told of. */
#include "kernel/cuda/async_copy.cuh"
#include "kernel/cuda/sm90/backward_bulk_rows.cuh"
#include "kernel/cuda/sm90/bulk_copy.cuh"
#include "kernel/cuda/sm90/wgmma.cuh"
#include "kernel/cuda/tile_cursor.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 128, LAUNCHES = 200 };

/* ---- kernels: each with what it needs, or, faulty, without it ---------------------------------------------------- */

/* One warp writes, the next one reads. */
static __global__ void pass_on(int *out, bool faulty) {
    extern __shared__ __align__(1024) unsigned char shared[];
    int *values = (int *)shared, i = (int)threadIdx.x;
    values[i] = i;
    if (!faulty) __syncthreads();
    out[i] = values[(i + 32) % THREADS];
}

/* One lane writes, another one reads. */
static __global__ void pass_on_in_warp(int *out, bool faulty) {
    extern __shared__ __align__(1024) unsigned char shared[];
    int *values = (int *)shared, i = (int)threadIdx.x;
    values[i] = i;
    if (!faulty) __syncwarp();
    out[i] = values[i ^ 1];
}

/* Rounds of a ring of one stage: a warp fills it, another one reads. faulty: it is said to be full before it is. */
static __global__ void go_round(int *out, bool faulty) {
    extern __shared__ __align__(1024) unsigned char shared[];
    int *values = (int *)shared, lane = (int)threadIdx.x % 32;
    uint32_t full = shared_address(shared) + 1024, empty = full + 8;
    if (threadIdx.x == 0) {
        mbarrier_init(full, 32);
        mbarrier_init(empty, 32);
    }
    __syncthreads();
    for (int round = 0; round < 4; round++) {
        if (threadIdx.x / 32 == 0) {
            mbarrier_wait(empty, (round & 1) ^ 1);
            if (faulty) mbarrier_arrive(full);
            values[lane] = round * 32 + lane;
            if (!faulty) mbarrier_arrive(full);
        } else if (threadIdx.x / 32 == 1) {
            mbarrier_wait(full, round & 1);
            out[round * 32 + lane] = values[lane];
            mbarrier_arrive(empty);
        }
    }
}

/* 64 x 64 x 16 of ones: 16 everywhere. faulty: the sums are read before they are there. */
static __global__ void multiply(int *out, bool faulty) {
    extern __shared__ __align__(1024) unsigned char shared[];
    enum { PANEL = 64 * PANEL_ROW_BYTES };
    float d[8][4] = {};
    for (int i = (int)threadIdx.x; i < PANEL; i += THREADS) ((__nv_bfloat16 *)shared)[i] = __float2bfloat16(1);
    shared_writes_to_products();
    __syncthreads();
    products_begin();
    uint32_t a = shared_address(shared);
    wgmma<__nv_bfloat16, 64>::shared<false, false>(d, along_rows<64>(a, 0, 0), along_rows<64>(a + PANEL, 0, 0), true);
    products_commit();
    if (!faulty) products_wait<0>();
    out[threadIdx.x] = (int)d[threadIdx.x % 8][3];
    products_wait<0>();
}

/* 512 bytes by the copy engine, twice from the same place. faulty: it is written before it has been read. */
static __global__ void send(int *out, bool faulty) {
    extern __shared__ __align__(1024) unsigned char shared[];
    int *values = (int *)shared;
    if (threadIdx.x) return;
    for (int time = 0; time < 2; time++) {
        for (int i = 0; i < THREADS; i++) values[i] = time * THREADS + i;
        write_row(out + time * THREADS, shared_address(shared), THREADS * 4);
        bulk_commit();
        if (!faulty) bulk_wait_read<0>();
    }
    bulk_wait<0>();
}

/* Two blocks add 1 to the same numbers. faulty: not one after the other. Behind the numbers is the counter of turns. */
static __global__ void add(int *out, bool faulty) {
    int turn = (int)blockIdx.x, *chain = out + THREADS;
    if (threadIdx.x == 0 && !faulty) chain_wait(chain, chain_read(chain), turn);
    __syncthreads();
    int *mine = out + threadIdx.x;
    __stcg(mine, __ldcg(mine) + 1);
    __syncthreads();
    if (threadIdx.x == 0) chain_release(chain);
}

/* Half of the block's threads wait for bytes that nobody copies. */
static __global__ void hang(void) {
    extern __shared__ __align__(1024) unsigned char shared[];
    uint32_t barrier = shared_address(shared);
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        mbarrier_arrive_expecting(barrier, 16);
    }
    __syncthreads();
    if (threadIdx.x < THREADS / 2) mbarrier_wait(barrier, 0);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static int expected_of_warps(int i) {
    return (i + 32) % THREADS;
}

static int expected_of_lanes(int i) {
    return i ^ 1;
}

static int expected_in_order(int i) {
    return i;
}

static int expected_of_sums(int) {
    return 2;
}

static int expected_of_products(int) {
    return 16;
}

static const struct {
    const char *name;
    void (*kernel)(int *out, bool faulty);
    int (*expected)(int i);
    unsigned blocks;
    int count;
} checks[] = {
    {"a barrier of the block", pass_on, expected_of_warps, 1, THREADS},
    {"__syncwarp", pass_on_in_warp, expected_of_lanes, 1, THREADS},
    {"mbarriers", go_round, expected_in_order, 1, 128},
    {"wgmma", multiply, expected_of_products, 1, THREADS},
    {"bulk copies", send, expected_in_order, 1, 2 * THREADS},
    {"turns", add, expected_of_sums, 2, THREADS},
};

/* How many of LAUNCHES give a wrong result. */
static int count_wrong(decltype(&checks[0]) check, bool faulty) {
    int wrong = 0;
    auto kernel = check->kernel;
    for (int n = 0; n < LAUNCHES; n++) {
        alignas(16) int memory[2 * THREADS], *out = memory;
        bool right = true;
        memset(memory, 0, sizeof memory);
        kernel<<<check->blocks, THREADS, 32 << 10>>>(out, faulty);
        for (int i = 0; i < check->count; i++) right &= out[i] == check->expected(i);
        wrong += !right;
    }
    return wrong;
}

/* In a process of its own, which has to abort and to say this. */
static bool tells_of_hang(const char *text) {
    int ends[2];
    char said[4096] = "";
    if (pipe(ends)) return false;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        hang<<<1, THREADS, 2048>>>();
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t length = 0, got; (got = read(ends[0], said + length, sizeof said - 1 - (size_t)length)) > 0;)
        length += got;
    int status;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && strstr(said, text);
}

int main(void) {
    int failures = 0;
    for (const auto &check : checks) {
        int right = count_wrong(&check, false), faulty = count_wrong(&check, true);
        printf("%s: %d of %d launches wrong, without: %d\n", check.name, right, LAUNCHES, faulty);
        failures += right != 0 || faulty == 0;
    }
    bool told = tells_of_hang("nobody can go on") && tells_of_hang("waits for mbarrier, parity 0, at 0");
    printf("a hang is %s\n", told ? "told of" : "not told of");
    return failures || !told;
}
