/* In which order the units of a forward launch are taken. */
#ifndef RA_KERNEL_CUDA_UNIT_ORDER_CUH
#define RA_KERNEL_CUDA_UNIT_ORDER_CUH

#include "kernel/cuda/work.cuh"

/* Units are done in sections of heads, so that the keys and values that are read at one time fit into the cache: the
 * n-th that is taken, by sections, is this one in the launch's order, by entries. Those of the last entries, behind all
 * sections, are in the launch's order. */
__host__ __device__ __forceinline__ unsigned number_in_sections(const gpu_forward &args, unsigned n) {
    unsigned each = (unsigned)args.problem.per_entry, entries = (unsigned)args.section_entries;
    if (n >= entries * each) return n;
    unsigned section = (unsigned)args.section, start = n / (entries * section) * section;
    unsigned width = each - start < section ? each - start : section, in = n - start * entries;
    return in / width * each + start + in % width;
}

#endif
