/* ringattn: exact attention over sequences too long for one device.
 *
 * The sequence is cut across ranks. Every rank keeps its own rows of Q, K, V and O; keys and values travel and queries
 * stay, or the other way round where that sends less. Reading order: the problem, the ranks, a plan, running it; then
 * where rows live, and the smaller helpers.
 *
 *     ra_comm  *comm;   the ranks, and how bytes move between them
 *     ra_plan  *plan;   one problem on one comm: schedule, kernel, buffers
 *
 *     ra_plan_create(comm, &problem, &options, &plan);     once
 *     ra_plan_forward(plan, &tensors, NULL);               many times
 *
 * Every call that can fail returns a ra_status; ra_last_error() then says what was wrong and what to do. The library
 * never exits, aborts or prints.
 *
 * Structures that start with struct_size may grow: fields are only ever appended, and a program compiled against an
 * older header goes on working. Initialise them with their RA_..._INIT, or, where that cannot be compiled (C++ before
 * 20, other languages), with their ra_..._init function; what is then left alone has its default. ra_branch, ra_tensor,
 * ra_input, ra_traffic and ra_step_info stay as they are.
 *
 * Threads. Functions without a comm, plan or backend as argument may be called from any thread at any time, and so may
 * ra_backend_...; ra_last_error() is per thread. A comm and its plans are used by one thread at a time, which need not
 * always be the same one, and run one plan at a time; the only other thing that may be done meanwhile is to ask for
 * what never changes (ra_comm_rank, ra_comm_ranks, ra_comm_transport). Different comms are independent of each other.
 */
#ifndef RINGATTN_H
#define RINGATTN_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define RA_VERSION_MAJOR 0
#define RA_VERSION_MINOR 2
#define RA_VERSION_PATCH 0

#if defined(__GNUC__) || defined(__clang__)
#define RA_API __attribute__((visibility("default")))
#define RA_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define RA_API
#define RA_PRINTF(text, first)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status -------------------------------------------------------------------------------------------------- */

/* Grouped by what is lost: nothing, the call, the communicator. One list gives the enum, the names and the texts. */
#define RA_STATUS_LIST(X)                                                                                              \
    X(RA_OK, 0, "success")                                                                                             \
    X(RA_ERR_ARGUMENT, 1, "an argument is wrong")                                                                      \
    X(RA_ERR_UNSUPPORTED, 2, "this combination is not supported")                                                      \
    X(RA_ERR_MEMORY, 3, "out of memory")                                                                               \
    X(RA_ERR_MISMATCH, 4, "the ranks disagree about the problem")                                                      \
    X(RA_ERR_TIMEOUT, 5, "a peer did not answer before the deadline; the communicator is lost")                        \
    X(RA_ERR_PEER, 6, "a peer failed; the communicator is lost")                                                       \
    X(RA_ERR_TRANSPORT, 7, "the transport failed; the communicator is lost")                                           \
    X(RA_ERR_BROKEN, 8, "the communicator was lost earlier and refuses further use")                                   \
    X(RA_ERR_INTERNAL, 9, "a fault inside ringattn")                                                                   \
    X(RA_ERR_DEVICE, 10, "the device refused or failed; the communicator is lost where peers were waiting")

typedef enum ra_status {
#define RA_STATUS_ENUM(name, value, text) name = value,
    RA_STATUS_LIST(RA_STATUS_ENUM)
#undef RA_STATUS_ENUM
} ra_status;

/* For functions that return a ra_status themselves: forwards the error of a call, and goes on after a success. */
#define RA_TRY(call)                                                                                                   \
    do {                                                                                                               \
        ra_status ra_try_status = (call);                                                                              \
        if (ra_try_status != RA_OK) return ra_try_status;                                                              \
    } while (0)

/* The status as a short text, never NULL. */
RA_API const char *ra_status_text(ra_status status);

/* What went wrong in the last failing call on this thread: what, where and what to do. Empty when nothing has failed; a
 * call that succeeds leaves it as it was. Valid until the next ringattn call on this thread. */
RA_API const char *ra_last_error(void);

/* For functions that the library calls (a transport, an ra_allgather): sets this thread's error text and returns
 * status.
 */
RA_API ra_status ra_fail(ra_status status, const char *format, ...) RA_PRINTF(2, 3);

/* "0.2.0" */
RA_API const char *ra_version(void);

/* ---- the problem --------------------------------------------------------------------------------------------- */

typedef enum ra_dtype { RA_F32 = 1, RA_F64 = 2, RA_BF16 = 3, RA_F16 = 4 } ra_dtype;
#define RA_DTYPE_DEFAULT ((ra_dtype)0) /* no type: stands for the default that the field's comment names */

/* A branch of a dilated (LongNet) pattern: the keys of a document are split into segments of `segment`, of each of
 * which every `rate`-th is kept, from an offset on that depends on the head; a query that is kept (by its aligned
 * position) sees the kept keys of its segment. No number need divide another; a rate larger than the segment keeps at
 * most one key of it. */
typedef struct ra_branch {
    int64_t segment; /* at least 1 */
    int64_t rate;    /* at least 1 */
} ra_branch;

typedef enum ra_dilated_heads {
    RA_DILATED_ALL = 0, /* every head has every branch */
    RA_DILATED_GROUPS   /* heads are dealt to the branches in order; the first heads % branches groups take one more */
} ra_dilated_heads;

typedef enum ra_dilated_offset {
    RA_DILATED_HEAD = 0, /* the head's index modulo the rate: LongNet, the paper */
    RA_DILATED_BLOCK,    /* blocks of ceil(heads / rate) heads share an offset: torchscale */
    RA_DILATED_GROUP     /* the branch's index modulo the rate: dilated-attention-pytorch */
} ra_dilated_offset;

typedef enum ra_dilated_combine {
    RA_DILATED_LSE = 0, /* one softmax over all branches' keys; a key in two branches counts twice */
    RA_DILATED_MEAN     /* each branch its own softmax, then the mean over all branches; lse is that of the union */
} ra_dilated_combine;

#define RA_MAX_DIM 256 /* elements of a head's row */

/* What is computed, over the whole sequence and not per rank; every rank gives the same values.
 *
 *   q [batch, seq_q, heads_q, dim]   k [batch, seq_k, heads_kv, dim]   v [batch, seq_k, heads_kv, dim_v]
 *   o [batch, seq_q, heads_q, dim_v]   lse [batch, heads_q, seq_q]
 *
 *   s_ij = scale * q_i . k_j,   o_i = sum_j e^{s_ij} v_j / sum_j e^{s_ij},   lse_i = log sum_j e^{s_ij}
 *
 * over the keys j that query i sees. Query head h reads key/value head h / (heads_q / heads_kv). A query that sees
 * nothing has o = 0, lse = -inf and adds to no gradient.
 *
 * NaN and the infinities reach the outputs of what sees them, and no others. On every device and by every kernel:
 *
 *   a score s_ij that is NaN or +inf     o_i, lse_i and dq_i are NaN; so are dk_j and dv_j of every key j that i sees
 *   a score of -inf                      key j has weight 0 for query i, as if it were not seen; a query all of whose
 *                                        scores are -inf sees nothing
 *   an element d of v_j                  element d of o_i is not finite; nor are dq_i and every dk_j that i sees
 *   an element d of dout_i               element d of dv_j is not finite, for every key j that i sees; nor are dq_i and
 *                                        these dk_j
 *
 * (for the last two: NaN where the element is NaN, else NaN or an infinity). Scores are not finite where q or k are
 * not, or where their product is too large for the arithmetic: f32, f64 for RA_F64. In the backward pass an lse of NaN
 * or +inf is a row of NaN scores, and an element of o that is not finite makes dq_i and these dk_j so. Not specified:
 * whether what is not finite shows where its weight is 0 (a score of -inf, or e^{s - lse} below what the type holds),
 * and what a row of NaN does to a key whose score for it is -inf. */
typedef struct ra_problem {
    size_t struct_size;
    int initialised;    /* by RA_PROBLEM_INIT or ra_problem_init; else refused, since a window of zeros is a window */
    ra_dtype dtype;     /* of q, k, v and dout; default f32 */
    ra_dtype out_dtype; /* of o, dq, dk, dv; default dtype. f32 is allowed beside bf16 and f16 */
    int64_t batch;      /* default 1 */
    int64_t seq_q;      /* at least 1 */
    int64_t seq_k;      /* default seq_q */
    int64_t heads_q;    /* at least 1 */
    int64_t heads_kv;   /* default heads_q; divides heads_q */
    int64_t dim;        /* of q and k, 1 to RA_MAX_DIM */
    int64_t dim_v;      /* of v and o, 1 to RA_MAX_DIM; default dim */
    double scale; /* initially RA_SCALE_DEFAULT: 1/sqrt(dim). Else finite and, but for RA_F64, 0 or normal in f32 */
    int causal;   /* nonzero: aligned bottom right, the last query sees the last key */
    int64_t window_left;  /* keys before the query's aligned position that it sees; -1, the initial value: no limit */
    int64_t window_right; /* likewise after it */
    /* Packed documents: document d holds queries [cu_seqlens_q[d], cu_seqlens_q[d+1]) and keys likewise, and sees
     * nothing else. batch must be 1. NULL: one document. cu_seqlens_k NULL: cu_seqlens_q, or all keys for one document.
     * Read during the call only. */
    int64_t documents;
    const int64_t *cu_seqlens_q; /* [documents + 1], from 0 to seq_q, never decreasing */
    const int64_t *cu_seqlens_k; /* [documents + 1], from 0 to seq_k, never decreasing */
    /* Dilation. Causal, window and documents apply as well. */
    int64_t branches;         /* 0: none, every key is there */
    const ra_branch *dilated; /* [branches]; read during the call only */
    ra_dilated_heads dilated_heads;
    ra_dilated_offset dilated_offset;
    ra_dilated_combine dilated_combine;
} ra_problem;
#define RA_SCALE_DEFAULT (-(double)INFINITY)
#define RA_PROBLEM_INIT                                                                                                \
    {                                                                                                                  \
        .struct_size = sizeof(ra_problem), .initialised = 1, .scale = RA_SCALE_DEFAULT, .window_left = -1,             \
        .window_right = -1                                                                                             \
    }
RA_API void ra_problem_init(ra_problem *problem_out);

/* Who owns which positions. Queries and keys are laid out alike, each over its own length. Any length, any number of
 * ranks: shards differ by a row or two, and may be empty. */
typedef enum ra_layout {
    RA_LAYOUT_AUTO = 0,   /* the one whose slowest rank has least to compute and to be sent: docs/design.md */
    RA_LAYOUT_CONTIGUOUS, /* rank r has the r-th of p runs */
    RA_LAYOUT_ZIGZAG,     /* rank r has the r-th and the r-th last of 2p runs */
    RA_LAYOUT_STRIPED,    /* rank r has positions r, r + p, r + 2p, ... */
    RA_LAYOUT_DOCUMENTS /* of every document rank r has the r-th and the r-th last of 2p runs; runs of a document differ
                         * by at most a row, and which ones are longer goes round from document to document */
} ra_layout;

typedef enum ra_strategy {
    RA_STRATEGY_AUTO = 0,  /* the ring, pairwise or passq, whichever sends least */
    RA_STRATEGY_RING,      /* rows go on from neighbour to neighbour, as long as somebody further along needs them */
    RA_STRATEGY_PAIRWISE,  /* the owner sends each rank exactly the rows it needs */
    RA_STRATEGY_ALLGATHER, /* everything to everyone, then compute: memory grows with the whole sequence */
    RA_STRATEGY_PASSQ /* queries visit the keys, their partial states or dq come home: for few queries, many keys */
} ra_strategy;

typedef enum ra_pass { RA_FORWARD = 0, RA_BACKWARD = 1 } ra_pass;

/* A device and the kernels for it, from a library that has one: ra_cuda_backend in ringattn/cuda.h. NULL everywhere
 * stands for the CPU. */
typedef struct ra_backend ra_backend;

/* Seconds: what a timeout of 0 stands for, wherever one is given. */
#define RA_TIMEOUT_DEFAULT 60.0

/* How it is computed. May differ between ranks only in threads, workspace, kernel and which of several like devices. */
typedef struct ra_options {
    size_t struct_size;
    ra_layout layout;
    ra_strategy strategy;
    int backward;           /* nonzero: the plan can run the backward pass too */
    const char *kernel;     /* a name from ra_backend_kernel; NULL or "auto": the best that the device runs */
    int threads;            /* that this rank computes with; default: the cores, shared by the ranks of this process.
                             * A child of fork() may go on with plans of a comm that is alone and on the CPU, or make
                             * comms and plans of its own; comms of several ranks, and devices, do not survive a fork */
    double timeout_seconds; /* a peer that is silent for so long is given up. A rank that computes a pass,
                             * or waits for others in one, is not silent, one that plans or is outside of ringattn is:
                             * see ra_comm_progress. Also how long a message may take between two ranks that both wait
                             * for it, and a step's wait for the device, where messages go through host memory */
    void *workspace; /* at least ra_plan_info.workspace_bytes, 64-byte aligned; NULL: the plan allocates it. Plans of
                      * one comm may share one, as large as the largest needs, as long as their passes follow one
                      * another, on a device on one stream: no pass leaves anything in it that a later one reads. When
                      * a comm over MPI or UCX is lost, messages may still arrive in it until the process ends */
    size_t workspace_bytes;
    const ra_backend *backend; /* outlives the plan; all tensors and the workspace are memory of its device */
} ra_options;
#define RA_OPTIONS_INIT                                                                                                \
    { .struct_size = sizeof(ra_options) }
RA_API void ra_options_init(ra_options *options_out);

/* ---- the ranks ------------------------------------------------------------------------------------------------ */

typedef struct ra_comm ra_comm;

/* One rank, alone. */
RA_API ra_status ra_comm_create_self(ra_comm **comm_out);

/* `ranks` ranks of this process: comms_out[r] is rank r's, to be used by one thread at a time. The ranks must run at
 * the same time, each on a thread of its own. Each comm is destroyed by itself. */
RA_API ra_status ra_comm_create_threads(int ranks, ra_comm **comms_out);

/* The simple way to run in-process ranks: starts `ranks` threads, calls body(comm, user) on each and waits for them.
 * The comms are ra_run_threads's: it destroys each when its body returns, which must have destroyed its plans by then.
 * Returns RA_OK when every body did, else the status of the first rank that failed by itself rather than because of a
 * peer, whose error text becomes this thread's ra_last_error(): the lowest rank with another status than MISMATCH,
 * TIMEOUT, PEER and BROKEN; if there is none the lowest with MISMATCH or TIMEOUT; else the lowest that failed. A rank
 * whose body has failed is gone: peers that need it get RA_ERR_PEER with its error text; what is between others goes
 * on.
 */
typedef ra_status (*ra_rank_body)(ra_comm *comm, void *user);
RA_API ra_status ra_run_threads(int ranks, ra_rank_body body, void *user);

RA_API int ra_comm_rank(const ra_comm *comm);
RA_API int ra_comm_ranks(const ra_comm *comm);
RA_API const char *ra_comm_transport(const ra_comm *comm);

/* Whether the comm refuses further use, or will at its next one because a peer has given up: then the ranks must not be
 * expected to meet again (over MPI, not in MPI_Finalize either). Every status may come with a lost comm. */
RA_API int ra_comm_lost(ra_comm *comm);

/* Tells the peers that this rank is alive, and lets messages move; takes microseconds and waits for nobody. For a rank
 * that works outside of ringattn for longer than the timeout while its peers wait for its next call: it calls this a
 * few times in that time. Over transports that know no signs of life (transport.h) it changes nothing. */
RA_API void ra_comm_progress(ra_comm *comm);

/* Collective: every rank contributes `bytes` bytes, all_out [ranks * bytes] has everyone's in rank order. Also the
 * way to find out whether all ranks have come this far. A peer that is silent for timeout_seconds is given up.
 */
RA_API ra_status ra_comm_allgather(ra_comm *comm, const void *mine, size_t bytes, void *all_out,
                                   double timeout_seconds);

/* NULL is allowed. Destroying a comm whose peers still work with theirs makes their waits fail, not hang. */
RA_API void ra_comm_destroy(ra_comm *comm);

/* ---- a plan --------------------------------------------------------------------------------------------------- */

typedef struct ra_plan ra_plan;

/* Collective: every rank of comm calls it with the same problem. When they disagree every rank gets RA_ERR_MISMATCH
 * naming a rank and a field; when one rank cannot (no memory, a wrong argument) it gets its own error and every other
 * RA_ERR_MISMATCH with that rank and its reason. Costs one exchange of a few bytes per rank through rank 0. options may
 * be NULL. *plan_out is set only on success. comm must outlive the plan. */
RA_API ra_status ra_plan_create(ra_comm *comm, const ra_problem *problem, const ra_options *options,
                                ra_plan **plan_out);

/* A tensor of this rank's rows, C-order [batch, rows, heads, dim]; or, where strided is set, with element [b, row, h,
 * d] at data[b*stride[0] + row*stride[1] + h*stride[2] + d*stride[3]], strides in elements and of any sign, so that
 * [B,S,H,D], [B,H,S,D] and [T,H,D] all work without a copy. A stride of 0 repeats one element, in inputs only. Strides
 * without `strided` are refused. data may be NULL when this rank has no rows. */
typedef struct ra_input {
    const void *data;
    int strided;
    int64_t stride[4];
} ra_input;
typedef struct ra_tensor {
    void *data;
    int strided;
    int64_t stride[4];
} ra_tensor;

/* An output of one call as an input of another. */
static inline ra_input ra_as_input(ra_tensor tensor) {
    ra_input input = {tensor.data, tensor.strided, {0, 0, 0, 0}};
    for (int i = 0; i < 4; i++) input.stride[i] = tensor.stride[i];
    return input;
}

/* q, k, v are read; o and lse are written and overlap nothing else. When the call fails each of them is as it was or
 * all NaN: nothing partial is left looking whole.
 *
 * lse is of float (double for RA_F64), natural logarithm, C-order [batch, heads_q, rows_q]; or, where lse_strided is
 * set, with element [b, h, row] at lse[b*lse_stride[0] + h*lse_stride[1] + row*lse_stride[2]], strides as in ra_tensor.
 * NULL: not wanted, which each rank may decide for itself: it is of this rank's rows and is not sent. */
typedef struct ra_tensors {
    size_t struct_size;
    ra_input q, k, v;
    ra_tensor o;
    void *lse;
    int lse_strided;
    int64_t lse_stride[3];
} ra_tensors;
#define RA_TENSORS_INIT                                                                                                \
    { .struct_size = sizeof(ra_tensors) }
RA_API void ra_tensors_init(ra_tensors *tensors_out);

/* q, k, v, o, lse (as the forward pass gave them) and dout are read; dq, dk, dv are written, and are as they were or
 * all NaN when the call fails. dq may be the memory of o where their shapes and types are equal; nothing else may
 * overlap. */
typedef struct ra_gradients {
    size_t struct_size;
    ra_input q, k, v;
    ra_input o;
    const void *lse; /* as in ra_tensors */
    int lse_strided;
    int64_t lse_stride[3];
    ra_input dout; /* [batch, rows_q, heads_q, dim_v] of dtype */
    ra_tensor dq, dk, dv;
} ra_gradients;
#define RA_GRADIENTS_INIT                                                                                              \
    { .struct_size = sizeof(ra_gradients) }
RA_API void ra_gradients_init(ra_gradients *gradients_out);

/* Collective: every rank runs the same passes of the same plans in the same order. Messages are matched by pass and by
 * plan (256 that follow one another on a comm are told apart), so ranks that run different ones at the same time never
 * get each other's rows, but an error: in process RA_ERR_TRANSPORT at once, else by timeout_seconds. NCCL matches by
 * order alone: there it is not noticed.
 *
 * No allocation, no planning. After RA_ERR_TIMEOUT, RA_ERR_PEER, RA_ERR_TRANSPORT or RA_ERR_DEVICE the comm refuses
 * further use on every rank. A wrong argument fails on this rank only, before anything is sent: the peers wait for its
 * next, right call until their deadline.
 *
 * stream: NULL on the CPU. On a device the stream of that device (NULL: its default one) that the work is put on. The
 * call returns when all work is on the stream; the tensors must stay until that work is done, also when the call fails:
 * ranks of one process and device use each other's where they are, and the stream waits for that. The call waits for
 * peers' calls, not for the device; but where messages go through host memory (mpi, transports that know no device)
 * each step waits for the device to reach it, within timeout_seconds. Runs of one plan must follow one another on the
 * device: use one stream, or order the streams. With one rank the calls may be captured in a graph. A launch that the
 * device refuses is RA_ERR_DEVICE. */
RA_API ra_status ra_plan_forward(ra_plan *plan, const ra_tensors *tensors, void *stream);
RA_API ra_status ra_plan_backward(ra_plan *plan, const ra_gradients *gradients, void *stream);

/* Waits on this thread until all that is on stream is done, and says whether it went well; RA_OK at once on the CPU.
 * Over transports that end on the device (nccl) a peer that dies leaves the stream waiting for ever: there this call
 * ends by options.timeout_seconds, counted from the call, and gives the comm up. It also fails when the comm was lost
 * meanwhile in another call or plan. When it fails, the outputs of the last pass each way since the last wait are NaN,
 * and must therefore be there until it returns; those of earlier passes since then are undefined.
 *
 * stream: that of the last pass, or one ordered behind it. Waiting in another way is allowed, but finds no dead peer.
 */
RA_API ra_status ra_plan_wait(ra_plan *plan, void *stream);

/* NULL is allowed. Passes may still be on a stream. Graphs that captured passes of the plan must have finished and must
 * not be launched again. */
RA_API void ra_plan_destroy(ra_plan *plan);

typedef struct ra_traffic {
    int64_t bytes_planned, messages_planned; /* what one run sends */
    int64_t bytes_sent, messages_sent;       /* what the last run did send */
} ra_traffic;

typedef struct ra_plan_info {
    size_t struct_size;
    int rank, ranks;
    int64_t rows_q, rows_k;  /* of this rank */
    int64_t pairs;           /* visible (query, key) pairs over batch and heads that this rank computes */
    int64_t workspace_bytes; /* all that the run path uses, beside a device's tile lists, of which: */
    int64_t kv_slot_bytes;   /*   slots of what travels to be computed with: keys and values, or queries */
    int64_t state_bytes;     /*   m, l and, unless sums are made in the outputs, O; or lse, delta, dQ if that is more */
    int64_t grad_slot_bytes; /*   slots of sums that travel home: dK and dV, or states and dQ; and the own dK, dV */
    int64_t scratch_bytes;   /*   the kernel's, independent of the sequence */
    int kv_slots, grad_slots;
    int steps_forward, steps_backward;
    ra_layout layout;     /* as chosen */
    ra_strategy strategy; /* as chosen */
    const char *kernel;   /* as chosen */
    const char *device;
    ra_traffic forward, backward;
    int64_t plan_bytes; /* what describes the plan (steps, tiles, messages), beside the workspace */
} ra_plan_info;
#define RA_PLAN_INFO_INIT                                                                                              \
    { .struct_size = sizeof(ra_plan_info) }
RA_API void ra_plan_info_init(ra_plan_info *info_out);

RA_API ra_status ra_plan_describe(const ra_plan *plan, ra_plan_info *info_out);

/* The same for any rank of any number of ranks, without a comm and without running anything. Scratch grows with
 * options.threads; where that is 0, all ranks are taken for ranks of this process and divide its cores. So set it when
 * you size a workspace of your own by the prediction. */
RA_API ra_status ra_predict(const ra_problem *problem, const ra_options *options, int ranks, int rank,
                            ra_plan_info *info_out);

/* One step of a schedule: what travels while what is computed. */
typedef struct ra_step_info {
    int owner;     /* whose keys are computed with; -1: nothing is computed; -2: several owners' */
    int visitor;   /* whose queries; -1: this rank's own */
    int64_t pairs; /* computed in this step, over batch and heads */
    int send_peer; /* of the first message; -1: nothing is sent */
    int recv_peer;
    int sends, recvs;
    int64_t bytes_sent, bytes_received;
} ra_step_info;

/* Fills at most `capacity` steps of that rank's schedule and sets *count_out to how many there are. */
RA_API ra_status ra_predict_steps(const ra_problem *problem, const ra_options *options, int ranks, int rank,
                                  ra_pass pass, ra_step_info *steps_out, int capacity, int *count_out);

/* ---- where rows live ------------------------------------------------------------------------------------------ */

/* All of these take a layout, a length n and a number of ranks. RA_LAYOUT_AUTO is refused: resolve it first. The
 * ra_packed functions take the documents as well, as a problem has them (cu_seqlens [documents + 1], from 0 to n; NULL
 * for one document): RA_LAYOUT_DOCUMENTS, where the documents decide who has which row, is refused by all others but
 * ra_layout_rows and ra_layout_resolve. */

/* What RA_LAYOUT_AUTO means for this problem. */
RA_API ra_status ra_layout_resolve(const ra_problem *problem, const ra_options *options, int ranks,
                                   ra_layout *layout_out);

/* How many rows a rank has; -1 when an argument is wrong. */
RA_API int64_t ra_layout_rows(ra_layout layout, int64_t n, int ranks, int rank);

/* The position of a rank's row, and the way back. Rows are in increasing order of position. */
RA_API ra_status ra_layout_position(ra_layout layout, int64_t n, int ranks, int rank, int64_t row,
                                    int64_t *position_out);
RA_API ra_status ra_layout_locate(ra_layout layout, int64_t n, int ranks, int64_t position, int *rank_out,
                                  int64_t *row_out);

/* positions_out [rows]: the position ids a model needs for its rotary embedding. */
RA_API ra_status ra_layout_positions(ra_layout layout, int64_t n, int ranks, int rank, int64_t *positions_out);

/* whole [batch, n, row_bytes] <-> shard [batch, rows, row_bytes], both C-order. Gathering every rank's shard into the
 * same array fills it. */
RA_API ra_status ra_layout_scatter(ra_layout layout, int64_t n, int ranks, int rank, int64_t batch, size_t row_bytes,
                                   const void *whole, void *shard_out);
RA_API ra_status ra_layout_gather(ra_layout layout, int64_t n, int ranks, int rank, int64_t batch, size_t row_bytes,
                                  const void *shard, void *whole_out);

/* The same for packed sequences, on any layout. Positions count through all documents; the position of a token in its
 * document is its position less the document's start. */
RA_API ra_status ra_packed_locate(ra_layout layout, int64_t n, int64_t documents, const int64_t *cu_seqlens, int ranks,
                                  int64_t position, int *rank_out, int64_t *row_out);
RA_API ra_status ra_packed_positions(ra_layout layout, int64_t n, int64_t documents, const int64_t *cu_seqlens,
                                     int ranks, int rank, int64_t *positions_out);
RA_API ra_status ra_packed_scatter(ra_layout layout, int64_t n, int64_t documents, const int64_t *cu_seqlens, int ranks,
                                   int rank, int64_t batch, size_t row_bytes, const void *whole, void *shard_out);
RA_API ra_status ra_packed_gather(ra_layout layout, int64_t n, int64_t documents, const int64_t *cu_seqlens, int ranks,
                                  int rank, int64_t batch, size_t row_bytes, const void *shard, void *whole_out);

/* ---- names, types, features ------------------------------------------------------------------------------------ */

/* "zigzag" for RA_LAYOUT_ZIGZAG and so on; NULL for a value that is none. The parsers return RA_ERR_ARGUMENT and name
 * the choices. */
RA_API const char *ra_layout_name(ra_layout layout);
RA_API const char *ra_strategy_name(ra_strategy strategy);
RA_API const char *ra_dtype_name(ra_dtype dtype);
RA_API const char *ra_dilated_heads_name(ra_dilated_heads heads);
RA_API const char *ra_dilated_offset_name(ra_dilated_offset offset);
RA_API const char *ra_dilated_combine_name(ra_dilated_combine combine);
RA_API ra_status ra_layout_parse(const char *name, ra_layout *layout_out);
RA_API ra_status ra_strategy_parse(const char *name, ra_strategy *strategy_out);
RA_API ra_status ra_dtype_parse(const char *name, ra_dtype *dtype_out);
RA_API ra_status ra_dilated_heads_parse(const char *name, ra_dilated_heads *heads_out);
RA_API ra_status ra_dilated_offset_parse(const char *name, ra_dilated_offset *offset_out);
RA_API ra_status ra_dilated_combine_parse(const char *name, ra_dilated_combine *combine_out);

/* Bytes of one element; 0 for a value that is no type. */
RA_API size_t ra_dtype_bytes(ra_dtype dtype);

/* count elements from one type to another, rounded to nearest even; the arrays must not overlap. */
RA_API ra_status ra_convert(ra_dtype to, void *to_data, ra_dtype from, const void *from_data, int64_t count);

/* The kernels compiled in, best last; NULL past the end. usable: whether this machine can run it. */
RA_API const char *ra_kernel_name(int index);
RA_API int ra_kernel_usable(int index);

/* The CPU features that kernels are chosen by, space-separated ("avx2 fma"); empty where none is known. */
RA_API const char *ra_cpu_features(void);

/* ---- memory of a backend ---------------------------------------------------------------------------------------- */

/* For programs that have no other way to a device's memory. A backend of NULL is the CPU and plain memory. Copies are
 * between any two of the backend's memory and the host's, and are done when the call returns. */
RA_API ra_status ra_backend_allocate(const ra_backend *backend, size_t bytes, void **memory_out);
RA_API void ra_backend_release(const ra_backend *backend, void *memory);
RA_API ra_status ra_backend_copy(const ra_backend *backend, void *to, const void *from, size_t bytes);

/* A stream that waits for no other; NULL on the CPU. */
RA_API ra_status ra_backend_stream_create(const ra_backend *backend, void **stream_out);
RA_API void ra_backend_stream_destroy(const ra_backend *backend, void *stream);

/* The backend's name ("cpu", "cuda"), and its kernels, as ra_kernel_name and ra_kernel_usable give the CPU's. */
RA_API const char *ra_backend_name(const ra_backend *backend);
RA_API const char *ra_backend_kernel(const ra_backend *backend, int index);
RA_API int ra_backend_kernel_usable(const ra_backend *backend, int index);

/* ---- the definition -------------------------------------------------------------------------------------------- */

/* The definition of what is computed, in doubles, one query row at a time and without any cleverness: for checking.
 * q, k, v, dout: C-order, whole sequences. o_out [dim_v], lse_out: of query i of head h of batch b. */
RA_API ra_status ra_reference_row(const ra_problem *problem, const double *q, const double *k, const double *v,
                                  int64_t b, int64_t h, int64_t i, double *o_out, double *lse_out);

/* Whole sequences. o_out, lse_out; and, where dout is not NULL, dq_out, dk_out, dv_out. Time grows as seq_q * seq_k. */
RA_API ra_status ra_reference(const ra_problem *problem, const double *q, const double *k, const double *v,
                              const double *dout, double *o_out, double *lse_out, double *dq_out, double *dk_out,
                              double *dv_out);

#ifdef __cplusplus
}
#endif
#endif
