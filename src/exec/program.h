/* A program: a schedule bound to memory, a kernel and a comm. Binding happens once, at plan time; running it allocates
 * and plans nothing. */
#ifndef RA_EXEC_PROGRAM_H
#define RA_EXEC_PROGRAM_H

#include "exec/sharing.h"

/* The query side of a compute. */
typedef struct ra_queries {
    ra_shape shape;          /* rows_q: of these queries */
    ra_view q, dout;         /* of dtype; dout in the backward pass */
    const void *lse, *delta; /* backward: [states, batch, heads_q, rows_q] */
    ra_state state;          /* forward: accumulated into */
    ra_view dq;              /* backward: added to */
} ra_queries;

/* Keys and values of a part that are read where a caller has them. */
typedef struct ra_lent_part {
    int owner;
    ra_span rows, heads;        /* of the owner's shard */
    ra_view packed_k, packed_v; /* where they are when the owner has packed them; data NULL: it is this rank */
} ra_lent_part;

/* One call of the kernel: a compute of the schedule or, in the forward pass, several that have the rank's own
 * queries. */
typedef struct ra_bound_compute {
    ra_queries *visitors; /* another rank's queries, in their slot; NULL for the rank's own */
    ra_kv_rows *parts;  /* the pieces of its slots, or all ranks' keys, where they stay; NULL for the rank's own rows */
    ra_lent_part *lent; /* [part_count]: where k and v of the parts are in each run; NULL: parts says it, or, where
                         * keys stay, what the ranks lend does */
    int64_t part_count;
    ra_tile_list tiles;
    const ra_compute *compute; /* the first of them */
    ra_prepared *prepared;     /* the kernel's own form of its tiles; NULL on the CPU */
    int overwrite;             /* backward: the kernel overwrites all of dk and dv, which need not be zero before */
    int overwrite_queries;     /* backward: likewise, all of the rank's own dq, or of all ranks', where keys stay */
    unsigned char *zeroed;     /* backward: the gradient slot, where it starts at zero; NULL: nothing does */
} ra_bound_compute;

typedef struct ra_bound_step {
    ra_message *messages;
    int message_count;
    ra_bound_compute *computes;
    int64_t compute_count;
    const unsigned char **reduced; /* [the step's reduces]: what each reads; NULL: a compute has added to it instead */
    int waits_first;               /* its computes use what its messages bring */
    int64_t sent_bytes, sent_messages;
} ra_bound_step;

typedef struct ra_program {
    const ra_schedule *schedule;
    ra_bound_step *steps; /* [schedule->step_count], then [closing_count], then [opening_count] */
    int closing_count;    /* groups without data, after which every rank has done with the others' memory; 0: none is
                           * lent */
    int opening_count;    /* groups without data, behind what the first step packs, after which every rank may use what
                           * others lend; 0: the steps' own messages tell */
    ra_kv_rows own; /* this rank's rows: dk and dv where they are in the workspace; the rest comes with each run */
    const ra_lender *lenders; /* whose rows are used where their callers have them; NULL: nobody's are */
    ra_lent_rows *lent;       /* what this rank lends, written by each run; NULL: nothing */
    ra_kv_rows *call_parts;   /* where a run makes the parts of a call that are lent, for as long as the call takes */
    ra_query_rows *call_queries; /* [ranks]: likewise, the leader's where keys stay; NULL: it is not the leader */
    int stays;                   /* keys do (keys_stay.h) */
    /* Forward: the last compute, where it also writes o and lse. Backward: the one that adds to the rank's own dk and
     * dv, where there is but one and it also writes the outputs. Where keys stay, the leader's. NULL: none does. */
    const ra_bound_compute *finishing;
    int finishing_alone;   /* forward: it is the first compute, too */
    int finishing_queries; /* backward: it also writes dq, or, where keys stay, that of all ranks */
    const ra_setup *setup;
    const ra_workspace *workspace;
    unsigned char *memory; /* the workspace's block */
    ra_comm *comm;
} ra_program;

/* The passes that messages are told apart by. The forward program also runs inside the backward pass, where softmaxes
 * are kept apart; its messages are then others than the forward pass's. */
typedef enum ra_pass_tags { RA_TAGS_FORWARD, RA_TAGS_BACKWARD, RA_TAGS_STATES_AGAIN } ra_pass_tags;

/* *program_out is to be released whether this succeeds or not; zeroed before, it may be released without binding. */
ra_status ra_program_bind(ra_pool *pool, const ra_setup *setup, const ra_workspace *workspace, void *memory,
                          const ra_schedule *schedule, const ra_sharing *sharing, ra_comm *comm,
                          ra_program *program_out);

void ra_program_release(ra_program *program);

/* The same program with the tags of another pass. It shares all but the messages with the first one, which alone is
 * released. */
ra_status ra_program_bind_again(ra_pool *pool, const ra_program *program, ra_pass_tags pass, ra_program *program_out);

/* Raises *most to what the steps' groups have. A program that was not bound has none. */
void ra_program_group_size(const ra_program *program, ra_group_size *most);

/* What the kernel makes of a call's tiles, where it wants to know them before; shape: of its queries. And, of a
 * backward program, whether the call overwrites. */
ra_status ra_program_prepare(const ra_program *program, const ra_shape *shape, ra_bound_compute *bound);
int ra_program_overwrites(const ra_program *program, const ra_bound_compute *bound);

/* Of a backward program whose finishing call is the only one that adds to dq: whether that can write it, too. */
int ra_program_finishes_queries(const ra_program *program);

/* Whether the first compute of a backward program overwrites this rank's own dk and dv, and its dq. */
int ra_program_overwrites_own(const ra_program *program);
int ra_program_overwrites_own_queries(const ra_program *program);

/* The rank's own memory of a slot. */
unsigned char *ra_program_slot(const ra_program *program, ra_cargo cargo, int slot);

/* Where queries of a visit lie in the slots, and what they become: q, dout, lse, delta of slot `from`, state or dq of
 * slot `to`; records: (row, head) records before them. */
ra_queries ra_program_queries(const ra_program *program, int from, int to, int64_t rows, int64_t records);

#endif
