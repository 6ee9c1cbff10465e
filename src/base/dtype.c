/* Names, sizes and conversion of the element types. */
#include "base/dtype.h"

#include "base/status.h"

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [RA_F32] = {"f32", 4},
    [RA_F64] = {"f64", 8},
    [RA_BF16] = {"bf16", 2},
    [RA_F16] = {"f16", 2},
};

enum { TYPES = sizeof types / sizeof *types };

static int is_type(ra_dtype dtype) {
    return (int)dtype >= (int)RA_F32 && (int)dtype < TYPES;
}

const char *ra_dtype_name(ra_dtype dtype) {
    return is_type(dtype) ? types[dtype].name : NULL;
}

size_t ra_dtype_bytes(ra_dtype dtype) {
    return is_type(dtype) ? types[dtype].bytes : 0;
}

ra_status ra_dtype_parse(const char *name, ra_dtype *dtype_out) {
    if (!name || !dtype_out) return ra_refuse("ra_dtype_parse needs a name and a place for the type, not NULL");
    for (int i = RA_F32; i < TYPES; i++) {
        if (strcmp(name, types[i].name) == 0) {
            *dtype_out = (ra_dtype)i;
            return RA_OK;
        }
    }
    return ra_refuse("\"%s\" is not an element type; choose f64, f32, bf16 or f16", name);
}

static double load(ra_dtype dtype, const void *data, int64_t i) {
    switch (dtype) {
    case RA_F32:
        return ((const float *)data)[i];
    case RA_F64:
        return ((const double *)data)[i];
    case RA_BF16:
        return ra_bf16_to_f32(((const uint16_t *)data)[i]);
    case RA_F16:
        return ra_f16_to_f32(((const uint16_t *)data)[i]);
    }
    return 0;
}

static void store(ra_dtype dtype, void *data, int64_t i, double x) {
    switch (dtype) {
    case RA_F32:
        ((float *)data)[i] = (float)x;
        break;
    case RA_F64:
        ((double *)data)[i] = x;
        break;
    case RA_BF16:
        ((uint16_t *)data)[i] = ra_f64_to_bf16(x);
        break;
    case RA_F16:
        ((uint16_t *)data)[i] = ra_f64_to_f16(x);
        break;
    }
}

/* Every type fits into a double, so each element is rounded once. */
ra_status ra_convert(ra_dtype to, void *to_data, ra_dtype from, const void *from_data, int64_t count) {
    if (!is_type(to) || !is_type(from))
        return ra_refuse("ra_convert: %d is not an element type", is_type(to) ? from : to);
    if (count < 0) return ra_refuse("ra_convert: the count is %lld; it must not be negative", (long long)count);
    if (count > 0 && (!to_data || !from_data)) return ra_refuse("ra_convert: the arrays must not be NULL");
    if (to == from && count > 0) {
        memcpy(to_data, from_data, (size_t)count * types[to].bytes);
        return RA_OK;
    }
    for (int64_t i = 0; i < count; i++) store(to, to_data, i, load(from, from_data, i));
    return RA_OK;
}
