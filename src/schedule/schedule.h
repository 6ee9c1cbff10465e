/* A schedule: everything one rank does in one pass, as data. Made by pure functions, so that any rank can work out what
 * every rank will do, and it can be printed and checked without running anything.
 *
 * A step is, in this order:
 *
 *     packs      own rows into a slot, so that they can be sent
 *     transfers  all posted at once ...
 *     computes   ... while the tiles are computed; then the step waits for its transfers
 *     folds      gradients that have arrived are added up, in this order
 *
 * All ranks have the same number of steps, and a message is sent and received in the same step at both ends: hence no
 * schedule can deadlock, and a transport may start a step's messages as one group.
 */
#ifndef RA_SCHEDULE_SCHEDULE_H
#define RA_SCHEDULE_SCHEDULE_H

#include "base/pool.h"
#include "core/pattern.h"
#include "core/tile.h"

/* A slot is an array of records, one for each (row, key/value head) in it: for every batch the key, then the value
 * (in a gradient slot dK, then dV), [batch, dim + dim_v]. A piece is a run of records: some rows of one owner for some
 * heads, [heads, rows]. */
typedef struct ra_piece {
    ra_span rows;  /* of the owner's shard */
    ra_span heads; /* key/value heads */
} ra_piece;

/* Pieces one after another from the start of a slot. */
typedef struct ra_parcel {
    int owner;
    const ra_piece *pieces;
    int64_t piece_count;
    int64_t elements; /* of all pieces, keys and values together */
} ra_parcel;

/* K and V travel in the problem's type, dK and dV in the accumulation type. Each has slots of its own. */
typedef enum ra_cargo { RA_CARGO_KV, RA_CARGO_GRAD } ra_cargo;

/* In place of a slot: the rank's own K and V, or its own dK and dV, all rows of its shard. */
#define RA_OWN (-1)

/* In place of a piece: the slot as one array of records, for tiles whose keys are given by an index. */
#define RA_ALL_RECORDS (-1)

typedef struct ra_pack {
    int slot;
    ra_parcel parcel; /* of own rows */
} ra_pack;

typedef struct ra_transfer {
    int peer, is_send, tag;
    ra_cargo cargo;
    int slot;
    int64_t offset, elements; /* the run of the slot that travels */
} ra_transfer;

typedef struct ra_compute {
    int kv_slot;      /* or RA_OWN */
    int grad_slot;    /* where dK and dV go, with nothing in it; or RA_OWN; backward only */
    ra_parcel parcel; /* what the slot holds */
    ra_tile_list tiles;
    int64_t *parts; /* [part_count]: what tile.part stands for: a piece of the parcel, or RA_ALL_RECORDS of the slot.
                     * For kv_slot RA_OWN there is one part, all own rows */
    int64_t part_count;
    int64_t pairs; /* over batch and heads */
} ra_compute;

typedef struct ra_fold {
    int to, from;     /* gradient slots: to += from. to may be RA_OWN */
    ra_parcel parcel; /* what `from` holds; `to`, unless RA_OWN, holds the same from its start */
} ra_fold;

typedef struct ra_step {
    ra_pack *packs;
    ra_transfer *transfers;
    ra_compute *computes;
    ra_fold *folds;
    int64_t pack_count, pack_capacity;
    int64_t transfer_count, transfer_capacity;
    int64_t compute_count, compute_capacity;
    int64_t fold_count, fold_capacity;
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
    ra_slots kv, grad;
    int64_t pairs;
} ra_schedule;

/* The schedule of one rank, in memory from pool. strategy is not AUTO. */
ra_status ra_schedule_make(ra_pool *pool, const ra_cut_problem *cut, ra_strategy strategy, ra_pass pass, int rank,
                           ra_schedule *schedule_out);

/* Elements of a record, and of a piece. */
int64_t ra_record_elements(const ra_problem *problem);
int64_t ra_piece_elements(const ra_problem *problem, const ra_piece *piece);

/* Elements of a parcel's first `pieces` pieces. */
int64_t ra_parcel_offset(const ra_problem *problem, const ra_parcel *parcel, int64_t pieces);

/* Bytes of one element of a cargo. */
size_t ra_cargo_bytes(const ra_problem *problem, ra_cargo cargo);

/* What a schedule sends. */
void ra_schedule_traffic(const ra_problem *problem, const ra_schedule *schedule, int64_t *bytes_out,
                         int64_t *messages_out);

/* Elements of keys and values that are sent in a forward pass, by all ranks together, without making any schedule. _of:
 * those that an owner's rows make up, on every hop. Unless many documents lie on stripes, the whole costs little
 * more than one rank's schedule. They fail only for want of memory. */
ra_status ra_schedule_volume(const ra_cut_problem *cut, ra_strategy strategy, int64_t *elements_out);
ra_status ra_schedule_volume_of(const ra_cut_problem *cut, ra_strategy strategy, int owner, int64_t *elements_out);

/* Whether the schedules of all ranks fit together: every message is posted at both ends in the same step, with the same
 * size and in the same order; no slot is written while it is read or beyond its size; what is computed with, sent and
 * added is what the slot holds. Describes the first fault. */
ra_status ra_schedule_check(const ra_schedule *schedules, int ranks);

#endif
