/* The rows of an item's keys: where they are in device memory, and what a consumer adds to them at the end.
 *
 * dK and dV leave through shared memory, each warp's 16 rows by themselves: the warp writes them there and gives them
 * to the copy engine, row by row, which adds them to device memory or overwrites what is there.
 *
 *   shared memory   dV [KEYS] rows of key_row_pitch bytes, dK [KEYS] likewise, where K, V, Q, dO and dS were
 *
 * Nobody reads or writes there any more when the consumers have met behind their last products (consumers_any): every
 * copy to it has been waited for, by all of them, and every product that reads it has come. A warp writes its own rows
 * alone, and lanes fence what they write before the warp meets and its first lanes start the copies; no other warp is
 * waited for. A lane ends when its copies have been read: shared memory becomes that of another CTA then. They are in
 * device memory when the launch is over, and no one looks at these rows before.
 *
 * Where the launch finishes dK and dV they leave as the outputs' elements: backward_rounded.cuh.
 */
#ifndef RA_KERNEL_CUDA_SM90_BACKWARD_KEYS_CUH
#define RA_KERNEL_CUDA_SM90_BACKWARD_KEYS_CUH

#include "kernel/cuda/sm90/backward_bulk_rows.cuh"
#include "kernel/cuda/sm90/backward_layout.cuh"
#include "kernel/cuda/tile_cursor.cuh"

template <class S> struct key_sums { float dk[S::WIDTH / 8][4], dv[S::WIDTH / 8][4]; };

/* The item's rows of dk or dv: of T where the launch finishes them, or else of f32. */
template <class T, ra_view ra_kv_rows::*WHICH>
__device__ __forceinline__ row_source output_rows(const gpu_backward &args, const item_place &item) {
    return args.finish ? item_rows<T, WHICH>(args, item) : item_rows<float, WHICH>(args, item);
}

/* By the consumers while K is on its way: what is looked up in device memory then is not waited for at the end. The
 * others see it behind consumers_any. */
template <class T> __device__ __forceinline__ void find_outputs(const gpu_backward &args, item_plan &plan) {
    if (threadIdx.x == 128) {
        plan.outputs.dk = output_rows<T, &ra_kv_rows::dk>(args, plan.item);
        plan.outputs.count = item_tile(args, plan.item).k_count;
    } else if (threadIdx.x == 160) {
        plan.outputs.dv = output_rows<T, &ra_kv_rows::dv>(args, plan.item);
    }
}

/* A warp's rows [first, first + WARP_ROWS) of dk or dv, as far as they are below limit. */
struct key_output {
    row_source rows;
    int first, limit;
    int width; /* elements of a row */
    int overwrite;
};

enum { WARP_ROWS = 16 };

/* ---- by the copy engine ------------------------------------------------------------------------------------------ */

/* Bytes from one row to the next in shared memory: padded, so that a warp's accumulators meet all banks. */
template <class S> constexpr int key_row_pitch = S::DIM * 4 + 32;

enum key_sum { SUM_OF_DV, SUM_OF_DK };

/* Where row `row` of the block is on its way out. */
template <class S>
__device__ __forceinline__ uint32_t key_row_at(const backward_memory<S> &memory, key_sum which, int row) {
    static_assert(2 * S::KEYS * key_row_pitch<S> <= S::IDLE_BYTES, "dK and dV leave through what others have used");
    return memory.base + (which * S::KEYS + row) * key_row_pitch<S>;
}

/* from [WARP_ROWS], in shared memory, = by * x; a thread has what it has of an accumulator. */
template <class S, int TILES>
__device__ __forceinline__ void put_key_rows(uint32_t from, const float (&x)[TILES][4], float by, int lane) {
    uint32_t at = from + lane / 4 * key_row_pitch<S> + lane % 4 * 8;
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            asm volatile("st.shared.v2.f32 [%0], {%1, %2};\n" ::"r"(at + r * 8 * key_row_pitch<S> + n * 32),
                         "f"(__fmul_rn(by, x[n][r * 2])), "f"(__fmul_rn(by, x[n][r * 2 + 1]))
                         : "memory");
}

/* Rows of `to` += from, or = that where they are overwritten, begun: a lane has a row. */
template <class S> __device__ __forceinline__ void send_key_rows(const key_output &to, uint32_t from, int lane) {
    if (lane < WARP_ROWS && to.first + lane < to.limit) {
        float *at = (float *)(to.rows.base + row_offset<float>(to.rows, to.first + lane));
        if (to.overwrite)
            write_row(at, from + lane * key_row_pitch<S>, to.width * 4);
        else
            add_row(at, from + lane * key_row_pitch<S>, to.width * 4);
    }
    bulk_commit();
}

/* This lane's rows have been read from shared memory. */
__device__ __forceinline__ void key_rows_sent(void) {
    bulk_wait_read<0>();
}

/* ---- element by element ------------------------------------------------------------------------------------------ */

/* The two floats += x, rounded as any sum is: nobody waits for what is there. */
__device__ __forceinline__ void add_there(float *to, float2 x) {
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x.x), "f"(x.y) : "memory");
}

/* Rows of `to` += by * x, or = that where they are overwritten: by two floats, or whatever the strides. */
template <int TILES>
__device__ __forceinline__ void add_key_elements(const key_output &to, const float (&x)[TILES][4], float by, int lane) {
    bool by_twos = to.rows.aligned && to.width % 2 == 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = to.first + r * 8 + lane / 4, d0 = lane % 4 * 2;
        if (row >= to.limit) continue;
        float *at = (float *)(to.rows.base + row_offset<float>(to.rows, row));
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            int d = n * 8 + d0;
            float2 more = make_float2(__fmul_rn(by, x[n][r * 2]), __fmul_rn(by, x[n][r * 2 + 1]));
            if (by_twos && d < to.width) {
                if (to.overwrite)
                    __stcg((float2 *)(at + d), more);
                else
                    add_there(at + d, more);
            } else if (!by_twos) {
                float *one = at + d * to.rows.dim, *two = one + to.rows.dim;
                if (d < to.width) __stcg(one, to.overwrite ? more.x : __fadd_rn(__ldcg(one), more.x));
                if (d + 1 < to.width) __stcg(two, to.overwrite ? more.y : __fadd_rn(__ldcg(two), more.y));
            }
        }
    }
}

/* Whether the copy engine can take rows of sums. */
__device__ __forceinline__ bool rows_are_sent(const key_output &to) {
    return to.rows.aligned && to.width % 4 == 0;
}

/* ---- either ------------------------------------------------------------------------------------------------------ */

/* The first half of add_to_key_rows: nothing is sent yet. */
template <class S, int TILES>
__device__ __forceinline__ void put_or_add_key_rows(const key_output &to, uint32_t from, const float (&x)[TILES][4],
                                                    float by, int lane) {
    if (rows_are_sent(to))
        put_key_rows<S>(from, x, by, lane);
    else
        add_key_elements(to, x, by, lane);
}

/* Rows of `to` += by * x, or = that where they are overwritten; through `from` where the copy engine can take them.
 * Products are rounded before they are added: a sum has the same bits whether they are added to it here or by somebody
 * else afterwards. By a warp, behind consumers_any; key_rows_sent ends what it begins. */
template <class S, int TILES>
__device__ __forceinline__ void add_to_key_rows(const key_output &to, uint32_t from, const float (&x)[TILES][4],
                                                float by, int lane) {
    put_or_add_key_rows<S>(to, from, x, by, lane);
    if (!rows_are_sent(to)) return;
    shared_writes_to_products();
    __syncwarp();
    send_key_rows<S>(to, from, lane);
}

#endif
