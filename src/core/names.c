/* Names of layouts and kinds of dilation. */
#include "base/status.h"

#include <string.h>

static const char *const layouts[] = {"auto", "contiguous", "zigzag", "striped", "documents"};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

const char *ra_layout_name(ra_layout layout) {
    return (unsigned)layout < LAYOUTS ? layouts[layout] : NULL;
}

/* The index of a name among `count`; -1 when it is none. */
static int find(const char *const *names, int count, const char *name) {
    for (int i = 0; name && i < count; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

ra_status ra_layout_parse(const char *name, ra_layout *layout_out) {
    if (!layout_out) return ra_refuse("layout_out is NULL");
    int i = find(layouts, LAYOUTS, name);
    if (i < 0)
        return ra_refuse("'%s' is no layout; there are contiguous, zigzag, striped, documents and auto",
                         name ? name : "NULL");
    *layout_out = (ra_layout)i;
    return RA_OK;
}

static const char *const heads[] = {"all", "groups"};
static const char *const offsets[] = {"head", "block", "group"};
static const char *const combines[] = {"lse", "mean"};

const char *ra_dilated_heads_name(ra_dilated_heads value) {
    return (unsigned)value < 2 ? heads[value] : NULL;
}

const char *ra_dilated_offset_name(ra_dilated_offset value) {
    return (unsigned)value < 3 ? offsets[value] : NULL;
}

const char *ra_dilated_combine_name(ra_dilated_combine value) {
    return (unsigned)value < 2 ? combines[value] : NULL;
}

ra_status ra_dilated_heads_parse(const char *name, ra_dilated_heads *heads_out) {
    if (!heads_out) return ra_refuse("heads_out is NULL");
    int i = find(heads, 2, name);
    if (i < 0)
        return ra_refuse("'%s' is no way to give branches to heads; there are all and groups", name ? name : "NULL");
    *heads_out = (ra_dilated_heads)i;
    return RA_OK;
}

ra_status ra_dilated_offset_parse(const char *name, ra_dilated_offset *offset_out) {
    if (!offset_out) return ra_refuse("offset_out is NULL");
    int i = find(offsets, 3, name);
    if (i < 0) return ra_refuse("'%s' is no offset; there are head, block and group", name ? name : "NULL");
    *offset_out = (ra_dilated_offset)i;
    return RA_OK;
}

ra_status ra_dilated_combine_parse(const char *name, ra_dilated_combine *combine_out) {
    if (!combine_out) return ra_refuse("combine_out is NULL");
    int i = find(combines, 2, name);
    if (i < 0) return ra_refuse("'%s' is no way to combine branches; there are lse and mean", name ? name : "NULL");
    *combine_out = (ra_dilated_combine)i;
    return RA_OK;
}
