/* Hopper's asynchronous tensor-core products (wgmma), and the barriers that go with them.
 *
 * A warpgroup (4 warps) computes D [64, N] += A [64, 16] . B [16, N]. D is in registers; warp w of it has rows 16 w on,
 * as mma.cuh says of a 16 x 8 accumulator: d[N / 8][4]. A is in registers, each warp's 16 rows as for m16n8k16, or in
 * shared memory; B is in shared memory.
 *
 * Tiles of shared memory are panels of 64 elements a row, 128 bytes, chunk c of row r at c ^ (r & 7): what the hardware
 * calls a 128-byte swizzle. A panel starts at a multiple of 1024 bytes. An operand is read along its rows (the depth is
 * along a row) or across them (the depth is down the rows):
 *
 *   along:   16 of the depth are 32 bytes of a row; 64 (A) or N (B) rows, 8 rows to 1024 bytes
 *   across:  16 of the depth are 16 rows, 2048 bytes; the 64 or N others go along the rows and on in the next panel
 */
#ifndef RA_KERNEL_CUDA_SM90_WGMMA_CUH
#define RA_KERNEL_CUDA_SM90_WGMMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

enum { PANEL_WIDTH = 64 /* elements */, PANEL_ROW_BYTES = 128, SWIZZLE_ROWS_BYTES = 1024 };

/* Byte of chunk `chunk` (8 elements) of row `row` in a tile of panels of `ROWS` rows. */
template <int ROWS> __device__ __forceinline__ int panel_chunk_at(int row, int chunk) {
    return (chunk >> 3) * ROWS * PANEL_ROW_BYTES + row * PANEL_ROW_BYTES + (((chunk & 7) ^ (row & 7)) << 4);
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

/* address >> 4 in bits 0-13, leading offset >> 4 in 16-29, stride offset >> 4 in 32-45, 128-byte swizzle: 1 in 62-63.
 * The stride is from 8 rows to the next 8, the leading offset from panel to panel where rows are read across. */
__device__ __forceinline__ uint64_t tile_descriptor(uint32_t address, uint32_t panel_bytes) {
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(panel_bytes >> 4 & 0x3fff) << 16 |
           (uint64_t)(SWIZZLE_ROWS_BYTES >> 4) << 32 | (uint64_t)1 << 62;
}

/* Depth 16 k on of an operand whose depth is along its rows; row0 (a multiple of 8) on. ROWS: of a panel. */
template <int ROWS> __device__ __forceinline__ uint64_t along_rows(uint32_t tile, int row0, int k) {
    return tile_descriptor(tile + (k >> 2) * ROWS * PANEL_ROW_BYTES + row0 * PANEL_ROW_BYTES + (k & 3) * 32,
                           ROWS * PANEL_ROW_BYTES);
}

/* Depth 16 k on of an operand whose depth is down its rows; from column column0 (a multiple of 64) on. */
template <int ROWS> __device__ __forceinline__ uint64_t across_rows(uint32_t tile, int column0, int k) {
    return tile_descriptor(tile + column0 / PANEL_WIDTH * ROWS * PANEL_ROW_BYTES + k * 16 * PANEL_ROW_BYTES,
                           ROWS * PANEL_ROW_BYTES);
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

/* Before the first product, and whenever registers that products use were written by others. */
__device__ __forceinline__ void products_begin(void) {
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void products_commit(void) {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

/* Until at most LEFT groups are under way. */
template <int LEFT> __device__ __forceinline__ void products_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(LEFT) : "memory");
}

/* What this thread wrote to shared memory can be read by products from here on (after a barrier, by everyone's). */
__device__ __forceinline__ void shared_writes_to_products(void) {
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

/* Tells the compiler that products still change these registers. */
template <int NT> __device__ __forceinline__ void keep_registers(float (&d)[NT][4]) {
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) asm volatile("" : "+f"(d[n][e])::"memory");
}

template <int REGISTERS> __device__ __forceinline__ void registers_more(void) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(REGISTERS));
}

template <int REGISTERS> __device__ __forceinline__ void registers_fewer(void) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(REGISTERS));
}

/* A barrier of `threads` threads; id 1 to 15, 0 being that of __syncthreads. */
__device__ __forceinline__ void named_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* D [64, N] of products of type T; A_ACROSS, B_ACROSS: the operand is read across its rows. first: D is overwritten,
 * not added to. */
template <class T, int N> struct wgmma;

/* The text of an instruction names each of its registers, which a template cannot write. D_<N>: d as operands;
 * NAMES_<N>: their names, from %0 on. */
#define RA_WGMMA_D_8(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define RA_WGMMA_D_32(n) RA_WGMMA_D_8(n), RA_WGMMA_D_8(n + 1), RA_WGMMA_D_8(n + 2), RA_WGMMA_D_8(n + 3)
#define RA_WGMMA_D_64 RA_WGMMA_D_32(0), RA_WGMMA_D_32(4)
#define RA_WGMMA_D_80 RA_WGMMA_D_64, RA_WGMMA_D_8(8), RA_WGMMA_D_8(9)
#define RA_WGMMA_D_96 RA_WGMMA_D_64, RA_WGMMA_D_32(8)
#define RA_WGMMA_D_128 RA_WGMMA_D_64, RA_WGMMA_D_32(8), RA_WGMMA_D_32(12)
#define RA_WGMMA_D_192 RA_WGMMA_D_128, RA_WGMMA_D_32(16), RA_WGMMA_D_32(20)
#define RA_WGMMA_D_256 RA_WGMMA_D_128, RA_WGMMA_D_32(16), RA_WGMMA_D_32(20), RA_WGMMA_D_32(24), RA_WGMMA_D_32(28)
#define RA_WGMMA_NAMES_64                                                                                              \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RA_WGMMA_NAMES_128                                                                                             \
    RA_WGMMA_NAMES_64 ", "                                                                                             \
                      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "               \
                      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

#define RA_WGMMA_NAMES_192                                                                                             \
    RA_WGMMA_NAMES_128 ", "                                                                                            \
                       "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "              \
                       "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

#define RA_WGMMA_NAMES_96                                                                                              \
    RA_WGMMA_NAMES_64 ", "                                                                                             \
                      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define RA_WGMMA_NAMES_80 RA_WGMMA_NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define RA_WGMMA_NAMES_256                                                                                             \
    RA_WGMMA_NAMES_128                                                                                                 \
    ", "                                                                                                               \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                                 \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                                 \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "                     \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/* a, b: the operands as the text names them; across: a flag for each that is in shared memory. */
#define RA_WGMMA_TEXT(TYPE, N, a, b, first, across)                                                                    \
    "{\n.reg .pred p;\nsetp.eq.b32 p, " first ", 0;\n"                                                                 \
    "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #TYPE "." #TYPE " {" RA_WGMMA_NAMES_##N                          \
        "}, " a ", " b ", p, 1, 1, " across ";\n}\n"

/* i0 to i6: the numbers of the operands behind those of d. */
#define RA_WGMMA(T, TYPE, N, i0, i1, i2, i3, i4, i5, i6)                                                               \
    template <> struct wgmma<T, N> {                                                                                   \
        template <bool A_ACROSS, bool B_ACROSS>                                                                        \
        static __device__ __forceinline__ void shared(float (&d)[N / 8][4], uint64_t a, uint64_t b, bool first) {      \
            asm volatile(RA_WGMMA_TEXT(TYPE, N, "%" #i0, "%" #i1, "%" #i2, "%" #i3 ", %" #i4)                          \
                         : RA_WGMMA_D_##N                                                                              \
                         : "l"(a), "l"(b), "r"((int)first), "n"((int)A_ACROSS), "n"((int)B_ACROSS));                   \
        }                                                                                                              \
        template <bool B_ACROSS>                                                                                       \
        static __device__ __forceinline__ void registers(float (&d)[N / 8][4], const uint32_t (&a)[4], uint64_t b,     \
                                                         bool first) {                                                 \
            asm volatile(RA_WGMMA_TEXT(TYPE, N, "{%" #i0 ", %" #i1 ", %" #i2 ", %" #i3 "}", "%" #i4, "%" #i5, "%" #i6) \
                         : RA_WGMMA_D_##N                                                                              \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)first), "n"((int)B_ACROSS));   \
        }                                                                                                              \
    }

RA_WGMMA(__nv_bfloat16, bf16, 64, 32, 33, 34, 35, 36, 37, 38);
RA_WGMMA(__nv_bfloat16, bf16, 96, 48, 49, 50, 51, 52, 53, 54);
RA_WGMMA(__nv_bfloat16, bf16, 128, 64, 65, 66, 67, 68, 69, 70);
RA_WGMMA(__nv_bfloat16, bf16, 192, 96, 97, 98, 99, 100, 101, 102);
RA_WGMMA(__nv_bfloat16, bf16, 80, 40, 41, 42, 43, 44, 45, 46);
RA_WGMMA(__nv_bfloat16, bf16, 256, 128, 129, 130, 131, 132, 133, 134);
RA_WGMMA(__half, f16, 80, 40, 41, 42, 43, 44, 45, 46);
RA_WGMMA(__half, f16, 256, 128, 129, 130, 131, 132, 133, 134);
RA_WGMMA(__half, f16, 64, 32, 33, 34, 35, 36, 37, 38);
RA_WGMMA(__half, f16, 96, 48, 49, 50, 51, 52, 53, 54);
RA_WGMMA(__half, f16, 128, 64, 65, 66, 67, 68, 69, 70);
RA_WGMMA(__half, f16, 192, 96, 97, 98, 99, 100, 101, 102);

#undef RA_WGMMA
#undef RA_WGMMA_TEXT
#undef RA_WGMMA_NAMES_256
#undef RA_WGMMA_NAMES_192
#undef RA_WGMMA_NAMES_128
#undef RA_WGMMA_NAMES_80
#undef RA_WGMMA_NAMES_64
#undef RA_WGMMA_D_256
#undef RA_WGMMA_D_192
#undef RA_WGMMA_D_128
#undef RA_WGMMA_D_80
#undef RA_WGMMA_D_64
#undef RA_WGMMA_D_32
#undef RA_WGMMA_D_8

#endif
