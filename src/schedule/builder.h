/* What the strategies build schedules with. Each strategy file has one function that fills a builder's steps. */
#ifndef RA_SCHEDULE_BUILDER_H
#define RA_SCHEDULE_BUILDER_H

#include "base/status.h"
#include "core/interleave.h"
#include "core/rowset.h"
#include "schedule/schedule.h"

struct ra_route;

/* What both passes of a plan find out alike: made by the first, taken over by the second. Lives in scratch. */
typedef struct ra_findings {
    ra_parcel *in, *out;     /* pairwise, [ranks] by distance t: what this rank needs of the rank t back, and what the
                              * rank t further along needs of it; NULL: not yet known */
    struct ra_route *routes; /* ring, [ranks] by owner; NULL: not yet known */
    ra_compute *computes;    /* with their tiles, in the order in which they were made */
    int64_t compute_count, compute_capacity;
    int64_t next; /* the one that the second pass, which computes in the same order, comes to */
} ra_findings;

typedef struct ra_builder {
    const ra_cut_problem *cut;
    ra_pass pass;
    int rank, ranks;
    ra_pool *pool;    /* what the schedule keeps */
    ra_pool *scratch; /* what only its making needs */
    ra_schedule *schedule;
    ra_findings *findings;
} ra_builder;

/* The rank `steps` further along the ring, or back for negative ones. */
int ra_rank_along(const ra_builder *b, int rank, int steps);

/* Fragments of a contact's keys that are shorter on average are not worth a tile each. */
enum { RA_SHORT_FRAGMENT = 32 };

/* A set of rows as the spans that pieces have, in memory from pool. In dilated problems of one document they may lie
 * between each other, where that makes fewer of them, and a segment's keys are still found in fragments that are worth
 * a tile. */
ra_status ra_rows_in_pieces(const ra_builder *b, ra_pool *pool, const ra_rowset *set, ra_span_list *list_out);

/* Parcels, in scratch; a step keeps a copy of its own. needed: the rows of owner that q_rank sees; whole: all its rows.
 */
ra_status ra_parcel_needed(ra_builder *b, int q_rank, int owner, ra_parcel *parcel_out);
ra_status ra_parcel_whole(ra_builder *b, int owner, ra_parcel *parcel_out);

/* Whether both are the same pieces, in the same order. */
int ra_parcel_is(const ra_parcel *parcel, const ra_parcel *other);

/* The runs of q_rank's rows whose queries see keys of k_rank, all query heads, elements counted as QUERY. A run reaches
 * from a contact's first to its last row: in a dilated problem rows between those that are kept travel too, and so do
 * those between a great many runs. */
ra_status ra_parcel_queries(ra_builder *b, int q_rank, int k_rank, ra_parcel *parcel_out);

/* Steps. All but add_compute do nothing for an empty parcel or run, so that hops that would carry nothing vanish. */
ra_status ra_add_pack(ra_builder *b, int step, ra_cargo cargo, int slot, const ra_parcel *parcel);
ra_status ra_add_send(ra_builder *b, int step, int peer, ra_cargo cargo, int slot, int64_t offset, int64_t elements);
ra_status ra_add_recv(ra_builder *b, int step, int peer, ra_cargo cargo, int slot, int64_t elements, ra_source source);
ra_status ra_add_reduce(ra_builder *b, int step, ra_cargo cargo, int to, int from, const ra_parcel *parcel);

/* For what does not stay where it was written. */
static const ra_source RA_COPIED = {.rank = -1};

/* Where the gradients of an owner's rows are summed when they go around as on the ring and are not copied: in slot 1 of
 * the next rank, which computes the first of them, in step 1. */
ra_source ra_sums_of(const ra_builder *b, int owner, int64_t offset);

/* Computes this rank's queries with the parcel in kv_slot. In a forward pass nothing is added when there are no tiles;
 * in a backward pass an empty contribution still zeroes its slot. */
ra_status ra_add_compute(ra_builder *b, int step, int kv_slot, int grad_slot, const ra_parcel *parcel);
ra_status ra_add_compute_own(ra_builder *b, int step);

/* Computes the queries in query_slot, of parcel->owner, with this rank's own keys, into result_slot of STATE or DQ. */
ra_status ra_add_visits(ra_builder *b, int step, int query_slot, int result_slot, const ra_parcel *parcel);

/* Fills in the tiles of the compute's queries with compute->parcel, the parts they refer to, and the pairs. */
ra_status ra_tiles_make(ra_builder *b, ra_compute *compute);

/* A strategy: its name, how many steps it takes, who fills them, and what it sends. All ranks take as many steps. */
typedef struct ra_strategy_entry {
    ra_strategy strategy;
    const char *name;
    int (*steps)(int ranks, ra_pass pass); /* NULL for auto, which is no strategy itself */
    ra_status (*make)(ra_builder *b);
    int sources; /* the cargos whose receives have sources: 1 << cargo of each */
    /* Bytes of the forward pass that the owner's rows make up, and what is made of them; for a builder without a
     * schedule. */
    ra_status (*volume)(ra_builder *b, int owner, int64_t *bytes_out);
} ra_strategy_entry;

ra_status ra_ring_volume(ra_builder *b, int owner, int64_t *bytes_out);
ra_status ra_pairwise_volume(ra_builder *b, int owner, int64_t *bytes_out);
ra_status ra_allgather_volume(ra_builder *b, int owner, int64_t *bytes_out);
ra_status ra_passq_volume(ra_builder *b, int owner, int64_t *bytes_out);

/* NULL when there is none. */
const ra_strategy_entry *ra_strategy_find(ra_strategy strategy);

ra_status ra_make_ring(ra_builder *b);
ra_status ra_make_pairwise(ra_builder *b);
ra_status ra_make_allgather(ra_builder *b);
ra_status ra_make_passq(ra_builder *b);

/* passq's computes alone, with all queries of each rank (ra_schedule_visits). */
ra_status ra_make_visits(ra_builder *b);

/* A ring route: an owner's rows in the order in which they stop travelling, the longest travelling first. What is sent
 * to hop t is then the first so many pieces, and no rank ever repacks. */
typedef struct ra_route {
    ra_parcel parcel;
    int *last; /* [piece_count]: the last hop that needs the piece, not increasing */
} ra_route;

/* The pieces of the route that go at least to `hop`, from 1 on: those that come to a rank that far from the owner. */
ra_status ra_route_make(ra_builder *b, int owner, int hop, ra_route *route_out);

/* The pieces that some hop from t on needs: a prefix of the route. t is at least the hop that the route was made for.
 */
ra_parcel ra_route_from(const ra_builder *b, const ra_route *route, int t);

#endif
