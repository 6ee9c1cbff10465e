/* What prepare makes of a tile list: arrays for the device, and the launches that use them. */
#ifndef RA_KERNEL_CUDA_PREPARED_CUH
#define RA_KERNEL_CUDA_PREPARED_CUH

#include "kernel/cuda/work.cuh"

#include <vector>

/* Some entries of units or items, launched together. */
struct gpu_launch {
    int64_t first;
    unsigned count; /* numbers: entries times per_entry */
    int per_entry;
    int64_t state;
    int64_t round;    /* backward: of the tile list */
    int last_entries; /* forward: so many at the end are done behind all sections (gpu_forward) */
};

/* The arrays before they are placed. tiles[i].k_index is an offset into `index` plus 1 there; 0: none. */
struct gpu_lists {
    std::vector<ra_kv_rows> parts;      /* none for the rank's own rows */
    std::vector<ra_query_rows> queries; /* places for those of several ranks, which come with every call */
    std::vector<gpu_tile> tiles;
    std::vector<int64_t> index;
    std::vector<gpu_unit> units; /* forward */
    std::vector<gpu_item> items; /* backward, as are the following */
    std::vector<int64_t> work;   /* of each item: pairs, on average of its key set */
    std::vector<int> turns;
    int64_t chains = 0;                        /* counters */
    int64_t overwritten = 0;                   /* rows of dk, over the heads, that the first launch writes to */
    std::vector<gpu_gap> gaps;                 /* of dq, where it is overwritten */
    int64_t overwritten_queries = 0;           /* rows of dq, over the heads, that are written first or are in gaps */
    std::vector<gpu_query_block> query_blocks; /* of dq, where the pass's only launch can be followed by its rounding */
    std::vector<gpu_launch> launches;
    std::vector<gpu_unit>
        other_units; /* forward: units of other sizes, for the kernel that the variant falls back to */
    std::vector<gpu_launch> other_launches;
    std::vector<gpu_tally> tally; /* forward, where there are other units: one, of zeros */
    gpu_maps maps = {};
    std::vector<unsigned char> part_maps; /* what maps.parts will point to */
};

/* A kernel's variants by type (ra_dtype, from RA_F32 on) and width of rows: up to 64, 128, 256. NULL: it has none. */
struct gpu_variants {
    const char *name;
    int smem_bytes; /* that its variants may use, though the device may have more */
    const gpu_forward_variant *forward[4][3];
    const gpu_backward_variant *backward[4][3];
};

struct ra_prepared {
    gpu_lists lists; /* until they are placed, which sets the pointers that follow, all to device memory */
    const ra_kv_rows *parts;
    const gpu_tile *tiles;
    const gpu_unit *units;
    const gpu_item *items;
    const int *turns;
    unsigned *tickets; /* backward: [launches], then the chains: what such a pass starts with as zeros */
    int *chains;
    size_t zero_bytes;
    int64_t overwritten, overwritten_queries;
    const gpu_gap *gaps;
    unsigned gap_count;
    const gpu_query_block *query_blocks;
    unsigned query_block_count;
    std::vector<gpu_launch> launches;
    const gpu_unit *other_units;
    std::vector<gpu_launch> other_launches; /* one for each of launches */
    gpu_tally *tally;                       /* 0 between calls; NULL: there are no other units */
    unsigned *pieces;
    int multiprocessors;
    gpu_maps maps;
    const gpu_forward_variant *forward;
    const gpu_backward_variant *backward;
    size_t call_parts; /* how many parts come with every call; the one of the rank's own rows does not count */
    const ra_query_rows *queries;
    size_t query_count; /* 0: one rank's */
};

/* Keys and values that a launch may read at one time. Hopper has 50 MB of cache or more, each half of which keeps
 * copies of what the other one has. */
enum { GPU_CACHED_BYTES = 40 << 20 };

/* Fills lists->tiles and lists->index from the tiles; then the units, or the items, in whose order the tiles are then.
 */
void gpu_list_tiles(const ra_tile_list *tiles, gpu_lists *lists);
void gpu_list_units(const ra_shape *shape, const ra_tile_list *tiles, int rows, int multiprocessors, gpu_lists *lists);

/* What units of so many rows would take the device, of tiles that have been merged, as far as they can be dealt evenly
 * to multiprocessors that take them in their order. */
double gpu_units_cost(const ra_shape *shape, const ra_tile_list *tiles, const gpu_lists &lists, int rows,
                      gpu_unit_cost cost, int multiprocessors);

void gpu_list_items(const ra_shape *shape, const ra_tile_list *tiles, const ra_kv_rows *parts, int rows, int keys,
                    gpu_lists *lists);

/* Forward: tiles of a group whose keys follow one another in a part become one, so that fewer blocks of keys are
 * padded; the others of them have no keys then. */
void gpu_merge_tiles(const ra_tile_list *tiles, gpu_lists *lists);

/* Lists the tensor maps that the tiles' rows need in lists->maps, and where in them the tiles are. Returns false where
 * some rows have none. */
bool gpu_list_maps(gpu_lists *lists);

static inline int64_t blocks_of(int64_t count, int each) {
    return (count + each - 1) / each;
}

/* When tensor maps of the tiles' rows are listed too: where the items' keys, in blocks of so many, are in them. */
void gpu_list_key_boxes(int keys, gpu_lists *lists);

/* Behind all that lists items: those of different heads by turns, where heads have entries of their own; neighbouring
 * blocks of keys stay so many together. */
void gpu_interleave_heads(int together, gpu_lists *lists);

/* And where the queries of the items' first steps are, in blocks of so many. */
void gpu_list_first_queries(const ra_shape *shape, int rows, int keys, gpu_lists *lists);

/* Backward: which rows of dq the first in turn can write, in whole blocks of so many, and which it cannot: of the
 * queries of the first round. */
void gpu_list_first_turns(int rows, gpu_lists *lists);

/* When items and turns are listed: the blocks of dq of the one launch there is, of so many rows; keys: of an item;
 * group: of neighbouring items whose turns are together. */
void gpu_list_query_blocks(int rows, int keys, int group, gpu_lists *lists);

ra_status gpu_prepare(const gpu_variants *variants, const ra_shape *shape, const ra_tile_list *tiles,
                      const ra_kv_rows *parts, int64_t part_count, ra_pass pass, ra_prepared **prepared_out);
void gpu_discard(ra_prepared *prepared);

/* When prepared->lists is whole: takes over what the host keeps of it, which is launches, maps and sizes. */
void gpu_keep_lists(ra_prepared *prepared);

/* As in the table: between prepare and place; and once, after which the lists are gone from the host. */
ra_list_size gpu_list_size(const ra_prepared *prepared);
void gpu_place(ra_prepared *prepared, void *lists, void *counters, void *lists_out);

#endif
