/* Parts that come with every call (kernel.h): keys and values whose place only the pass knows. Kernels read parts in
 * device memory, which a launch of its own, with the parts as its parameters, writes before theirs: so a graph keeps
 * them. Tensor maps of such parts are parameters of the kernels, as those of the rank's own rows are. */
#ifndef RA_KERNEL_CUDA_CALL_PARTS_CUH
#define RA_KERNEL_CUDA_CALL_PARTS_CUH

#include "kernel/cuda/work.cuh"

#include <vector>

/* parts: as they were given to prepare. */
static inline bool parts_come_with_calls(const std::vector<ra_kv_rows> &parts) {
    for (const ra_kv_rows &part : parts)
        if (!part.k.data) return true;
    return false;
}

/* Before a call's launches: the parts that the maps are made of. */
void tensor_maps_take_parts(const gpu_maps &listed, const ra_kv_rows *parts, size_t count);

#endif
