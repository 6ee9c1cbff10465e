/* Forward for 16-bit elements on Hopper: FlashAttention-3 (Shah et al., 2024) with m and l of the state read first, and
 * o added to it last.
 *
 * A CTA stays on its multiprocessor and takes one unit after the other. S of a step is computed together with P V of
 * the step before, and consumers take turns, or are free (forward_layout.cuh), so that the tensor cores have work
 * during the softmax:
 *
 *   consumer 0   S(t), P V(t-1) | softmax of S(t)     | S(t+1), P V(t) | ...
 *   consumer 1   softmax        | S(t), P V(t-1)      | softmax ...
 *
 * P is relative to m, the maximum of the first block of keys that a row sees something of: it moves only when P add up
 * to more than LARGE_SUM (forward_consumer.cuh). o and l are always relative to the m that is stored.
 *
 * Infinities and NaNs cost the main loop nothing: forward_epilogue.cuh. What is seldom done, large m and m that follow,
 * ends a round of the loop around it, so that the compiler puts it elsewhere: instructions that a step jumps over cost
 * it time all the same.
 */
#ifndef RA_KERNEL_CUDA_SM90_FORWARD_WGMMA_CUH
#define RA_KERNEL_CUDA_SM90_FORWARD_WGMMA_CUH

#include "kernel/cuda/sm90/forward_epilogue.cuh"
#include "kernel/cuda/sm90/forward_row_producer.cuh"
#include "kernel/cuda/sm90/forward_sender.cuh"
#include "kernel/cuda/sm90/operands.cuh"

/* ---- turns ------------------------------------------------------------------------------------------------------- */

/* Consumer g waits for its turn at barrier 2 + g, which the one before it in the circle lets through. */
template <class S> __device__ __forceinline__ void turn_wait(int group) {
    if (S::TURNS) named_barrier(2 + group, 256);
}

template <class S> __device__ __forceinline__ void turn_hand_over(int group) {
    if (S::TURNS) named_barrier_arrive(2 + (group + 1) % S::GROUPS, 256);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* s = Q K^T, begun. q: the first operand of the group's queries. */
template <class S>
__device__ __forceinline__ void start_scores(const forward_memory<S> &memory, int stage, uint32_t q,
                                             score_block<S> &s) {
    constexpr int PANEL_Q = S::Q_ROWS * PANEL_ROW_BYTES, PANEL_K = S::KEYS * PANEL_ROW_BYTES;
    uint32_t k = operand_at(memory.k(stage), PANEL_K);
    products_begin();
#pragma unroll
    for (int d = 0; d < S::DIM / 16; d++)
        wgmma<typename S::T, S::KEYS>::template shared<false, false>(s, operand(q, d / 4 * PANEL_Q + d % 4 * 32),
                                                                     operand(k, d / 4 * PANEL_K + d % 4 * 32), d == 0);
    products_commit();
}

/* o += P V, begun. */
template <class S>
__device__ __forceinline__ void start_outputs(const forward_memory<S> &memory, int stage, const weight_block<S> &p,
                                              output_block<S> &o) {
    uint32_t v = operand_at(memory.v(stage), S::KEYS * PANEL_ROW_BYTES);
    products_begin();
#pragma unroll
    for (int k = 0; k < S::KEYS / 16; k++)
        wgmma<typename S::T, S::DIM>::template registers<true>(o, p[k], operand(v, k * 16 * PANEL_ROW_BYTES), false);
    products_commit();
}

/* ---- main loop --------------------------------------------------------------------------------------------------- */

/* K of a step has been read, and so has Q, if that was the unit's last. Where there is a sender, consumer 0 leaves the
 * last K to it. (One branch for both arrivals where none depends on the consumer, and two where one does: the other way
 * round the main loops compile to 0.99 of the rate.) */
template <class S>
__device__ __forceinline__ void leave_keys(const forward_memory<S> &memory, int group, int stage, bool ends) {
    if (S::SENDER) {
        if (!(ends && group == 0)) leave_stage(memory.k_empty(stage));
        if (ends) leave_stage(memory.q_empty(group));
        if (ends && group == 1) named_barrier_arrive(K_READ_BARRIER, 256);
    } else if (threadIdx.x % 32 == 0) {
        mbarrier_arrive(memory.k_empty(stage));
        if (ends) mbarrier_arrive(memory.q_empty(group));
    }
}

/* Whether a consumer sees some pairs of a block, and not all. */
template <class S> __device__ __forceinline__ bool is_masked(const key_block &keys, int group) {
    return keys.flags & (S::FREE ? STEP_EDGE << group : STEP_MASKED);
}

/* The flags that say of a step that it is the last of a consumer's in a unit, and, where consumers are free, that it
 * sees nothing of it. */
template <class S> __device__ __forceinline__ int over_flag(int group) {
    return S::FREE ? STEP_OVER << group : STEP_ENDS;
}

template <class S> __device__ __forceinline__ int unseen_flag(int group) {
    return S::FREE ? STEP_UNSEEN << group : 0;
}

/* Of a step, whose K has not been left. */
template <class S> __device__ __forceinline__ float log2_times_at(const forward_memory<S> &memory, int stage) {
    return S::COUNTS ? memory.log2_times(stage) : 0;
}

/* Where a consumer stands: at the unit that is noted in `slot`, whose next step is at the ring's place. */
template <class S> struct consumer_place {
    ring_place<S::STAGES> at;
    int slot;
    uint32_t o_parity; /* of hand_outputs */
    uint32_t q_parity; /* where consumers are free: of the unit's phase of q_full */
};

/* The first step of a unit, or, where no P waits for its V, of some more of its steps: `begun`. Returns whether m has
 * moved. */
template <class S>
__device__ __forceinline__ bool first_step(const gpu_forward &args, const forward_memory<S> &memory, int group,
                                           const gpu_score<float> &score, const unit_note &note, uint32_t q,
                                           const key_block &keys, int stage, bool begun, row_sums &rows,
                                           score_block<S> &s, weight_block<S> &p, float (&keep)[2]) {
    float log2_times = log2_times_at<S>(memory, stage);
    turn_wait<S>(group);
    start_scores<S>(memory, stage, q, s);
    turn_hand_over<S>(group);
    __syncwarp();
    if (!S::FREE || !begun) begin_sums<S>(args, note, memory, rows);
    bool large = some_are_large(rows.m);
    products_wait<0>();
    keep_registers(s);
    __syncwarp();
    leave_keys<S>(memory, group, stage, keys.flags & over_flag<S>(group));
    if (is_masked<S>(keys, group)) mask_block<S>(keys, s);
    return accumulate_scores<S>(
        s, rows, score, large, log2_times, p, [] {}, keep);
}

/* Of the rows that o is written to, as those of the queries are numbered; NULL: none. Asked for where they are needed:
 * kept in registers, they make the main loop longer. */
static __device__ __forceinline__ const CUtensorMap *output_maps(const tensor_maps *maps) {
    return maps && maps->outputs ? &maps->map[maps->outputs] : NULL;
}

/* Where consumers are free: the next step is waited for, and its note read. */
template <class S>
__device__ __forceinline__ void come_to_next(const forward_memory<S> &memory, ring_place<S::STAGES> &at,
                                             key_block &keys) {
    at.advance();
    mbarrier_wait(memory.k_full(at.stage), at.parity);
    keys = memory.note(at.stage);
}

/* A step of which a free consumer's rows see nothing is left; over: it is its last of the unit. V is waited for: or
 * else a stage could be left a second time before others have left it the first time. No products keep a warp's lanes
 * together here: lane 0, which leaves for all, must not be ahead of one that has not read the note or waited. */
template <class S>
__device__ __forceinline__ void leave_step(const forward_memory<S> &memory, int group, const ring_place<S::STAGES> &at,
                                           bool over) {
    __syncwarp();
    leave_keys<S>(memory, group, at.stage, over);
    mbarrier_wait(memory.v_full(at.stage), at.parity);
    __syncwarp();
    leave_stage(memory.v_empty(at.stage));
}

/* Such steps from the ring's place on are left, up to one that the rows see. Returns whether there is none. */
template <class S>
__device__ __forceinline__ bool pass_over(const forward_memory<S> &memory, int group, ring_place<S::STAGES> &at,
                                          key_block &keys) {
#pragma unroll 1
    while (keys.flags & unseen_flag<S>(group)) {
        bool over = keys.flags & over_flag<S>(group);
        leave_step<S>(memory, group, at, over);
        if (over) return true;
        come_to_next<S>(memory, at, keys);
    }
    return false;
}

/* What others still see of the unit is left. */
template <class S>
__device__ __forceinline__ void pass_rest(const forward_memory<S> &memory, int group, ring_place<S::STAGES> &at,
                                          key_block &keys) {
#pragma unroll 1
    while (!(keys.flags & STEP_ENDS)) {
        come_to_next<S>(memory, at, keys);
        leave_step<S>(memory, group, at, false);
    }
}

/* The unit whose first step is at the ring's place, its K there; the place becomes that of the next unit.
 *
 *   do                                   once, or where consumers are free for each run of steps that are seen
 *       first_step                       S, P
 *       for each step that is seen       S, P V of the step before, P
 *       P V of the last
 *   end_unit
 */
template <class S>
__device__ __forceinline__ void attend_unit(const gpu_forward &args, const tensor_maps *maps,
                                            const forward_memory<S> &memory, int group, const gpu_score<float> &score,
                                            consumer_place<S> &place, key_block keys) {
    ring_place<S::STAGES> &at = place.at;
    const unit_note &note = memory.unit(place.slot);
    const int unseen = unseen_flag<S>(group), over = over_flag<S>(group);
    output_block<S> o;
    score_block<S> s;
    row_sums rows;
    weight_block<S> p;
    float keep[2];
    uint32_t q = operand_at(memory.q(group), S::Q_ROWS * PANEL_ROW_BYTES);
    ring_place<S::STAGES> waits; /* the step whose P waits for its V */
    bool begun = false, ended = false;
    begin_outputs<S>(o);
    if (S::FREE) {
        mbarrier_wait(memory.q_full(group), place.q_parity);
        place.q_parity ^= 1;
    }
    do {
        if (S::FREE && (keys.flags & unseen) && pass_over<S>(memory, group, at, keys)) break;
        if (first_step<S>(args, memory, group, score, note, q, keys, at.stage, begun, rows, s, p, keep))
            rescale<S>(o, keep);
        begun = true;
        waits = at;
        for (;;) {
            bool large = some_are_large(rows.m);
#pragma unroll 1
            while (!(keys.flags & over)) {
                ring_place<S::STAGES> before = at;
                at.advance();
                mbarrier_wait(memory.k_full(at.stage), at.parity);
                keys = memory.note(at.stage);
                if (S::FREE && (keys.flags & unseen)) goto unseen_step;
                float log2_times = log2_times_at<S>(memory, at.stage);
                turn_wait<S>(group);
                start_scores<S>(memory, at.stage, q, s);
                mbarrier_wait(memory.v_full(before.stage), before.parity);
                start_outputs<S>(memory, before.stage, p, o);
                turn_hand_over<S>(group);
                products_wait<1>();
                keep_registers(s);
                leave_keys<S>(memory, group, at.stage, keys.flags & over);
                if (is_masked<S>(keys, group)) mask_block<S>(keys, s);
                auto free = [&] {
                    products_wait<0>();
                    keep_registers(o);
                    keep_registers(s); /* or P would be packed while the P before is still in use */
                    leave_stage(memory.v_empty(before.stage));
                };
                waits = at;
                if (large) {
                    accumulate_scores<S>(s, rows, score, true, log2_times, p, free, keep);
                    rescale<S>(o, keep);
                    goto again;
                }
                if (exponentiate<S, false>(s, rows, score, log2_times, p, free)) {
                    catch_up<S>(s, rows, p, free, keep);
                    rescale<S>(o, keep);
                    goto again;
                }
                if (!S::PACKS_BESIDE) {
                    free();
                    pack_scores<S>(s, p);
                }
            }
            break;
        again:
            __syncwarp(); /* so that this is a loop of its own around the main loop */
        }
    unseen_step:
        mbarrier_wait(memory.v_full(waits.stage), waits.parity);
        start_outputs<S>(memory, waits.stage, p, o);
        /* Beside the products, if these are the last; but behind them in other kernels, which was faster there. */
        ended = S::SENDER || (S::FREE && !(keys.flags & unseen));
        if (ended) end_rows(args, note, rows, keep);
        products_wait<0>();
        keep_registers(o);
        /* Where there is a sender, consumer 1 leaves the last V to it. */
        if (!(S::SENDER && group == 1)) leave_stage(memory.v_empty(waits.stage));
    } while (S::FREE && (keys.flags & unseen));
    if (S::FREE && !begun) begin_sums<S>(args, note, memory, rows);
    if (!ended) end_rows(args, note, rows, keep);
    end_unit<S>(args, output_maps(maps), memory, note, group, at.stage, rows, keep, o, place.o_parity);
    if (S::FREE) pass_rest<S>(memory, group, at, keys);
    at.advance();
    place.slot = next_slot<S>(place.slot);
}

/* maps: NULL where rows are copied one by one. */
template <class S>
__device__ __forceinline__ void consume(const gpu_forward &args, const tensor_maps *maps,
                                        const forward_memory<S> &memory) {
    /* From one lane, so that the compiler knows it to be the same in all. */
    int group = __shfl_sync(~0u, (int)threadIdx.x / 128 - 1, 0);
    gpu_score<float> score = {(float)args.problem.scale};
    consumer_place<S> place = {{0, 0}, 0, 1, 0};
    if (group == S::GROUPS - 1) turn_hand_over<S>(group);
    for (;;) {
        mbarrier_wait(memory.k_full(place.at.stage), place.at.parity);
        key_block keys = memory.note(place.at.stage);
        if (keys.flags & STEP_NONE) break;
        attend_unit<S>(args, maps, memory, group, score, place, keys);
    }
    if (S::SENDER) hand_outputs<S>(memory, group, 0, SEND_NO_MORE, place.o_parity);
    if (S::FREE) bulk_wait<0>();
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

template <class S, int MAPS>
__global__ void __launch_bounds__(S::THREADS, 1)
    forward_by_boxes(const __grid_constant__ gpu_forward args, const __grid_constant__ launch_maps<MAPS> given,
                     unsigned count) {
    const tensor_maps &maps = all_maps(given);
    extern __shared__ __align__(1024) unsigned char shared[];
    forward_memory<S> memory = {shared, shared_address(shared)};
    if (threadIdx.x == 0) make_barriers<S>(memory);
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_fewer<S::PRODUCER_REGISTERS>();
        /* From one lane, so that the compiler knows it to be the same in all: or else it spills. */
        int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);
        if (warp == 0) produce_keys<S>(args, maps, memory, count);
        if (warp == 1) produce_values<S>(memory);
        if (S::FREE && warp == 2) produce_free_queries<S>(memory);
        if (S::SENDER && warp == 2) send_outputs<S>(args, output_maps(&maps), memory);
    } else {
        registers_more<S::CONSUMER_REGISTERS>();
        consume<S>(args, &maps, memory);
    }
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1)
    forward_by_rows(const __grid_constant__ gpu_forward args, unsigned count) {
    extern __shared__ __align__(1024) unsigned char shared[];
    forward_memory<S> memory = {shared, shared_address(shared)};
    if (threadIdx.x == 0) make_barriers<S>(memory);
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_fewer<S::PRODUCER_REGISTERS>();
        produce_rows<S>(args, memory, (row_step *)(shared + S::PLAN_AT), count);
    } else {
        registers_more<S::CONSUMER_REGISTERS>();
        consume<S>(args, NULL, memory);
    }
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

/* Keys and values of a section, where they are more than the cache has room for. */
enum { SECTION_BYTES = 20 << 20 };

/* How many of an entry's numbers, that is heads of batches, make a section: a divisor of all, so that none is short. */
static inline int numbers_of_section(const gpu_forward *args) {
    const gpu_problem &p = args->problem;
    int64_t head_bytes = std::max(args->maps->key_rows, (int64_t)1) * (p.dim + p.dim_v) * 2;
    int64_t numbers = SECTION_BYTES / head_bytes * p.gqa_ratio;
    if (numbers >= p.per_entry || p.per_entry / p.gqa_ratio * head_bytes <= GPU_CACHED_BYTES) return p.per_entry;
    while (numbers > p.gqa_ratio && p.per_entry % numbers) numbers--;
    return (int)(numbers > p.gqa_ratio ? numbers : p.gqa_ratio < p.per_entry ? p.gqa_ratio : p.per_entry);
}

/* Whether a tile's pairs count once, and its rows are of stride 1. */
static inline bool is_plain(const gpu_tile &t) {
    return t.times == 1 && (t.q_stride == 1 || t.q_count <= 1) && (t.k_stride == 1 || t.k_count <= 1);
}

/* Whether the pass's last launch has every row of every head. */
static inline bool last_launch_has_all(const ra_shape *shape, const gpu_lists &lists, int rows) {
    int64_t seen = 0;
    if (lists.launches.empty() || shape->states != 1) return false;
    for (size_t i = (size_t)lists.launches.back().first; i < lists.units.size(); i++) {
        const gpu_unit &unit = lists.units[i];
        const gpu_tile &tile = lists.tiles[(size_t)unit.tile];
        seen += (int64_t)std::min(rows, tile.q_count - unit.block * rows) * (unit.head >= 0 ? 1 : tile.head_count);
    }
    return seen == shape->heads_q * shape->rows_q;
}

/* The kernels of a type and width: GROUPS consumers, STAGES stages of KEYS keys. MMA: the kernel that does what these
 * cannot: a scale that is not positive, in units of MMA_ROWS rows, and rows that end with a NaN. */
template <class T, int DIM, int KEYS, int GROUPS, int STAGES, bool TURNS, const gpu_forward_variant &MMA, int MMA_ROWS>
struct forward_wgmma {
    using boxes = forward_wgmma_shape<T, DIM, KEYS, GROUPS, STAGES, TURNS, true>;
    /* What dilated problems ask for costs others 0.8 to 1.3% at D = 128 (documents), and nothing at 64 and 256. */
    using plain = forward_wgmma_shape<T, DIM, KEYS, GROUPS, STAGES, TURNS, true, DIM == 128>;
    using rows = forward_wgmma_shape<T, DIM, KEYS, GROUPS, STAGES, true, false>;

    static_assert(boxes::COUNTS && rows::COUNTS, "there is a kernel for pairs that count several times");
    static_assert(sizeof(gpu_forward) + sizeof(launch_maps<FEW_MAPS>) + 64 <= 4096, "few enough maps");

    template <class S> static cudaError_t allow_boxes(void) {
        cudaError_t error = allow_shared_memory(forward_by_boxes<S, FEW_MAPS>, S::BYTES);
        return error ? error : allow_shared_memory(forward_by_boxes<S, TENSOR_MAPS>, S::BYTES);
    }

    template <class S>
    static void launch_boxes(const gpu_forward &args, const tensor_maps &maps, unsigned ctas, unsigned count,
                             cudaStream_t stream) {
        if (maps.used <= FEW_MAPS)
            forward_by_boxes<S, FEW_MAPS><<<ctas, S::THREADS, S::BYTES, stream>>>(args, few_maps(maps), count);
        else
            forward_by_boxes<S, TENSOR_MAPS><<<ctas, S::THREADS, S::BYTES, stream>>>(args, maps, count);
    }

    static cudaError_t allow(void) {
        if (MMA.rows != MMA_ROWS || !MMA.launch_redo) return cudaErrorInvalidConfiguration;
        cudaError_t error = MMA.allow();
        if (!error) error = allow_shared_memory(forward_by_rows<rows>, rows::BYTES);
        if (!error) error = allow_boxes<boxes>();
        if (!error) error = allow_boxes<plain>();
        return error;
    }

    static void launch(const gpu_forward *args, unsigned count, cudaStream_t stream) {
        tensor_maps maps;
        gpu_forward done = *args;
        if (!(args->problem.scale > 0)) {
            done.units = args->other_units;
            MMA.launch(&done, args->other_count, stream);
            return;
        }
        unsigned ctas = std::min(count, (unsigned)args->multiprocessors);
        if (!tensor_maps_forward(args, dtype_of<T>, boxes::Q_ROWS, boxes::STAGED ? OUTPUT_BOX_ROWS : 0, &maps)) {
            done.section = args->problem.per_entry;
            done.section_entries = (int)(count / (unsigned)args->problem.per_entry);
            forward_by_rows<rows><<<ctas, rows::THREADS, rows::BYTES, stream>>>(done, count);
        } else {
            done.section = numbers_of_section(args);
            done.section_entries = (int)(count / (unsigned)args->problem.per_entry) - args->last_entries;
            if (args->maps->plain)
                launch_boxes<plain>(done, maps, ctas, count, stream);
            else
                launch_boxes<boxes>(done, maps, ctas, count, stream);
        }
        done.redo_rows = boxes::ROWS;
        MMA.launch_redo(&done, ctas, stream);
    }

    static void list_maps(const ra_shape *shape, const ra_tile_list *tiles, const ra_kv_rows *parts, gpu_lists *lists) {
        (void)tiles;
        lists->maps.plain = plain::PLAIN && std::all_of(lists->tiles.begin(), lists->tiles.end(), is_plain);
        tensor_maps_list(shape, parts, KEYS, lists);
        lists->maps.finishes = shape->scale > 0 && last_launch_has_all(shape, *lists, boxes::ROWS);
    }

    /* taller, cost: as in the struct; but the keys of a block are the kernel's. */
    static constexpr gpu_forward_variant variant(gpu_unit_cost cost = {}, const gpu_forward_variant *taller = NULL) {
        gpu_forward_variant v = {boxes::ROWS, std::max(boxes::BYTES, rows::BYTES), allow, launch};
        v.list_maps = list_maps;
        v.other_rows = MMA_ROWS;
        v.cost = cost;
        v.cost.keys = KEYS;
        v.taller = taller;
        return v;
    }
};

#endif
