/* Where a kernel stands in its work: which unit or item it is, which keys come next, whether a block needs a mask. */
#ifndef RA_KERNEL_CUDA_TILE_CURSOR_CUH
#define RA_KERNEL_CUDA_TILE_CURSOR_CUH

#include "kernel/cuda/async_copy.cuh"
#include "kernel/cuda/work.cuh"

/* The keys and values that a tile is about. */
__device__ __forceinline__ const ra_kv_rows &kv_rows_of(const gpu_problem &p, const gpu_tile &tile) {
    return p.parts ? p.parts[tile.part] : p.own;
}

/* Which head of the views of `rows` key/value head g is. */
__device__ __forceinline__ int64_t kv_head_in(const ra_kv_rows &rows, int g) {
    return (g - rows.heads.first) / rows.heads.stride;
}

/* A tile's rows of one of the views: k, v, dk or dv. T: of its elements. */
template <class T, ra_view ra_kv_rows::*WHICH>
__device__ __forceinline__ row_source tile_key_rows(const gpu_problem &p, const gpu_tile &t, int b, int g) {
    const ra_kv_rows &rows = kv_rows_of(p, t);
    return source_of<T>(rows.*WHICH, b, kv_head_in(rows, g), t.k_first, t.k_stride, t.k_index);
}

/* Whether every pair of queries [a0, a1) and keys [b0, b1) is visible. */
__host__ __device__ __forceinline__ bool block_is_full(int lo, int hi, int a0, int a1, int b0, int b1) {
    return b0 - (a1 - 1) >= lo && b1 - 1 - a0 <= hi;
}

/* ---- forward: the key blocks of a unit --------------------------------------------------------------------------- */

/* The queries of one of the ranks that a launch has some of. By value: what is used of it is read once, and where there
 * is but one rank it is a parameter of the kernel. */
__device__ __forceinline__ ra_query_rows query_rows_of(const gpu_forward &args, int queries) {
    if (args.queries) return args.queries[queries];
    return args.own;
}

/* Those that a tile is about. */
__device__ __forceinline__ ra_query_rows query_rows_of(const gpu_forward &args, const gpu_tile &tile) {
    return query_rows_of(args, tile.queries);
}

struct unit_place {
    int b, h;
    int a0, a1;    /* query indices */
    int tile, end; /* the group's tiles */
};

__device__ __forceinline__ unit_place unit_at(const gpu_forward &args, unsigned number, int rows) {
    const gpu_problem &p = args.problem;
    int piece = -1; /* of the unit; -1: all of it */
    if (args.redo_rows) {
        piece = (int)(args.pieces[number] % REDO_PIECES);
        number = args.pieces[number] / REDO_PIECES;
        rows = args.redo_rows;
    }
    gpu_unit unit = args.units[number / (unsigned)p.per_entry];
    const gpu_tile &tile = p.tiles[unit.tile];
    int rest = (int)(number % (unsigned)p.per_entry);
    int head = unit.head >= 0 ? unit.head : rest % tile.head_count;
    unit_place at;
    at.b = unit.head >= 0 ? rest : rest / tile.head_count;
    at.h = tile.head_first + head * tile.head_stride;
    at.a0 = unit.block * rows;
    at.a1 = min(at.a0 + rows, tile.q_count);
    if (piece >= 0) {
        at.a0 += piece * REDO_ROWS;
        at.a1 = min(at.a0 + REDO_ROWS, at.a1);
    }
    at.tile = unit.tile;
    at.end = unit.tile + unit.count;
    return at;
}

/* The next block of keys is [b0, ...) of tile `tile`, the last of which ends before `to`. */
struct key_cursor {
    int tile, b0, to;
};

/* From tile `tile` on, the first that the unit sees something of; tile = end: none. */
__device__ __forceinline__ key_cursor first_keys(const gpu_problem &p, const unit_place &at, int tile) {
    key_cursor c = {tile, 0, 0};
    for (; c.tile < at.end; c.tile++) {
        const gpu_tile &t = p.tiles[c.tile];
        c.b0 = max(0, at.a0 + t.lo);
        c.to = min(t.k_count, at.a1 + t.hi);
        if (t.lo <= t.hi && c.b0 < c.to) break;
    }
    return c;
}

__device__ __forceinline__ key_cursor next_keys(const gpu_problem &p, const unit_place &at, key_cursor c, int keys) {
    c.b0 += keys;
    return c.b0 < c.to ? c : first_keys(p, at, c.tile + 1);
}

/* A tile's keys, for one batch and head. In shared memory, where all threads find it. */
struct key_source {
    row_source k, v;
    int count, lo, hi;
    int times; /* each pair counts so often */
    float log2_times;
};

template <class T>
__device__ __forceinline__ void set_keys(key_source *to, const gpu_problem &p, int b, int h, int tile) {
    const gpu_tile &t = p.tiles[tile];
    to->k = tile_key_rows<T, &ra_kv_rows::k>(p, t, b, h / p.gqa_ratio);
    to->v = tile_key_rows<T, &ra_kv_rows::v>(p, t, b, h / p.gqa_ratio);
    to->count = t.k_count;
    to->lo = t.lo;
    to->hi = t.hi;
    to->times = t.times;
    to->log2_times = t.log2_times;
}

/* ---- backward: the query blocks of an item ----------------------------------------------------------------------- */

struct item_place {
    int b, g, head;   /* g: the key/value head; head: which one of the part's views it is */
    int first, count; /* its tiles */
    int block;
};

/* Of one of the entry's numbers. */
__device__ __forceinline__ item_place item_at(const gpu_backward &args, const gpu_item &entry, unsigned number) {
    int rest = (int)(number % (unsigned)args.problem.per_entry), i = rest % args.heads;
    item_place at;
    at.b = rest / args.heads;
    at.g = entry.kv_head + i * entry.kv_step;
    at.head = entry.head + i * entry.head_step;
    at.first = entry.first;
    at.count = entry.count;
    at.block = entry.block;
    return at;
}

__device__ __forceinline__ item_place item_at(const gpu_backward &args, unsigned number) {
    return item_at(args, args.items[number / (unsigned)args.problem.per_entry], number);
}

/* The tile whose keys are the item's: all of its tiles have the same. */
__device__ __forceinline__ const gpu_tile &item_tile(const gpu_backward &args, const item_place &item) {
    return args.problem.tiles[item.first];
}

/* The rows of the item's keys in one of the views: k, v, dk or dv. */
template <class T, ra_view ra_kv_rows::*WHICH>
__device__ __forceinline__ row_source item_rows(const gpu_backward &args, const item_place &item) {
    const gpu_tile &t = item_tile(args, item);
    return source_of<T>(kv_rows_of(args.problem, t).*WHICH, item.b, item.head, t.k_first, t.k_stride, t.k_index);
}

/* The next block of queries: block `block` of head number `head` of tile `at`; blocks are done from the last one
 * down to `last`, heads before `heads`. at = end: none. */
struct query_cursor {
    int at, head, block;
    int heads, first, last; /* first: the block that each head starts with */
};

/* The tile's head numbers [*from_out, *to_out) that read key/value head g. */
__host__ __device__ __forceinline__ void heads_of(const gpu_tile &t, int gqa_ratio, int g, int *from_out, int *to_out) {
    int first = g * gqa_ratio - t.head_first, end = first + gqa_ratio; /* first head at or above each bound */
    *from_out = first <= 0 ? 0 : (first + t.head_stride - 1) / t.head_stride;
    *to_out = end <= 0 ? 0 : min(t.head_count, (end + t.head_stride - 1) / t.head_stride);
}

/* Sets all of c but the tile's number for tile t: the blocks of `rows` queries that see something of block `block` of
 * `keys` keys, of key/value head g. Returns false where there are none. */
__host__ __device__ __forceinline__ bool queries_in_tile(const gpu_tile &t, int gqa_ratio, int g, int block, int rows,
                                                         int keys, query_cursor *c) {
    int b0 = block * keys, b1 = min(b0 + keys, t.k_count);
    int from = max(0, b0 - t.hi), to = min(t.q_count, b1 - t.lo);
    heads_of(t, gqa_ratio, g, &c->head, &c->heads);
    c->block = c->first = (to - 1) / rows;
    c->last = from / rows;
    return t.lo <= t.hi && from < to && c->head < c->heads;
}

template <int ROWS, int KEYS>
__device__ __forceinline__ query_cursor first_queries(const gpu_backward &args, const item_place &at, int i) {
    query_cursor c = {i, 0, 0, 0, 0, 0};
    for (; c.at < at.first + at.count; c.at++)
        if (queries_in_tile(args.problem.tiles[c.at], args.problem.gqa_ratio, at.g, at.block, ROWS, KEYS, &c)) break;
    return c;
}

template <int ROWS, int KEYS>
__device__ __forceinline__ query_cursor next_queries(const gpu_backward &args, const item_place &at, query_cursor c) {
    if (--c.block >= c.last) return c;
    c.block = c.first;
    return ++c.head < c.heads ? c : first_queries<ROWS, KEYS>(args, at, c.at + 1);
}

/* A tile's queries, for one batch and head. In shared memory, where all threads find it. */
template <class ACC> struct query_source {
    row_source q, dout, dq;
    const ACC *lse, *delta; /* of the first row */
    int64_t each;           /* elements of lse from one row to the next */
    int *chain;             /* of the first block */
    const int *turns;
    int count, keys, lo, hi;
    int times; /* each pair counts so often */
};

/* The queries that a tile is about. */
__device__ __forceinline__ const ra_query_rows &query_rows_of(const gpu_backward &args, const gpu_tile &tile) {
    return args.queries ? args.queries[tile.queries] : args.own;
}

template <class T, class ACC, int ROWS>
__device__ __forceinline__ void set_queries(query_source<ACC> *to, const gpu_backward &args, int b, int at, int head) {
    const gpu_problem &p = args.problem;
    const gpu_tile &t = p.tiles[at];
    int h = t.head_first + head * t.head_stride, blocks = (t.q_count + ROWS - 1) / ROWS;
    const ra_query_rows &rows = query_rows_of(args, t);
    int64_t row = ((int64_t)b * p.heads_q + h) * rows.rows + t.q_first;
    to->q = source_of<T>(rows.q, b, h, t.q_first, t.q_stride, NULL);
    to->dout = source_of<T>(rows.dout, b, h, t.q_first, t.q_stride, NULL);
    to->dq = source_of<ACC>(rows.dq, b, h, t.q_first, t.q_stride, NULL);
    to->lse = (const ACC *)rows.lse + row;
    to->delta = (const ACC *)rows.delta + row;
    to->each = t.q_stride;
    to->chain = args.chains + t.chain + ((int64_t)b * t.head_count + head) * blocks;
    to->turns = args.turns + t.order;
    to->count = t.q_count;
    to->keys = t.k_count;
    to->lo = t.lo;
    to->hi = t.hi;
    to->times = t.times;
}

/* ---- backward: whose turn it is ---------------------------------------------------------------------------------- */

/* dq is added to by one key block after the other. Each block of dq has a counter of those that have been; the key
 * block whose turn it is adds, then counts. Turns follow the order in which items are taken, so whoever waits waits for
 * an item that runs already. */
template <int ROWS, int KEYS, class ACC>
__device__ __forceinline__ int turn_of(const query_source<ACC> &s, int query_block, int key_block) {
    int first = max(0, query_block * ROWS + s.lo) / KEYS;
    return s.turns[query_block] + key_block - first;
}

__device__ __forceinline__ int chain_read(const int *chain) {
    int count;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];\n" : "=r"(count) : "l"(chain) : "memory");
    return count;
}

/* The same; if the count shows that a turn has come, this thread sees what was added before. */
__device__ __forceinline__ int chain_acquire(const int *chain) {
    int count;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];\n" : "=r"(count) : "l"(chain) : "memory");
    return count;
}

/* By one thread, before a barrier behind which the others read dq. `seen`: a count read earlier. */
__device__ __forceinline__ void chain_wait(const int *chain, int seen, int turn) {
    if (turn == 0) return;
    while (seen < turn) {
        __nanosleep(40);
        seen = chain_read(chain);
    }
    asm volatile("fence.acq_rel.gpu;\n" ::: "memory");
}

/* By one thread, behind a barrier before which all others wrote dq. turns: how many are over. */
__device__ __forceinline__ void chain_release(int *chain, int turns = 1) {
    asm volatile("fence.acq_rel.gpu;\n" ::: "memory");
    asm volatile("red.relaxed.gpu.global.add.s32 [%0], %1;\n" ::"l"(chain), "r"(turns) : "memory");
}

#endif
