/* A schedule: everything one rank does in one pass, as data. Made by pure functions, so that any rank can work out what
 * every rank will do, and it can be printed and checked without running anything.
 *
 * A step is, in this order:
 *
 *     packs      own rows into a slot, so that they can be sent
 *     transfers  all posted at once ...
 *     computes   ... while the tiles are computed; then the step waits for its transfers
 *     reduces    gradients that have arrived are added up, states are merged, in this order
 *
 * All ranks have the same number of steps, and a message is sent and received in the same step at both ends: hence no
 * schedule can deadlock, and a transport may start a step's messages as one group.
 */
#ifndef RA_SCHEDULE_SCHEDULE_H
#define RA_SCHEDULE_SCHEDULE_H

#include "base/pool.h"
#include "core/pattern.h"
#include "core/tile.h"

/* A slot is an array of records, one for each (row, head) in it: for every batch the key, then the value (in a gradient
 * slot dK, then dV), [batch, dim + dim_v]. A piece is a run of records: some rows of one owner for some heads, [heads,
 * rows]. Pieces of queries have all query heads and rows without gaps. */
typedef struct ra_piece {
    ra_span rows;  /* of the owner's shard */
    ra_span heads; /* key/value heads, or query heads */
} ra_piece;

/* Pieces one after another from the start of a slot. */
typedef struct ra_parcel {
    int owner;
    const ra_piece *pieces;
    int64_t piece_count;
    int64_t elements; /* of all pieces: the records times a record's elements */
} ra_parcel;

/* What travels. Each kind has slots of its own. Keys and values visit the ranks whose queries see them and their
 * gradients come home; or queries visit the ranks whose keys they see and what they become comes home.
 *
 *   KV      dtype          per (row, key/value head): k, v                          a record
 *   GRAD    accumulation   per (row, key/value head): dk, dv                        a record
 *   QUERY   dtype          per (row, query head): q; in the backward pass q, dout   a record
 *   STATS   accumulation   per run of rows: lse, then delta, each [states, batch, heads_q, rows]; backward only
 *   STATE   accumulation   per run of rows: O [states, batch, heads_q, rows, dim_v],
 *                          then m and l, each [states, batch, heads_q, rows]; forward only
 *   DQ      accumulation   per (row, query head): dq; backward only                 a record
 */
typedef enum ra_cargo {
    RA_CARGO_KV,
    RA_CARGO_GRAD,
    RA_CARGO_QUERY,
    RA_CARGO_STATS,
    RA_CARGO_STATE,
    RA_CARGO_DQ,
    RA_CARGO_COUNT
} ra_cargo;

/* A transfer's tag is this times the step, plus the cargo. */
#define RA_CARGO_TAGS 8

/* In place of a slot: what the rank itself has, all rows of its shard. */
#define RA_OWN (-1)

/* In place of a piece: the slot as one array of records, for tiles whose keys are given by an index. */
#define RA_ALL_RECORDS (-1)

typedef struct ra_pack {
    ra_cargo cargo; /* KV, QUERY or STATS */
    int slot;
    ra_parcel parcel; /* of own rows */
} ra_pack;

/* Where elements were written, by a pack or a compute, and stay until the pass ends: so many elements into a slot of
 * that rank's. */
typedef struct ra_source {
    int rank, slot; /* rank -1: nowhere; they have to be copied */
    int64_t offset;
} ra_source;

/* Ranks that see each other's memory need not copy what has a source. They use it there:
 *
 *     sent, received     only an order: what the receiver does next comes after what the sender did before
 *     computed with      where the owner has packed it
 *     GRAD               a compute whose step also receives a sum, and would reduce it into its own, adds to that sum
 *                        where it is, which is then its own; the step's messages are waited for before
 *
 *     owner's K, V   pack ──► read by the next rank ──► and the next ...
 *     their dK, dV            written by the next rank ──► added to by the next ... ──► added by the owner to its own
 *
 * A strategy gives the receives of a cargo sources only where that works: all of them in the pass have one, and no slot
 * that is a source is packed or computed into twice. */
typedef struct ra_transfer {
    int peer, is_send, tag;
    ra_cargo cargo;
    int slot;
    int64_t offset, elements; /* the run of the slot that travels */
    ra_source source;         /* of a receive */
} ra_transfer;

/* The slots of a rank that can be sources are the first of a cargo. */
enum { RA_SOURCE_SLOTS = 2 };

/* Queries of another rank, one piece of what slot `slot` of QUERY (and STATS) holds. Their states or dq go to slot
 * `result` of STATE or DQ, to the place where they are in the parcel. */
typedef struct ra_visit {
    int slot, result; /* RA_OWN: no visit, the rank's own queries */
    int owner;        /* of the queries */
    ra_span rows;     /* of the owner's shard, stride 1; the tiles' query rows count from rows.first */
    int64_t records;  /* (row, head) records of the pieces before it */
} ra_visit;

typedef struct ra_compute {
    ra_visit visit;   /* whose queries */
    int kv_slot;      /* or RA_OWN */
    int grad_slot;    /* where dK and dV go, with nothing in it; or RA_OWN; backward only */
    ra_parcel parcel; /* what the KV slot holds */
    ra_tile_list tiles;
    int64_t *parts; /* [part_count]: what tile.part stands for: a piece of the parcel, or RA_ALL_RECORDS of the slot.
                     * For kv_slot RA_OWN there is one part, all own rows */
    int64_t part_count;
    int64_t pairs; /* over batch and heads */
} ra_compute;

typedef struct ra_reduce {
    ra_cargo cargo;   /* GRAD and DQ are added, STATE is merged */
    int to, from;     /* slots of it. to may be RA_OWN, and is for all but GRAD */
    ra_parcel parcel; /* what `from` holds; `to`, unless RA_OWN, holds the same from its start */
} ra_reduce;

typedef struct ra_step {
    ra_pack *packs;
    ra_transfer *transfers;
    ra_compute *computes;
    ra_reduce *reduces;
    int64_t pack_count, pack_capacity;
    int64_t transfer_count, transfer_capacity;
    int64_t compute_count, compute_capacity;
    int64_t reduce_count, reduce_capacity;
} ra_step;

typedef struct ra_slots {
    int64_t *elements; /* [count]: the largest parcel each ever holds */
    int64_t count, capacity;
} ra_slots;

typedef struct ra_schedule {
    ra_pass pass;
    int rank, ranks;
    ra_strategy strategy;
    int step_count;
    ra_step *steps;
    ra_slots slots[RA_CARGO_COUNT];
    int64_t pairs;
} ra_schedule;

/* The schedule of one rank, in memory from pool. strategy is not AUTO. */
ra_status ra_schedule_make(ra_pool *pool, const ra_cut_problem *cut, ra_strategy strategy, ra_pass pass, int rank,
                           ra_schedule *schedule_out);

/* Both passes of one rank, which share what they find out: half the time and memory of two schedules made apart. */
ra_status ra_schedule_make_both(ra_pool *pool, const ra_cut_problem *cut, ra_strategy strategy, int rank,
                                ra_schedule *forward_out, ra_schedule *backward_out);

/* The computes of a pass in which all queries of all ranks are there and keys stay: step s has those of the
 * rank s back. Nothing is sent. */
ra_status ra_schedule_visits(ra_pool *pool, const ra_cut_problem *cut, int rank, ra_schedule *schedule_out);

/* Whether all that is received of a cargo has a source: the same on every rank, also on one that receives none. */
int ra_schedule_has_sources(const ra_schedule *schedule, ra_cargo cargo);

/* The receive of this step whose sum a compute adds to where it is, when GRAD is not copied; NULL: it has none. */
const ra_transfer *ra_step_sum_of(const ra_step *step, const ra_compute *compute);

/* The tiles of `count` computes with the same queries as one list, those with the same rows in one group; the parts of
 * compute i are those from first_parts[i] on. Empty where that cannot be: they have several rounds, or rows that are
 * the same in part. */
ra_status ra_tiles_merge(ra_pool *pool, const ra_tile_list *lists, const int64_t *first_parts, int64_t count,
                         ra_tile_list *merged_out);

/* Elements that a cargo has for one (row, head), over the batch: of a record where it has records. */
int64_t ra_cargo_record(const ra_problem *problem, ra_cargo cargo, ra_pass pass);

/* Bytes of one element of a cargo. */
size_t ra_cargo_bytes(const ra_problem *problem, ra_cargo cargo);

/* (row, head) records of a piece, and of a parcel's first `pieces` pieces. */
int64_t ra_piece_records(const ra_piece *piece);
int64_t ra_parcel_records(const ra_parcel *parcel, int64_t pieces);

/* Elements of a record of keys and values, and of such a piece. */
int64_t ra_record_elements(const ra_problem *problem);
int64_t ra_piece_elements(const ra_problem *problem, const ra_piece *piece);

/* Elements of such a parcel's first `pieces` pieces. */
int64_t ra_parcel_offset(const ra_problem *problem, const ra_parcel *parcel, int64_t pieces);

/* What a schedule sends. */
void ra_schedule_traffic(const ra_problem *problem, const ra_schedule *schedule, int64_t *bytes_out,
                         int64_t *messages_out);

/* Bytes that are sent in a forward pass, by all ranks together, without making any schedule. _of: those that an owner's
 * rows make up, on every hop, and what is made of them. Unless many documents lie on stripes, the whole costs little
 * more than one rank's schedule, but for passq, where it grows with the square of the ranks. They fail only for want of
 * memory. */
ra_status ra_schedule_volume(const ra_cut_problem *cut, ra_strategy strategy, int64_t *bytes_out);
ra_status ra_schedule_volume_of(const ra_cut_problem *cut, ra_strategy strategy, int owner, int64_t *bytes_out);

/* What passq sends in a forward pass at the most: every query to every other rank, and its state back. */
double ra_passq_most_bytes(const ra_problem *normal, int ranks);

/* Whether the schedules of all ranks fit together: every message is posted at both ends in the same step, with the same
 * size and in the same order; no slot is written while it is read or beyond its size; what is computed with, sent and
 * added is what the slot holds; and sources are where the elements are when nothing is copied. Describes the first
 * fault. */
ra_status ra_schedule_check(const ra_problem *problem, const ra_schedule *schedules, int ranks);

#endif
