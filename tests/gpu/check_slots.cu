/* Lists of dilated problems on several ranks, as schedules make them: keys that came from other ranks lie in slots,
 * those of several branches between each other. Every part of them can be copied as whole tiles, and the items of the
 * backward pass do all of it once, in as many launches as there are branches. */
#include "kernel/cuda/sm90/backward_turns.cuh"
#include "list_checks.h"

#include <algorithm>

extern "C" {
#include "core/join_rounds.h"
#include "schedule/schedule.h"
}

enum { RANKS = 4, HEADS = 4, DIM = 16 };

static ra_shape shape_of(const ra_problem &p) {
    ra_shape shape = {};
    shape.batch = p.batch;
    shape.heads_q = p.heads_q;
    shape.heads_kv = p.heads_kv;
    shape.dim = p.dim;
    shape.dim_v = p.dim_v;
    shape.dtype = p.dtype;
    return shape;
}

/* Records [heads, rows, batch, dim + dim_v], as the executor binds them; their addresses are never used. */
static ra_view records_at(uintptr_t slot, int64_t offset, int64_t rows, int64_t record) {
    return {(void *)(slot + (uintptr_t)offset), record, record, rows * record, 1};
}

/* What the tiles of a compute name as parts, all of them pieces of a slot. */
static std::vector<ra_kv_rows> parts_of(const ra_compute &c, const ra_problem &p) {
    int64_t record = p.batch * (p.dim + p.dim_v);
    std::vector<ra_kv_rows> parts((size_t)c.part_count);
    for (size_t i = 0; i < parts.size(); i++) {
        const ra_piece &piece = c.parcel.pieces[c.parts[i]];
        int64_t first = ra_parcel_records(&c.parcel, c.parts[i]) * record;
        parts[i].heads = piece.heads;
        parts[i].k = parts[i].v = records_at(1u << 20, first * 2, piece.rows.count, record);
        parts[i].dk = parts[i].dv = records_at(1u << 28, first * 4, piece.rows.count, record);
    }
    return parts;
}

/* As prepare lists a backward pass (prepare.cu, sm90/backward_wgmma.cuh). */
static void check_list(const ra_tile_list &tiles, const ra_shape &shape, const std::vector<ra_kv_rows> &parts,
                       unsigned seed) {
    gpu_lists lists;
    lists.parts = parts;
    gpu_list_tiles(&tiles, &lists);
    gpu_list_items(&shape, &tiles, parts.data(), ROWS, KEYS, &lists);
    expect(gpu_list_maps(&lists), "tensor maps of all keys", seed);
    gpu_list_key_boxes(KEYS, &lists);
    gpu_list_first_queries(&shape, ROWS, KEYS, &lists);
    gpu_list_turn_groups(ROWS, 4, &lists);
    gpu_list_first_turns(ROWS, &lists);
    gpu_interleave_heads(1, &lists);
    check_items_of(lists, shape, parts.data(), 4, seed);
    expect((int64_t)lists.launches.size() == tiles.round_count, "a launch for each round", seed);
}

static void check_compute(const ra_compute &c, const ra_problem &p, unsigned seed) {
    const ra_work_costs costs = {KEYS, ROWS, 4, 192, 448 * 132}; /* as prepare.cu has them */
    bool pieces = std::find(c.parts, c.parts + c.part_count, (int64_t)RA_ALL_RECORDS) == c.parts + c.part_count;
    expect(pieces, "parts that are pieces", seed);
    if (!pieces) return;
    std::vector<ra_kv_rows> parts = parts_of(c, p);
    ra_shape shape = shape_of(p);
    ra_pool pool = {};
    ra_tile_list joined;
    check_list(c.tiles, shape, parts, seed);
    expect(ra_join_rounds_by_keys(&pool, &c.tiles, &costs, &joined) == RA_OK, "joining", seed);
    if (joined.round_count < c.tiles.round_count) check_list(joined, shape, parts, seed);
    ra_pool_free(&pool);
}

/* Returns how many computes with keys of slots there are. */
static int check_rank(const ra_cut_problem &cut, ra_strategy strategy, int rank, unsigned seed) {
    ra_pool pool = {};
    ra_schedule schedule;
    int computes = 0;
    bool made = ra_schedule_make(&pool, &cut, strategy, RA_BACKWARD, rank, &schedule) == RA_OK;
    expect(made, "a schedule", seed);
    for (int s = 0; made && s < schedule.step_count; s++)
        for (int64_t i = 0; i < schedule.steps[s].compute_count; i++) {
            const ra_compute &c = schedule.steps[s].computes[i];
            if (c.kv_slot == RA_OWN || c.tiles.tile_count == 0) continue;
            check_compute(c, *cut.problem, seed);
            computes++;
        }
    ra_pool_free(&pool);
    return computes;
}

void check_slots(void) {
    static const ra_branch fours[] = {{2048, 1}, {8192, 4}, {16384, 16}};
    static const ra_branch twelve[] = {{2048, 1}, {4096, 2}, {8192, 4}, {16384, 6}, {32768, 12}};
    const ra_strategy strategies[] = {RA_STRATEGY_RING, RA_STRATEGY_PAIRWISE};
    int computes = 0;
    unsigned seed = 0; /* numbers the problems */
    for (int branches = 0; branches < 2; branches++)
        for (int causal = 0; causal < 2; causal++)
            for (int layout = RA_LAYOUT_CONTIGUOUS; layout <= RA_LAYOUT_ZIGZAG; layout++)
                for (ra_strategy strategy : strategies) {
                    ra_problem p = RA_PROBLEM_INIT, normal;
                    p.seq_q = branches ? 32768 : 16384;
                    p.heads_q = HEADS;
                    p.dim = DIM;
                    p.dtype = RA_BF16;
                    p.causal = causal;
                    p.branches = branches ? 5 : 3;
                    p.dilated = branches ? twelve : fours;
                    expect(ra_problem_normalise(&p, &normal) == RA_OK, "a problem", ++seed);
                    ra_cut_problem cut = {&normal, (ra_layout)layout, RANKS};
                    for (int rank = 0; rank < RANKS; rank++) computes += check_rank(cut, strategy, rank, seed);
                }
    expect(computes > 100, "computes with keys of other ranks", seed);
}
