/* ra_comm over UCX: the collective, several comms and plans at once on threads of their own, and what becomes of a comm
 * that was lost. */
#include "support/problems/sweep.h"
#include "ucx_test.h"

#include <pthread.h>

enum { COMMS = 4, MOST_RANKS = 64 };

static unsigned char byte_of(int rank, size_t i) {
    return (unsigned char)(17 * rank + 3 * (int)i + 1);
}

/* Nonzero when all is as it should be: it may run on any thread. */
static int gather_once(ra_comm *comm, size_t bytes) {
    int rank = ra_comm_rank(comm), ranks = ra_comm_ranks(comm), right = 1;
    unsigned char *mine = malloc(bytes), *all = calloc((size_t)ranks, bytes);
    for (size_t i = 0; i < bytes; i++) mine[i] = byte_of(rank, i);
    if (ra_comm_allgather(comm, mine, bytes, all, 30) != RA_OK) right = 0;
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < bytes; i++) right &= all[(size_t)r * bytes + i] == byte_of(r, i);
    free(mine);
    free(all);
    return right;
}

static ra_comm *create(ra_rendezvous *meeting, const char *transports) {
    ra_ucx_options options = RA_UCX_OPTIONS_INIT;
    ra_comm *comm = NULL;
    options.transports = transports;
    options.destroy_seconds = 10;
    CHECK(ra_comm_create_ucx(ra_rendezvous_rank(meeting), ra_rendezvous_ranks(meeting), ra_rendezvous_allgather,
                             meeting, &options, &comm) == RA_OK);
    return comm;
}

static void gather(ra_rendezvous *meeting, const char *transports) {
    const size_t sizes[] = {1, 99, 1000, 70000};
    ra_comm *comm = create(meeting, transports), *other = create(meeting, transports);
    CHECK(ra_comm_rank(comm) == ra_rendezvous_rank(meeting));
    CHECK(ra_comm_ranks(comm) == ra_rendezvous_ranks(meeting));
    CHECK(strcmp(ra_comm_transport(comm), "ucx") == 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK(gather_once(comm, sizes[i]));
        CHECK(gather_once(other, sizes[i]));
    }
    ra_comm_destroy(comm);
    CHECK(gather_once(other, 8));
    ra_comm_destroy(other);
}

/* ---- comms on threads -------------------------------------------------------------------------------------------- */

typedef struct user {
    pthread_t thread;
    ra_comm *comm;
    size_t bytes;
    test_case c;
    sweep_data *data;
    uint64_t bits; /* that in-process ranks give */
    int right;
} user;

/* Plans of random problems beside the collective: every thread its own. */
static void *use(void *argument) {
    user *u = argument;
    u->right = 1;
    for (int i = 0; i < 10 && u->right; i++) {
        sweep_result result = {0};
        u->right = gather_once(u->comm, u->bytes + (size_t)i) && sweep_run(u->comm, u->data, 1, &result) == RA_OK &&
                   result.bits == u->bits && !result.traffic_differs;
    }
    ra_comm_destroy(u->comm);
    return NULL;
}

static void prepare(user *u, ra_rendezvous *meeting, int index) {
    sweep_result in_process = {0};
    u->comm = create(meeting, index % 2 ? "tcp" : NULL);
    u->bytes = 100u * (unsigned)index + 1;
    case_make(&u->c, 7000 + (uint64_t)index, RA_F32, 2e5);
    u->data = sweep_data_make(&u->c);
    CHECK(u->data != NULL);
    CHECK(sweep_threads(ra_rendezvous_ranks(meeting), u->data, 1, &in_process) == RA_OK);
    u->bits = in_process.bits;
}

/* Each rank starts the threads in an order of its own. */
static void comms_at_once(ra_rendezvous *meeting) {
    static user users[COMMS];
    int first = ra_rendezvous_rank(meeting) % COMMS;
    for (int i = 0; i < COMMS; i++) prepare(&users[i], meeting, i);
    for (int i = 0; i < COMMS; i++) {
        user *u = &users[(i + first) % COMMS];
        CHECK(pthread_create(&u->thread, NULL, use, u) == 0);
    }
    for (int i = 0; i < COMMS; i++) pthread_join(users[i].thread, NULL);
    for (int i = 0; i < COMMS; i++) {
        CHECK(users[i].right);
        sweep_data_free(users[i].data);
    }
}

/* One comm, used by several threads one after the other: as training programs do. */
static void *gather_elsewhere(void *argument) {
    user *u = argument;
    u->right = gather_once(u->comm, u->bytes);
    return NULL;
}

static void one_comm_on_several_threads(ra_rendezvous *meeting) {
    user u = {.comm = create(meeting, NULL), .bytes = 5000};
    for (int i = 0; i < 3; i++) {
        CHECK(gather_once(u.comm, 77));
        CHECK(pthread_create(&u.thread, NULL, gather_elsewhere, &u) == 0);
        pthread_join(u.thread, NULL);
        CHECK(u.right);
    }
    ra_comm_destroy(u.comm);
}

/* ---- lost comms -------------------------------------------------------------------------------------------------- */

/* The last rank never comes: everyone else gets an error that names itself and a peer, then RA_ERR_BROKEN. */
static void stall(ra_rendezvous *meeting, const char *transports) {
    ra_comm *comm = create(meeting, transports);
    int all[MOST_RANKS], rank = ra_comm_rank(comm);
    char self[32];
    double start = test_clock();
    if (rank != ra_comm_ranks(comm) - 1) {
        ra_status status = ra_comm_allgather(comm, &rank, sizeof rank, all, 0.4);
        CHECK(status == RA_ERR_TIMEOUT || status == RA_ERR_PEER);
        snprintf(self, sizeof self, "rank %d", rank);
        CHECK(strstr(ra_last_error(), self) != NULL);
        CHECK(strstr(ra_last_error(), "waiting for rank") != NULL);
        CHECK(ra_comm_allgather(comm, &rank, sizeof rank, all, 0.4) == RA_ERR_BROKEN);
        CHECK(ra_comm_lost(comm));
        CHECK(test_clock() - start < 1.4);
    }
    barrier(meeting);
    ra_comm_destroy(comm);
}

int main(void) {
    ra_rendezvous *meeting = meet();
    CHECK(ra_rendezvous_ranks(meeting) <= MOST_RANKS);
    gather(meeting, NULL);
    gather(meeting, "tcp");
    comms_at_once(meeting);
    one_comm_on_several_threads(meeting);
    if (ra_rendezvous_ranks(meeting) >= 2) {
        stall(meeting, NULL);
        stall(meeting, "tcp");
    }
    ra_rendezvous_destroy(meeting);
    return 0;
}
