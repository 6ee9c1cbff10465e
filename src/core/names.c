/* Names of layouts, strategies and kinds of dilation. */
#include "base/status.h"

#include <string.h>

static const char *const layouts[] = {"auto", "contiguous", "zigzag", "striped"};
static const char *const strategies[] = {"auto", "ring", "pairwise", "allgather"};

const char *ra_layout_name(ra_layout layout) {
    return (unsigned)layout < 4 ? layouts[layout] : NULL;
}

const char *ra_strategy_name(ra_strategy strategy) {
    return (unsigned)strategy < 4 ? strategies[strategy] : NULL;
}

static int find(const char *const *names, const char *name) {
    for (int i = 0; name && i < 4; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

ra_status ra_layout_parse(const char *name, ra_layout *layout_out) {
    int i = find(layouts, name);
    if (i < 0 || !layout_out)
        RA_REFUSE("'%s' is no layout; there are contiguous, zigzag, striped and auto", name ? name : "NULL");
    *layout_out = (ra_layout)i;
    return RA_OK;
}

ra_status ra_strategy_parse(const char *name, ra_strategy *strategy_out) {
    int i = find(strategies, name);
    if (i < 0 || !strategy_out)
        RA_REFUSE("'%s' is no strategy; there are ring, pairwise, allgather and auto", name ? name : "NULL");
    *strategy_out = (ra_strategy)i;
    return RA_OK;
}

static const char *const dilated_heads[] = {"all", "groups", "", ""};
static const char *const dilated_offsets[] = {"head", "block", "group", ""};
static const char *const dilated_combines[] = {"lse", "mean", "", ""};

/* As find, and "" is no name. */
static int find_given(const char *const *names, const char *name) {
    return name && *name ? find(names, name) : -1;
}

ra_status ra_dilated_heads_parse(const char *name, ra_dilated_heads *heads_out) {
    int i = find_given(dilated_heads, name);
    if (i < 0 || !heads_out) RA_REFUSE("'%s' is no way to give branches to heads; there are all and groups", name ? name : "NULL");
    *heads_out = (ra_dilated_heads)i;
    return RA_OK;
}

ra_status ra_dilated_offset_parse(const char *name, ra_dilated_offset *offset_out) {
    int i = find_given(dilated_offsets, name);
    if (i < 0 || !offset_out) RA_REFUSE("'%s' is no offset; there are head, block and group", name ? name : "NULL");
    *offset_out = (ra_dilated_offset)i;
    return RA_OK;
}

ra_status ra_dilated_combine_parse(const char *name, ra_dilated_combine *combine_out) {
    int i = find_given(dilated_combines, name);
    if (i < 0 || !combine_out) RA_REFUSE("'%s' is no way to combine branches; there are lse and mean", name ? name : "NULL");
    *combine_out = (ra_dilated_combine)i;
    return RA_OK;
}
