/* The order in which the key blocks of a query block add to its dQ, which is that in which their items are taken:
 * groups of TURN_GROUP neighbouring blocks one after the other, the last block of a group first.
 *
 *   key blocks in turn    3 2 1 0   7 6 5 4   11 10 9 8 ...
 *
 * Under a causal mask an item has the fewer queries the later its keys are, and all start with the last queries. An
 * item that adds behind another one stays behind it, by as long as a turn takes to be handed over. In the order of keys
 * those that end first would be the last in turn: items that end close together are followed by others that start
 * close together, and wait for each other all the way. In this order they end two steps and a turn apart.
 *
 * Where all queries see all keys, or no query sees the first as well as the last ones, as in a window, blocks come in
 * the order of keys.
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_TURNS_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_TURNS_CUH

#include "kernel/cuda/prepared.cuh"

/* Groups are no longer than that: with more blocks at a time the longest items would be taken too late. */
enum { TURN_GROUP = 4 };

/* How many of the key blocks [from, to) come before `block`, one of them. */
__host__ __device__ __forceinline__ int turn_in_groups(int block, int from, int to, int group) {
    int first = block - block % group, end = first + group;
    return (first > from ? first - from : 0) + (end < to ? end : to) - 1 - block;
}

/* The turn of key block `block` of a tile at the queries [a0, a0 + rows). lo, hi, queries, keys: of the tile. */
__host__ __device__ __forceinline__ int turn_at_queries(int block, int a0, int rows, int each, int lo, int hi,
                                                        int queries, int keys, int group) {
    int from = (a0 + lo > 0 ? a0 + lo : 0) / each;
    int64_t end = (int64_t)(a0 + rows < queries ? a0 + rows : queries) + hi; /* of the keys that are seen */
    return turn_in_groups(block, from, ((int)(end < keys ? end : keys) - 1) / each + 1, group);
}

/* What is listed of a tile's turns at a block of queries: how many come before the tile's, and whether its key blocks
 * come in groups. */
__host__ __device__ __forceinline__ int turns_listed(int before, bool in_groups) {
    return 2 * before + in_groups;
}

__host__ __device__ __forceinline__ int turns_before(int listed) {
    return listed / 2;
}

__host__ __device__ __forceinline__ bool turns_in_groups(int listed) {
    return listed % 2;
}

/* Plan time: the items of key sets that are masked so in that order, and all turns as above. rows: of a block of
 * queries. */
void gpu_list_turn_groups(int rows, int group, gpu_lists *lists);

#endif
