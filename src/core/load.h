/* What one rank computes and what it must be sent, from its own queries alone: other ranks are not looked at, so that
 * all ranks' loads cost as much as the documents and segments they have, and not the square of the ranks. */
#ifndef RA_CORE_LOAD_H
#define RA_CORE_LOAD_H

#include "core/pattern.h"

typedef struct ra_load {
    int64_t pairs;     /* over batch and heads */
    int64_t records;   /* other ranks' rows that it sees, each once for every key/value head that needs it */
    size_t sets_bytes; /* of the sets that were made to find it: what it costs where rows are strewn */
} ra_load;

/* Fails only for want of memory. */
ra_status ra_load_of(const ra_cut_problem *cut, int rank, ra_load *load_out);

#endif
