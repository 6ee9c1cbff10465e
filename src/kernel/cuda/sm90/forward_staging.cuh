/* o of a unit in shared memory, in boxes as the copy engine takes them, and who gives it the boxes (forward_layout.cuh
 * says where they lie, and who waits for whom).
 */
#ifndef RA_KERNEL_CUDA_SM90_FORWARD_STAGING_CUH
#define RA_KERNEL_CUDA_SM90_FORWARD_STAGING_CUH

#include "kernel/cuda/finished_rows.cuh"
#include "kernel/cuda/sm90/forward_consumer.cuh"
#include "kernel/cuda/sm90/gather_nonfinite.cuh"

/* ---- boxes ------------------------------------------------------------------------------------------------------- */

/* A warp's o in boxes of 16 rows of 128 bytes, one behind the other. */
enum { OUTPUT_BOX_ROWS = 16, OUTPUT_BOX = OUTPUT_BOX_ROWS * 128 };

/* Columns [8 FROM, 8 TO) of a warp's o are put into its place. Odd rows have their second 64 bytes written first: then
 * no two of the lanes meet in a bank. */
template <class S, int FROM, int TO> __device__ __forceinline__ void stage_f32(uint32_t to, const output_block<S> &o) {
    int lane = (int)threadIdx.x % 32, row = lane / 4;
    bool odd = row & 1;
    int swizzle = row ^ (odd ? 4 : 0);
    to += row * 128 + lane % 2 * 8;
#pragma unroll
    for (int n = FROM; n < TO; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float x = odd ? o[n ^ 2][r * 2] : o[n][r * 2], y = odd ? o[n ^ 2][r * 2 + 1] : o[n][r * 2 + 1];
            uint32_t at = to + (n - FROM) / 4 * OUTPUT_BOX + r * 1024 + (((n % 4 * 2 + lane % 4 / 2) ^ swizzle) << 4);
            asm volatile("st.shared.v2.f32 [%0], {%1, %2};\n" ::"r"(at), "f"(x), "f"(y) : "memory");
        }
}

/* All of a warp's o is rounded and put into its place, four 8 x 8 matrices at a time: lane l has the address of row l %
 * 16, in the matrices of columns 8 (l / 16) on. seen[r]: of row r, as gather_nonfinite has it. */
template <class S>
__device__ __forceinline__ void stage_rounded(uint32_t to, const output_block<S> &o, uint32_t (&seen)[2]) {
    using T = typename S::T;
    uint32_t lane = threadIdx.x % 32, row = lane % 16;
    to += row * 128;
    seen[0] = seen[1] = 0;
#pragma unroll
    for (int n = 0; n < S::DIM / 8; n += 2) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *two = &o[n + i / 2][i % 2 * 2];
            x[i] = element<T>::pack(two[0], two[1]);
            gather_nonfinite<T>(seen[i % 2], x[i]);
        }
        uint32_t at = to + n / 8 * OUTPUT_BOX + (((n % 8 + lane / 16) ^ row % 8) << 4);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(at), "r"(x[0]),
                     "r"(x[1]), "r"(x[2]), "r"(x[3])
                     : "memory");
    }
}

/* Whether o is put out in 16 bits. */
__device__ __forceinline__ bool puts_out_half(const gpu_forward &args) {
    return args.finish && !args.out_is_f32;
}

/* Where a warp's o is staged. stage: of the unit's last step. */
template <class S>
__device__ __forceinline__ uint32_t place_of_warp(const forward_memory<S> &memory, int group, int stage) {
    if (S::FREE) return memory.own_outputs(row_in_unit() / 16);
    return memory.outputs(group, stage) + (int)threadIdx.x / 32 % 4 * (S::OUTPUT_TILE / 4);
}

/* Until the place can be written: the o before has been sent, or, in a stage, all have read what was there. */
template <class S> __device__ __forceinline__ void wait_for_place(int group) {
    if (S::FREE) {
        bulk_wait_read<0>(); /* in all lanes: the one that has sent is among them */
        __syncwarp();
    } else if (S::SENDER && group == 0) {
        named_barrier(K_READ_BARRIER, 256);
        named_barrier_arrive(V_READ_BARRIER, 256);
    } else if (S::SENDER) {
        named_barrier(V_READ_BARRIER, 256);
    }
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

/* By one lane: columns from `column` on, `count` at most, of a warp's o, which lie at `from`, go to row `row` of the
 * unit on. map: of the output's rows. */
template <class S>
__device__ __forceinline__ void send_boxes(const gpu_forward &args, const CUtensorMap *map, uint32_t from,
                                           const unit_note &note, int row, int column, int count, int how) {
    int columns = puts_out_half(args) ? 64 : 32, end = min(column + count, args.problem.dim_v);
    for (; column < end; column += columns, from += OUTPUT_BOX) {
        if (how == SEND_ADD)
            add_box<S::PLAIN>(map, from, column, note.set.remainder, note.row + row, note.unit.h, note.unit.b);
        else
            store_box<S::PLAIN>(map, from, column, note.set.remainder, note.row + row, note.unit.h, note.unit.b);
    }
    bulk_commit();
}

/* The unit's o has been staged in the unit's last stage, `stage`, if anything is to be sent: by the sender. parity: of
 * the phase of o_empty that is over when the o before has been sent. The barrier keeps nobody from anything: behind the
 * branch of a lane, without a barrier of all the consumer's warps, the compiler does not see that a warp is together,
 * and in the main loop descriptors are not in uniform registers (1.03 of the time). */
template <class S>
__device__ __forceinline__ void hand_outputs(const forward_memory<S> &memory, int group, int stage, int how,
                                             uint32_t &parity) {
    shared_writes_to_products();
    mbarrier_wait(memory.o_empty(group), parity);
    __syncwarp(); /* or a lane could begin the phase behind the one that others wait for */
    parity ^= 1;
    if (elected()) {
        memory.sending_of(group).how[threadIdx.x / 32 % 4] = how;
        memory.sending_of(group).stage = stage;
        mbarrier_arrive(memory.o_full(group));
    }
    named_barrier(group_barrier(group), 128);
}

/* A part of o has been staged in the warp's own place, columns [column, column + count): a lane of each warp sends it.
 * The barrier is for what that of hand_outputs is for. */
template <class S>
__device__ __forceinline__ void send_part(const gpu_forward &args, const CUtensorMap *outputs,
                                          const forward_memory<S> &memory, const unit_note &note, int group, int column,
                                          int count, int how) {
    shared_writes_to_products();
    named_barrier(group_barrier(group), 128);
    if (elected()) {
        int row = row_in_unit() / 16 * 16;
        if (how != SEND_NOTHING)
            send_boxes<S>(args, outputs + note.set.map, memory.own_outputs(row / 16), note, row, column, count, how);
    }
    __syncwarp();
}

/* Staged and sent: the place has room for half of the columns of f32. */
template <class S>
__device__ __forceinline__ void send_by_parts(const gpu_forward &args, const CUtensorMap *outputs,
                                              const forward_memory<S> &memory, const unit_note &note, int group,
                                              int how, const output_block<S> &o) {
    constexpr int HALF = S::DIM / 2;
    uint32_t place = place_of_warp<S>(memory, group, 0);
    if (how != SEND_NOTHING) stage_f32<S, 0, HALF / 8>(place, o);
    send_part<S>(args, outputs, memory, note, group, 0, HALF, how);
    wait_for_place<S>(group);
    if (how != SEND_NOTHING) stage_f32<S, HALF / 8, S::DIM / 8>(place, o);
    send_part<S>(args, outputs, memory, note, group, HALF, HALF, how);
}

#endif
