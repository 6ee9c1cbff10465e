/* What a launch is told: the device form of a tile list, and the arguments of the forward and backward kernels.
 *
 * The lists are made once, by prepare. A forward unit is a block of query rows of a group; a backward item is a block
 * of the key rows that some tiles have in common. Batches and heads are not spelled out where all entries have the same
 * number of them: they are the remainder of the launch's number for the entry.
 *
 *   number of a CTA or ticket:   entry 0: [b 0 h 0][b 0 h 1] ... [b 1 h 1]   entry 1: [b 0 h 0] ...
 */
#ifndef RA_KERNEL_CUDA_WORK_CUH
#define RA_KERNEL_CUDA_WORK_CUH

#include "kernel/cuda/kernel_table.h"

#include <cuda_runtime_api.h>
#include <memory>
#include <vector>

/* Some of the rows that a tensor map has: those of one remainder. Copied as one word. */
struct alignas(4) gpu_row_set {
    short map, remainder;
};

/* By sectors of 32 bytes: what forward kernels look up for a tile, what they look up for a unit, and the rest. */
struct alignas(32) gpu_tile {
    int k_count, lo, hi, part;
    gpu_row_set k_set; /* where tensor maps are listed: of its keys */
    int k_at;          /* which of the set's rows is the first key's */
    int times;         /* each of its pairs counts so often */
    float log2_times;

    int q_count;
    int head_first, head_stride, head_count; /* query heads */
    gpu_row_set q_set;                       /* where tensor maps are listed: of its queries */
    int q_at;
    int queries; /* of which rank its queries are */

    int64_t q_first, q_stride, k_first, k_stride;

    const int64_t *k_index; /* device memory, or NULL */
    int64_t chain;          /* backward: its group's counters [batch, head_count, blocks of query rows] */
    int64_t order; /* backward: turns [blocks of query rows], where its first key block stands in the block's queue */
};
static_assert(sizeof(gpu_tile) == 128, "four sectors");

/* Tensor maps of a launch, which are parameters of a kernel: 4 KB of them before CUDA 12.1. */
#if CUDART_VERSION >= 12010
enum { TENSOR_MAPS = 128 };
#else
enum { TENSOR_MAPS = 24 };
#endif

/* Rows that one tensor map has (list_maps.cu): r + i * stride for all r below remainders and i below count, of a part
 * or of a rank's queries. */
struct gpu_map_rows {
    int part;
    int64_t stride, remainders, count;
};

/* The tensor maps that a pass's tiles need. On the host. */
struct gpu_maps {
    bool listed; /* all of the tiles' rows can be had through the maps, if views allow it */
    bool plain;  /* all of them are of stride 1, pairs count once, and the kernel is the one for that */
    int keys;    /* rows of a box of keys */
    std::vector<gpu_map_rows> q, k;
    int64_t key_rows;  /* over all parts: of each the most that are one stride apart, from the first to the last */
    const void *parts; /* device memory: K's and V's in turn, for each of k; NULL: the rank's own rows */
    bool finishes;     /* the last launch has all rows, of queries or of keys, and can write what becomes of them */
    std::shared_ptr<struct gpu_came> came;  /* parts and queries that come with calls; NULL: none do */
    std::shared_ptr<struct made_maps> made; /* those of the last calls; a pass's calls come one after the other */
};

/* Rows of dq that nobody is the first to write. head_first is among the heads of all ranks (call_parts.cuh). */
struct gpu_gap {
    int64_t first, stride;
    int count;
    int head_first, head_stride, head_count;
};

/* Query rows of a block of dq, which are whole when the block's counter says that all turns are over. */
struct gpu_query_block {
    int64_t first, stride;
    int64_t chain; /* the counter of its first batch and head */
    int blocks;    /* counters from one head to the next */
    int count, turns;
    int head_first, head_stride, head_count; /* as a gap has them */
};

struct gpu_unit {
    int tile, count; /* the group's tiles */
    int block;       /* of query rows */
    int head;        /* index among the tile's heads; -1: given by the remainder of the number */
};

/* An item's first step: a block of queries of the first tile that sees its keys. The head is `head` for the first of
 * the item's heads, head + head_step for the next and so on. */
struct gpu_first_queries {
    int64_t first, stride; /* rows: of the block's first query, and from one query to the next */
    int row, head;         /* row: which one of its set is the first */
    short map, queries;    /* the tensor map, and of which rank they are, as the tile has them */
    short head_step;
    unsigned char count; /* of queries that there are; 0: not listed */
    unsigned char full;  /* all of them see all keys of the block */
};

/* The set that those rows are of. Maps start at row 0, and remainders are small. */
static inline __host__ __device__ gpu_row_set set_of(const gpu_first_queries &queries) {
    return {queries.map, (short)((unsigned)queries.first - (unsigned)queries.row * (unsigned)queries.stride)};
}

/* All that is needed to ask for the block's keys and its first queries, in one load. Its heads are those that the
 * remainder of the number counts: kv_head, kv_head + kv_step and so on. */
struct alignas(16) gpu_item {
    int first, count;          /* the tiles that share the keys */
    int block;                 /* of key rows */
    int kv_head, head;         /* head: which one of the part's views it is */
    short kv_step, head_step;  /* from one of both to the next */
    gpu_row_set k_set;         /* where tensor maps are listed: of the keys */
    int k_row;                 /* and which of the set's rows is the block's first */
    gpu_first_queries queries; /* likewise, where the kernel asks for them */
};
static_assert(sizeof(gpu_item) == 64, "an item is four chunks of one line");

struct gpu_problem {
    int batch, heads_q, gqa_ratio; /* gqa_ratio: query heads for each key/value head */
    int dim, dim_v;
    double scale;
    ra_kv_rows own;          /* the one part, where parts is NULL */
    const ra_kv_rows *parts; /* device memory */
    const gpu_tile *tiles;   /* backward: those with the same keys side by side */
    int per_entry;           /* numbers of an entry */
};

/* What is counted where CTAs take one unit after the other, and list pieces of units that another kernel has to do
 * again. The launch of that kernel, which always follows, makes all of it 0 again, as the next launch needs it. */
struct gpu_tally {
    unsigned units;  /* taken, beside each CTA's first */
    unsigned pieces; /* listed */
    unsigned ended;  /* CTAs of the launch that does pieces again */
};

struct gpu_forward {
    gpu_problem problem;
    const gpu_unit *units;
    gpu_tally *tally;
    unsigned *pieces;             /* the list: REDO_PIECES * number + piece */
    ra_query_rows own;            /* the one rank's, where queries is NULL: of the launch's state */
    const ra_query_rows *queries; /* device memory */
    const gpu_maps *maps;         /* host */
    int multiprocessors;
    /* Of an entry's numbers, those whose units are done before those of the next section begin; the units of
     * last_entries at the end, which see few keys, are done behind all sections. A kernel that takes units in sections
     * is told how many entries these have. */
    int section, last_entries, section_entries;
    /* Units in blocks of rows as the variant's other kernel has them; their number. */
    const gpu_unit *other_units;
    unsigned other_count;
    int redo_rows; /* not 0: not all units, but the pieces that are listed, of 64 rows, of units of so many */
    /* finish: the launch has every row and is the last to: it writes what becomes of them, o_out and lse_out, not their
     * state. fresh: it is the first as well, and their m and l have not been set. o_out: of f32, or of the inputs'
     * type; lse_out: one element a row, data NULL: not wanted. */
    int finish, fresh;
    int out_is_f32;
    double weight;
};

/* A unit has at most so many pieces of 64 rows. */
enum { REDO_PIECES = 4, REDO_ROWS = 64 };

struct gpu_backward {
    gpu_problem problem;
    const gpu_item *items;
    const int *turns;
    int heads;                    /* numbers of an entry: [batch, heads] */
    unsigned *ticket;             /* the next number to be taken */
    int *chains;                  /* how many key blocks have been added to a block of dq */
    int overwrite;                /* dk and dv are written, not added to */
    ra_query_rows own;            /* the one rank's, where queries is NULL */
    const ra_query_rows *queries; /* device memory */
    const gpu_maps *maps;         /* host */
    int finish;                   /* dk and dv are of the inputs' type, and overwritten with sums that are rounded */
    int overwrite_queries;        /* who is first in turn at a whole block of dq writes, and does not add */
};

struct gpu_lists;

/* What units of a variant take beside those of another (unit_costs.cu): one of `rows` rows takes rows * row *
 * (keys + ends), of keys in whole blocks. */
struct gpu_unit_cost {
    double row, ends;
    double missing; /* what 64 rows that a unit lacks take, of what they would if it had them */
    int keys;       /* of a block */
};

/* A kernel for one element type and one padded width of rows. It needs so many bytes of shared memory for a block;
 * `smaller` is the next one to ask where there are fewer, NULL: there is none. */
struct gpu_forward_variant {
    int rows; /* of queries in a unit */
    int smem_bytes;
    cudaError_t (*allow)(void); /* once per device: lets it have the shared memory */
    void (*launch)(const gpu_forward *args, unsigned count, cudaStream_t stream);
    /* The pieces that are listed, by so many CTAs: all that the launch should have done with them; and the tally
     * becomes 0. NULL: it cannot. */
    void (*launch_redo)(const gpu_forward *args, unsigned ctas, cudaStream_t stream) = NULL;
    const gpu_forward_variant *smaller = NULL;
    /* Plan time: lists the tensor maps that it can use; NULL: none. */
    void (*list_maps)(const ra_shape *shape, const ra_tile_list *tiles, const ra_kv_rows *parts,
                      gpu_lists *lists) = NULL;
    int other_rows = 0; /* not 0: in a unit of another kernel that it falls back to, which redoes pieces of units */
    /* Has larger units, needs no more shared memory, and is taken instead where that costs less; NULL: none. */
    const gpu_forward_variant *taller = NULL;
    gpu_unit_cost cost = {}; /* where there is one, and its own */
};

struct gpu_backward_variant {
    int rows, keys; /* of a block */
    int smem_bytes;
    cudaError_t (*allow)(void);
    void (*launch)(const gpu_backward *args, unsigned count, cudaStream_t stream);
    const gpu_backward_variant *smaller = NULL;
    void (*list_maps)(const ra_shape *shape, const ra_tile_list *tiles, const ra_kv_rows *parts,
                      gpu_lists *lists) = NULL;
    int together = 1; /* neighbouring blocks of keys that are done together, where their items are neighbours */
};

template <class KERNEL> static inline cudaError_t allow_shared_memory(KERNEL *kernel, int bytes) {
    return cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

#endif
