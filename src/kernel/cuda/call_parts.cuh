/* Parts, and queries of several ranks, that come with every call (kernel.h): their place only the pass knows. Kernels
 * read them in device memory, which a launch of its own, with them as its parameters, writes before theirs: so a graph
 * keeps them. Where they are what the call before has written there, nothing is launched. Their tensor maps are
 * parameters of the kernels, as those of the rank's own rows are. */
#ifndef RA_KERNEL_CUDA_CALL_PARTS_CUH
#define RA_KERNEL_CUDA_CALL_PARTS_CUH

#include "kernel/cuda/work.cuh"

#include <cstring>
#include <vector>

/* parts: as they were given to prepare. */
static inline bool parts_come_with_calls(const std::vector<ra_kv_rows> &parts) {
    for (const ra_kv_rows &part : parts)
        if (!part.k.data) return true;
    return false;
}

static_assert(sizeof(ra_kv_rows) == 23 * sizeof(int64_t) && sizeof(ra_query_rows) == 41 * sizeof(int64_t),
              "they are compared byte by byte");

/* What has come with the last call: what is written in device memory, and what tensor maps are made of. */
struct gpu_came {
    std::vector<ra_kv_rows> parts;
    std::vector<ra_query_rows> queries;
    uint64_t changes = 0;   /* how often it was something else than with the call before */
    bool in_graphs = false; /* a call was captured: what is there after its graph was launched is not known here */

    /* Keeps what comes with a call; returns whether it is what came with the one before. */
    bool keep(const ra_kv_rows *come_parts, size_t part_count, const ra_query_rows *come_queries, size_t query_count) {
        bool same_parts = keep_one(come_parts, part_count, &parts);
        bool same_queries = keep_one(come_queries, query_count, &queries);
        changes += !same_parts || !same_queries;
        return same_parts && same_queries;
    }

  private:
    template <class X> static bool keep_one(const X *come, size_t count, std::vector<X> *kept) {
        if (kept->size() == count && (count == 0 || !memcmp(kept->data(), come, count * sizeof *come))) return true;
        kept->assign(come, come + count);
        return false;
    }
};

/* The first head of a gap among those of all ranks, of which no rank has so many. */
enum { GAP_HEADS = 1 << 24 };

static inline int gap_head(int queries, int head) {
    return queries * GAP_HEADS + head;
}

/* Of which rank's queries a gap or a block of queries is, and its first head there. */
template <class ROWS> static inline __host__ __device__ int gap_queries(const ROWS &rows) {
    return rows.head_first / GAP_HEADS;
}

template <class ROWS> static inline __host__ __device__ int head_in_gap(const ROWS &rows) {
    return rows.head_first % GAP_HEADS;
}

#endif
