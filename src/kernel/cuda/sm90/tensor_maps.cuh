/* Tensor maps: what the copy engine is told of rows in device memory.
 *
 * A map is of the rows remainder + i * stride of a view, all heads and batches: 5 dimensions (element, remainder, i,
 * head, batch), in boxes of one remainder. So a strided span is copied like a dense one, and a pass needs one or two
 * for each stride of its tiles' rows: list_maps.cu. The rank's own rows come with every call, and so do those of
 * queries: their maps are parameters of the kernel, and are made anew when they are not where they were in the call
 * before. Maps of slots are made once and lie in device memory. Where a kernel is for rows of stride 1 alone (`plain`
 * in work.cuh), its maps have no dimension of remainders.
 */
#ifndef RA_KERNEL_CUDA_SM90_TENSOR_MAPS_CUH
#define RA_KERNEL_CUDA_SM90_TENSOR_MAPS_CUH

#include "kernel/cuda/prepared.cuh"

#include <algorithm>
#include <cstddef>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* The maps of a launch: first those of the queries' rows (forward: Q; backward: Q, dO and dQ in turn), then, where the
 * keys are the rank's own or come with every call, K's and V's in turn, then those of the rows that the forward kernel
 * writes. */
template <int COUNT> struct launch_maps {
    const CUtensorMap *parts; /* device memory: K's and V's of slots in turn; NULL: they are in map */
    int own;                  /* where those of keys that are in map start */
    int outputs;              /* where those of the forward pass's o start, one for each of Q's; 0: there are none */
    int used;                 /* forward: how many there are in map */
    CUtensorMap map[COUNT];
};

using tensor_maps = launch_maps<TENSOR_MAPS>;

/* Parameters of 4 KB take the host and the device less time to launch with than 16 KB: 6 to 10 us. So a forward kernel
 * is given no more where these are enough. */
enum { FEW_MAPS = 24 };

/* As kernels see the maps of a launch, of whatever size: they ask for none but those that there are. */
template <int COUNT> __device__ __forceinline__ const tensor_maps &all_maps(const launch_maps<COUNT> &maps) {
    static_assert(offsetof(tensor_maps, map) == offsetof(launch_maps<COUNT>, map), "the one begins as the other");
    return reinterpret_cast<const tensor_maps &>(maps);
}

static inline launch_maps<FEW_MAPS> few_maps(const tensor_maps &maps) {
    launch_maps<FEW_MAPS> few = {maps.parts, maps.own, maps.outputs, maps.used, {}};
    std::copy(maps.map, maps.map + maps.used, few.map);
    return few;
}

/* Plan time: lists the maps that the tiles need, and makes those of slots. keys: rows of a box of keys. */
void tensor_maps_list(const ra_shape *shape, const ra_kv_rows *parts, int keys, gpu_lists *lists);

/* A call's. Fail where some rows are not in chunks of 16 bytes, or more maps are needed than there are places; the
 * outputs' maps alone may be missing. rows_q, rows_o: rows of a box of queries and of outputs; rows_o 0: none needed.
 */
bool tensor_maps_forward(const gpu_forward *args, ra_dtype dtype, int rows_q, int rows_o, tensor_maps *maps_out);
bool tensor_maps_backward(const gpu_backward *args, ra_dtype dtype, int rows_q, tensor_maps *maps_out);

/* Of a kernel's elements. */
template <class T> static constexpr ra_dtype dtype_of = RA_BF16;
template <> constexpr ra_dtype dtype_of<__half> = RA_F16;

/* Map k_map of the keys, in a kernel: of K; that of V is behind it. */
__device__ __forceinline__ const CUtensorMap *key_map(const tensor_maps &maps, int k_map) {
    return maps.parts ? &maps.parts[2 * k_map] : &maps.map[maps.own + 2 * k_map];
}

/* Tile t's. */
__device__ __forceinline__ const CUtensorMap *key_map(const tensor_maps &maps, const gpu_tile &t) {
    return key_map(maps, t.k_set.map);
}

#endif
