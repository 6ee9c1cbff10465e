#include "core/selection.h"

/* The heads [*from_out, *to_out) that have branch b. */
static void branch_heads(const ra_problem *p, int64_t b, int64_t *from_out, int64_t *to_out) {
    int64_t base = p->heads_q / p->branches, extra = p->heads_q % p->branches;
    *from_out = 0;
    *to_out = p->heads_q;
    if (p->dilated_heads == RA_DILATED_ALL) return;
    *from_out = b * base + (b < extra ? b : extra);
    *to_out = *from_out + base + (b < extra);
}

/* The heads of all, before groups are taken into account, whose offset in a branch of that rate is `offset`. */
static ra_span heads_at(const ra_problem *p, int64_t rate, int64_t offset) {
    int64_t heads = p->heads_q;
    if (p->dilated_offset == RA_DILATED_HEAD)
        return (ra_span){offset, rate, offset < heads ? (heads - 1 - offset) / rate + 1 : 0};
    int64_t block = ra_ceil_div(heads, rate);
    return ra_span_clip((ra_span){0, 1, heads}, offset * block, (offset + 1) * block);
}

/* How many offsets can have a head at all. */
static int64_t offsets_of(const ra_problem *p, int64_t rate) {
    return rate < p->heads_q ? rate : p->heads_q;
}

static int dense(const ra_problem *p, ra_selection_cursor *cursor, ra_selection *selection_out) {
    if (cursor->branch++ > 0) return 0;
    *selection_out = (ra_selection){.heads = {0, 1, p->heads_q}};
    return 1;
}

int ra_selection_next(const ra_problem *p, ra_selection_cursor *cursor, ra_selection *selection_out) {
    if (p->branches == 0) return dense(p, cursor, selection_out);
    for (; cursor->branch < p->branches; cursor->branch++, cursor->offset = 0) {
        int b = cursor->branch;
        int64_t rate = p->dilated[b].rate, from, to;
        int one = p->dilated_offset == RA_DILATED_GROUP;
        int64_t count = one ? 1 : offsets_of(p, rate);
        branch_heads(p, b, &from, &to);
        while (cursor->offset < count) {
            int64_t i = cursor->offset++;
            ra_selection s = {b, p->dilated[b].segment, rate, one ? b % rate : i, {0, 1, p->heads_q}};
            if (!one) s.heads = heads_at(p, rate, i);
            s.heads = ra_span_clip(s.heads, from, to);
            if (s.heads.count == 0) continue;
            *selection_out = s;
            return 1;
        }
    }
    return 0;
}
