#include "kernel/cuda/sm90/tensor_maps.cuh"

#include "kernel/cuda/call_parts.cuh"

#include <algorithm>
#include <cstring>
#include <cuda_runtime.h>

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

typedef CUresult (*encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                    const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                    CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's, which is found at run time, so that nothing needs to be linked with it. NULL: it has none. */
static encode_function find_encoder(void) {
    void *found = NULL;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
#else
    cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) {
        cudaGetLastError();
        return NULL;
    }
    return (encode_function)found;
}

/* What the maps of a launch have in common. */
struct map_shape {
    CUtensorMapDataType type;
    int64_t bytes; /* of an element */
    int64_t batch;
    bool plain; /* rows have no remainders, and the maps 4 dimensions */
};

static map_shape map_shape_of(ra_dtype dtype, int64_t batch, bool plain) {
    return {dtype == RA_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, batch, plain};
}

/* Bytes from one to the next of `count`; 0: the copy engine cannot take such steps. A step that is never taken may be
 * any. */
static cuuint64_t step_bytes(int64_t bytes, int64_t count) {
    if (count == 1) return 16;
    return bytes > 0 && bytes % 16 == 0 && bytes < (int64_t)1 << 40 ? (cuuint64_t)bytes : 0;
}

/* The map of `rows` of a view, `width` elements to a row, in boxes of 128 bytes by box_rows. */
static bool encode(const map_shape &shape, const ra_view &view, const gpu_map_rows &rows, int64_t width, int64_t heads,
                   int box_rows, CUtensorMap *map_out) {
    static const encode_function encoder = find_encoder();
    cuuint32_t box[5] = {(cuuint32_t)(128 / shape.bytes), 1, (cuuint32_t)box_rows, 1, 1};
    const cuuint32_t each[5] = {1, 1, 1, 1, 1};
    if (!encoder || (view.dim != 1 && width > 1) || (uintptr_t)view.data % 16 || heads < 1 || shape.batch < 1)
        return false;
    cuuint64_t counts[5] = {(cuuint64_t)width, (cuuint64_t)rows.remainders, (cuuint64_t)rows.count, (cuuint64_t)heads,
                            (cuuint64_t)shape.batch};
    cuuint64_t steps[4] = {step_bytes(view.row * shape.bytes, rows.remainders),
                           step_bytes(view.row * rows.stride * shape.bytes, rows.count),
                           step_bytes(view.head * shape.bytes, heads),
                           step_bytes(view.batch * shape.bytes, shape.batch)};
    if (std::find(steps, steps + 4, 0u) != steps + 4) return false;
    if (shape.plain) {
        std::copy(counts + 2, counts + 5, counts + 1);
        std::copy(steps + 1, steps + 4, steps);
        std::copy(box + 2, box + 5, box + 1);
    }
    return encoder(map_out, shape.type, shape.plain ? 4 : 5, view.data, counts, steps, box, each,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* K's and V's of one set of rows. */
static bool encode_keys(const map_shape &shape, const ra_kv_rows &part, const gpu_map_rows &rows, int64_t dim,
                        int64_t dim_v, int box_rows, CUtensorMap *maps_out) {
    return encode(shape, part.k, rows, dim, part.heads.count, box_rows, &maps_out[0]) &&
           encode(shape, part.v, rows, dim_v, part.heads.count, box_rows, &maps_out[1]);
}

/* ---- those of the last calls ------------------------------------------------------------------------------------- */

/* What the maps of a launch depend on, beside its plan. */
struct map_views {
    ra_view q, out, dq, k, v;
    int half; /* out is of the inputs' type */
};

static_assert(sizeof(ra_view) == 5 * sizeof(int64_t), "views are compared byte by byte");

/* Of the launches that write states, and of those that write outputs: a pass has both. */
struct made_maps {
    struct launch {
        bool known;
        uint64_t changes; /* of what comes with calls, when they were made */
        map_views views;
        tensor_maps maps;
    } of[2];
    made_maps() {
        of[0].known = of[1].known = false;
    }
};

static uint64_t changes_of(const gpu_maps &listed) {
    return listed.came ? listed.came->changes : 0;
}

static bool same_views(const map_views &x, const map_views &y) {
    return !memcmp(&x.q, &y.q, 5 * sizeof(ra_view)) && x.half == y.half;
}

/* Where they are as they were, *maps_out is filled. */
static bool find_made(const gpu_maps &listed, int which, const map_views &views, tensor_maps *maps_out) {
    const made_maps::launch *made = listed.made ? &listed.made->of[which] : NULL;
    if (!made || !made->known || made->changes != changes_of(listed) || !same_views(made->views, views)) return false;
    *maps_out = made->maps;
    return true;
}

static void keep_made(const gpu_maps &listed, int which, const map_views &views, const tensor_maps &maps) {
    if (listed.made) listed.made->of[which] = {true, changes_of(listed), views, maps};
}

/* ---- plan time --------------------------------------------------------------------------------------------------- */

void tensor_maps_list(const ra_shape *shape, const ra_kv_rows *parts, int keys, gpu_lists *lists) {
    map_shape maps = map_shape_of(shape->dtype, shape->batch, lists->maps.plain);
    if (!gpu_list_maps(lists)) return;
    lists->maps.made = std::make_shared<made_maps>();
    lists->maps.listed = true;
    lists->maps.keys = keys;
    if (!parts || parts_come_with_calls(lists->parts)) return;
    lists->part_maps.resize(lists->maps.k.size() * 2 * sizeof(CUtensorMap));
    for (size_t i = 0; i < lists->maps.k.size() && lists->maps.listed; i++) {
        const gpu_map_rows &rows = lists->maps.k[i];
        CUtensorMap made[2];
        lists->maps.listed = encode_keys(maps, parts[rows.part], rows, shape->dim, shape->dim_v, keys, made);
        std::copy((unsigned char *)made, (unsigned char *)(made + 2), &lists->part_maps[i * sizeof made]);
    }
}

/* ---- a call's ---------------------------------------------------------------------------------------------------- */

/* Those of the keys, behind the `queries` maps that are there. */
static bool add_keys(const gpu_problem &p, const gpu_maps &listed, const map_shape &shape, size_t queries,
                     tensor_maps *maps) {
    maps->parts = (const CUtensorMap *)listed.parts;
    maps->own = (int)queries;
    if (maps->parts) return true;
    if (queries + 2 * listed.k.size() > TENSOR_MAPS) return false;
    for (size_t i = 0; i < listed.k.size(); i++) {
        const ra_kv_rows &part = p.parts ? listed.came->parts[(size_t)listed.k[i].part] : p.own;
        if (!encode_keys(shape, part, listed.k[i], p.dim, p.dim_v, listed.keys, &maps->map[queries + 2 * i]))
            return false;
    }
    return true;
}

/* The rank's queries that some rows are of. */
template <class ARGS> static const ra_query_rows &query_rows_of(const ARGS &args, const gpu_map_rows &rows) {
    return args.queries ? args.maps->came->queries[(size_t)rows.part] : args.own;
}

static const ra_view &outputs_of(const gpu_forward *args, const ra_query_rows &rows) {
    return args->finish ? rows.o_out : rows.state.o;
}

/* Those of the outputs, behind the `used` maps that are there. Where o is of f32 it goes to memory by 16 bytes,
 * whatever the width says: what lies between rows must not be among them. */
static void add_outputs(const gpu_forward *args, ra_dtype dtype, int rows_o, size_t used, tensor_maps *maps) {
    const std::vector<gpu_map_rows> &rows = args->maps->q;
    bool half = args->finish && !args->out_is_f32;
    map_shape shape = map_shape_of(dtype, args->problem.batch, args->maps->plain);
    if (!half) shape = {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, args->problem.batch, shape.plain};
    maps->outputs = 0;
    if (!rows_o || used + rows.size() > TENSOR_MAPS || args->problem.dim_v * shape.bytes % 16) return;
    for (size_t i = 0; i < rows.size(); i++)
        if (!encode(shape, outputs_of(args, query_rows_of(*args, rows[i])), rows[i], args->problem.dim_v,
                    args->problem.heads_q, rows_o, &maps->map[used + i]))
            return;
    maps->outputs = (int)used;
}

static bool make_forward(const gpu_forward *args, ra_dtype dtype, int rows_q, int rows_o, tensor_maps *maps_out) {
    const gpu_problem &p = args->problem;
    const gpu_maps &listed = *args->maps;
    map_shape shape = map_shape_of(dtype, p.batch, listed.plain);
    if (listed.q.size() > TENSOR_MAPS) return false;
    for (size_t i = 0; i < listed.q.size(); i++)
        if (!encode(shape, query_rows_of(*args, listed.q[i]).q, listed.q[i], p.dim, p.heads_q, rows_q,
                    &maps_out->map[i]))
            return false;
    if (!add_keys(p, listed, shape, listed.q.size(), maps_out)) return false;
    size_t used = listed.q.size() + (maps_out->parts ? 0 : 2 * listed.k.size());
    add_outputs(args, dtype, rows_o, used, maps_out);
    maps_out->used = (int)(used + (maps_out->outputs ? listed.q.size() : 0));
    return true;
}

bool tensor_maps_forward(const gpu_forward *args, ra_dtype dtype, int rows_q, int rows_o, tensor_maps *maps_out) {
    const gpu_maps &listed = *args->maps;
    const ra_kv_rows &own = args->problem.own;
    map_views views = {args->own.q, outputs_of(args, args->own), {}, own.k, own.v, !args->out_is_f32};
    if (!listed.listed) return false;
    if (find_made(listed, args->finish != 0, views, maps_out)) return true;
    if (!make_forward(args, dtype, rows_q, rows_o, maps_out)) return false;
    keep_made(listed, args->finish != 0, views, *maps_out);
    return true;
}

static bool make_backward(const gpu_backward *args, ra_dtype dtype, int rows_q, tensor_maps *maps_out) {
    const gpu_problem &p = args->problem;
    const gpu_maps &listed = *args->maps;
    map_shape shape = map_shape_of(dtype, p.batch, listed.plain),
              sums = {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, p.batch, listed.plain};
    /* Sums go to device memory by 16 bytes, whatever the width says: what lies between rows must not be among them. */
    if (3 * listed.q.size() > TENSOR_MAPS || p.dim % 4) return false;
    for (size_t i = 0; i < listed.q.size(); i++) {
        CUtensorMap *to = &maps_out->map[3 * i];
        const ra_query_rows &from = query_rows_of(*args, listed.q[i]);
        if (!encode(shape, from.q, listed.q[i], p.dim, p.heads_q, rows_q, &to[0]) ||
            !encode(shape, from.dout, listed.q[i], p.dim_v, p.heads_q, rows_q, &to[1]) ||
            !encode(sums, from.dq, listed.q[i], p.dim, p.heads_q, rows_q, &to[2]))
            return false;
    }
    return add_keys(p, listed, shape, 3 * listed.q.size(), maps_out);
}

bool tensor_maps_backward(const gpu_backward *args, ra_dtype dtype, int rows_q, tensor_maps *maps_out) {
    const gpu_maps &listed = *args->maps;
    const ra_kv_rows &own = args->problem.own;
    map_views views = {args->own.q, args->own.dout, args->own.dq, own.k, own.v, 0};
    if (!listed.listed) return false;
    if (find_made(listed, 0, views, maps_out)) return true;
    if (!make_backward(args, dtype, rows_q, maps_out)) return false;
    keep_made(listed, 0, views, *maps_out);
    return true;
}
