/* What goes wrong between ranks, at the level of the transport: a peer that does not come, one that gives up, one that
 * leaves, one that dies, and messages of the wrong size. Run with at least 2 ranks; the last one dies at the end. */
#include "transport/ucx/ucx_transport.h"
#include "ucx_test.h"

#include <signal.h>

enum { LARGE = 3 << 20 }; /* sent only with the receiver's help */

static ra_rendezvous *meeting;
static const char *transports;

static ra_ucx *open_transport(void) {
    ra_ucx_options options = RA_UCX_OPTIONS_INIT;
    ra_ucx *ucx = NULL;
    int machine_ranks;
    options.transports = transports;
    options.destroy_seconds = 0.3;
    CHECK(ra_ucx_open(ra_rendezvous_rank(meeting), ra_rendezvous_ranks(meeting), ra_rendezvous_allgather, meeting,
                      &options, &ucx, &machine_ranks) == RA_OK);
    return ucx;
}

static ra_message receive(int peer, void *data, size_t bytes) {
    return (ra_message){.peer = peer, .tag = 7, .data = data, .bytes = bytes};
}

static ra_message send_to(int peer, void *data, size_t bytes) {
    return (ra_message){.peer = peer, .is_send = 1, .tag = 7, .data = data, .bytes = bytes};
}

static int is_over_tcp(void) {
    const char *named = transports ? transports : getenv("UCX_TLS");
    return named && strcmp(named, "tcp") == 0;
}

/* Rank 0 waits for the last rank, which sends nothing; then it gives up, and everyone hears of it at once, from rank 0
 * or from another that heard it earlier and passed it on. */
static void a_deadline_and_a_notice(int rank, int ranks) {
    ra_ucx *ucx = open_transport();
    char data[64];
    int done = 1, culprit = -1, last = ranks - 1;
    ra_message from_last = receive(last, data, sizeof data), from_first = receive(0, data, sizeof data);
    double start = test_clock();
    if (rank == 0) {
        CHECK(ra_ucx_ops.post(ucx, &from_last, 1, NULL) == RA_OK);
        CHECK(ra_ucx_ops.poll(ucx, 0.2, &done, &culprit) == RA_OK);
        CHECK(!done && culprit == 0);
        CHECK(test_clock() - start >= 0.2 && test_clock() - start < 1.2);
        CHECK(ra_ucx_ops.abandon(ucx, "the reason") != 0);
    } else {
        CHECK(ra_ucx_ops.post(ucx, &from_first, 1, NULL) == RA_OK);
        CHECK_FAILS(ra_ucx_ops.poll(ucx, 30, &done, &culprit), RA_ERR_PEER, "rank 0 gave up: the reason");
        CHECK(!done && culprit == 0);
        CHECK(test_clock() - start < 2.5);
        CHECK(ra_ucx_ops.abandon(ucx, "what is heard is passed on instead") != 0);
    }
    ra_ucx_ops.destroy(ucx);
    CHECK(test_clock() - start < 4);
}

/* A rank that computes, or waits for another, says so to one that asks; one that does neither is silent. */
static void signs_of_life(int rank, int ranks) {
    ra_ucx *ucx = open_transport();
    ra_sign sign;
    char data[64];
    int done, culprit;
    ra_message from_first = receive(0, data, sizeof data), to_others = send_to(1, data, sizeof data);
    if (rank == 0) {
        double start = test_clock();
        do {
            ra_ucx_ops.inquire(ucx, 1, &sign);
            CHECK(ra_ucx_ops.poll(ucx, 0.01, &done, &culprit) == RA_OK);
        } while (sign.waits_for != 0 && test_clock() - start < 10);
        CHECK(sign.waits_for == 0 && sign.waited > 0 && sign.silent < 1);
        CHECK(ra_ucx_ops.post(ucx, &to_others, 1, NULL) == RA_OK);
        CHECK(ra_ucx_ops.poll(ucx, 10, &done, &culprit) == RA_OK && done);
        barrier(meeting);
        start = test_clock();
        while (test_clock() - start < 0.4) { /* rank 1 is elsewhere */
            CHECK(ra_ucx_ops.poll(ucx, 0.01, &done, &culprit) == RA_OK);
            ra_ucx_ops.inquire(ucx, 1, &sign);
        }
        CHECK(sign.silent > 0.3);
    } else if (rank == 1) {
        CHECK(ra_ucx_ops.post(ucx, &from_first, 1, NULL) == RA_OK);
        CHECK(ra_ucx_ops.poll(ucx, 10, &done, &culprit) == RA_OK && done);
        barrier(meeting);
    } else {
        barrier(meeting);
    }
    (void)ranks;
    barrier(meeting);
    ra_ucx_ops.destroy(ucx);
}

/* A send that nobody receives cannot be taken back: its memory is not free again. */
static void an_abandoned_send(int rank) {
    ra_ucx *ucx = open_transport();
    int done = 1, culprit = -1;
    char *data = calloc(1, LARGE);
    CHECK(data != NULL);
    ra_message group[] = {receive(1, data, 8), send_to(1, data, LARGE)};
    if (rank == 0) {
        CHECK(ra_ucx_ops.post(ucx, group, 2, NULL) == RA_OK);
        CHECK(ra_ucx_ops.poll(ucx, 0.1, &done, &culprit) == RA_OK);
        CHECK(!done && culprit >= 0);
        CHECK(ra_ucx_ops.abandon(ucx, "nobody received") == 0);
    }
    barrier(meeting);
    ra_ucx_ops.destroy(ucx);
    barrier(meeting);
    free(data);
}

/* Everyone but rank 0 destroys its comm while rank 0 still waits. */
static void a_peer_that_leaves(int rank) {
    ra_ucx *ucx = open_transport();
    char data[64];
    int done, culprit;
    double start = test_clock();
    ra_message message = receive(1, data, sizeof data);
    if (rank == 0) {
        CHECK(ra_ucx_ops.post(ucx, &message, 1, NULL) == RA_OK);
        CHECK_FAILS(ra_ucx_ops.poll(ucx, 30, &done, &culprit), RA_ERR_PEER, "rank 1 has left");
        ra_ucx_ops.abandon(ucx, "a peer left");
    }
    ra_ucx_ops.destroy(ucx);
    CHECK(test_clock() - start < 3);
}

/* The last rank leaves early, as one does whose last step was short: the others, who do not need it any more, go on. */
static void a_peer_that_is_not_missed(int rank, int ranks) {
    ra_ucx *ucx = open_transport();
    int mine = 5, got = 0, done = 0, culprit, last = ranks - 1;
    double start = test_clock();
    if (rank < last) {
        ra_message group[] = {receive((rank + last - 1) % last, &got, sizeof got),
                              send_to((rank + 1) % last, &mine, sizeof mine)};
        while (!ucx->peers[last].left && test_clock() - start < 20)
            CHECK(ra_ucx_ops.poll(ucx, 0, &done, &culprit) == RA_OK && done);
        CHECK(ucx->left == 1 && ucx->peers[last].left);
        if (ranks > 2) {
            CHECK(ra_ucx_ops.post(ucx, group, 2, NULL) == RA_OK);
            CHECK(ra_ucx_ops.poll(ucx, 30, &done, &culprit) == RA_OK && done && got == 5);
        }
        barrier(meeting);
        start = test_clock();
    }
    ra_ucx_ops.destroy(ucx); /* nobody waits for the one that has left, nor does that one for long */
    CHECK(test_clock() - start < 3);
    if (rank == last) barrier(meeting);
}

/* Rank 1 sends and leaves; rank 0 takes the message after it has heard of that. */
static void a_peer_that_has_sent(int rank) {
    const size_t bytes = is_over_tcp() ? 200 << 10 : 4000; /* sent without the receiver's help */
    ra_ucx *ucx = open_transport();
    char *data = calloc(1, bytes), *sent = malloc(bytes);
    int done = 0, culprit;
    double start = test_clock();
    CHECK(data != NULL && sent != NULL);
    for (size_t i = 0; i < bytes; i++) sent[i] = (char)(i * 7);
    ra_message in = receive(1, data, bytes), out = send_to(0, sent, bytes);
    while (rank != 1 && !ucx->peers[1].left && test_clock() - start < 20)
        CHECK(ra_ucx_ops.poll(ucx, 0, &done, &culprit) == RA_OK && done);
    if (rank == 0) {
        CHECK(ra_ucx_ops.post(ucx, &in, 1, NULL) == RA_OK);
        CHECK(ra_ucx_ops.poll(ucx, 30, &done, &culprit) == RA_OK && done);
        CHECK(memcmp(data, sent, bytes) == 0);
    } else if (rank == 1) {
        CHECK(ra_ucx_ops.post(ucx, &out, 1, NULL) == RA_OK);
        CHECK(ra_ucx_ops.poll(ucx, 30, &done, &culprit) == RA_OK && done);
    }
    ra_ucx_ops.destroy(ucx);
    free(data);
    free(sent);
}

/* Rank 1 leaves, and rank 0 is away for a while: it looks for what may have been sent before it gives up. */
static void a_rank_that_was_away(int rank) {
    ra_ucx *ucx = open_transport();
    char data[8];
    int done = 0, culprit;
    double start = test_clock();
    ra_message in = receive(1, data, sizeof data);
    while (rank == 0 && !ucx->peers[1].left && test_clock() - start < 20)
        CHECK(ra_ucx_ops.poll(ucx, 0, &done, &culprit) == RA_OK && done);
    if (rank == 0) {
        CHECK(ra_ucx_ops.post(ucx, &in, 1, NULL) == RA_OK);
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
        CHECK(ra_ucx_ops.poll(ucx, 0, &done, &culprit) == RA_OK && !done);
        CHECK_FAILS(ra_ucx_ops.poll(ucx, 30, &done, &culprit), RA_ERR_PEER, "rank 1 has left");
        ra_ucx_ops.abandon(ucx, "a peer left");
    }
    ra_ucx_ops.destroy(ucx);
}

/* Over TCP's loopback every rank has a second endpoint to every other, and nobody can connect any more. */
static void second_endpoints(int rank, int ranks) {
    ra_ucx *ucx = open_transport();
    for (int peer = 0; peer < ranks; peer++) CHECK(!ucx->peers[peer].bulk == !(is_over_tcp() && peer != rank));
    CHECK(ucx->accepted_count == (is_over_tcp() ? ranks - 1 : 0) && ucx->listener == NULL);
    barrier(meeting);
    ra_ucx_ops.destroy(ucx);
}

/* Rank 0 listens again, with another key, so that to it rank 1 is a stranger: it is turned away, and sends its messages
 * over the endpoint that it has. */
static void a_stranger_at_the_port(int rank, int ranks) {
    ra_ucx *ucx = open_transport();
    uint16_t port = 0;
    int done = 0, culprit, absent = 0, got = 0, mine = 8;
    ra_message with_port[] = {send_to(1, &port, sizeof port), receive(0, &port, sizeof port)};
    ra_message with_word[] = {receive(1, &got, sizeof got), send_to(0, &mine, sizeof mine)};
    if (rank == 0) {
        ucx->key[RA_UCX_KEY_BYTES - 1] ^= 1;
        ra_ucx_bulk_listen(ucx, &port);
        CHECK(port != 0);
    }
    if (rank < 2) {
        CHECK(ra_ucx_ops.post(ucx, &with_port[rank], 1, NULL) == RA_OK);
        CHECK(ra_ucx_ops.poll(ucx, 30, &done, &culprit) == RA_OK && done);
    }
    if (rank == 1) {
        ra_ucx_peer *first = &ucx->peers[0];
        ucp_ep_h bulk = first->bulk;
        first->bulk = NULL;
        first->port = port;
        ra_ucx_bulk_connect(ucx, 0);
        CHECK(first->bulk != NULL && first->bulk != bulk);
        CHECK(ra_ucx_bulk_settle(ucx, 30, &absent) == RA_OK && absent < 0);
        CHECK(first->bulk == NULL && first->bulk_failed);
        first->bulk = bulk;
        first->bulk_failed = 0;
    }
    if (rank < 2) {
        CHECK(ra_ucx_ops.post(ucx, &with_word[rank], 1, NULL) == RA_OK);
        CHECK(ra_ucx_ops.poll(ucx, 30, &done, &culprit) == RA_OK && done);
    }
    CHECK(rank != 0 || (got == 8 && ucx->accepted_count == ranks - 1));
    barrier(meeting);
    if (rank == 0) ucx->key[RA_UCX_KEY_BYTES - 1] ^= 1;
    barrier(meeting);
    ra_ucx_ops.destroy(ucx);
}

/* Rank 1 sends `sent` bytes where rank 0 expects `expected`; late: before rank 0 has posted its receive. */
static void a_wrong_size(int rank, size_t sent, size_t expected, int late, const char *words) {
    ra_ucx *ucx = open_transport();
    char *data = calloc(1, LARGE + 8);
    int done, culprit = -1;
    CHECK(data != NULL);
    ra_message out = send_to(0, data, sent), in = receive(1, data, expected);
    if (rank == 0) {
        if (late) barrier(meeting);
        CHECK(ra_ucx_ops.post(ucx, &in, 1, NULL) == RA_OK);
        if (!late) barrier(meeting);
        /* A poll in passing may be the one to find it, and its result be ignored: the next says it again. */
        for (int again = 0; again < 2; again++) {
            CHECK_FAILS(ra_ucx_ops.poll(ucx, 30, &done, &culprit), RA_ERR_TRANSPORT, words);
            CHECK(!done && culprit == 0);
        }
    } else {
        if (!late) barrier(meeting);
        if (rank == 1) {
            CHECK(ra_ucx_ops.post(ucx, &out, 1, NULL) == RA_OK);
            ra_ucx_ops.poll(ucx, 0.05, &done, &culprit);
        }
        if (late) barrier(meeting);
        if (rank == 1) CHECK(ra_ucx_ops.poll(ucx, 30, &done, &culprit) == RA_OK && done);
    }
    barrier(meeting);
    ra_ucx_ops.destroy(ucx);
    barrier(meeting);
    free(data);
}

/* Rank 1 sends what a process of another job would: nobody takes it for a message, or for a notice. */
static void another_key(int rank) {
    ra_ucx *ucx = open_transport();
    int mine = 6, got = 0, done = 0, culprit;
    ra_message in = receive(1, &got, sizeof got), out = send_to(0, &mine, sizeof mine);
    if (rank == 0) {
        CHECK(ra_ucx_ops.post(ucx, &in, 1, NULL) == RA_OK);
        barrier(meeting);
        CHECK(ra_ucx_ops.poll(ucx, 0.2, &done, &culprit) == RA_OK && !done && got == 0);
        barrier(meeting);
        CHECK(ra_ucx_ops.poll(ucx, 30, &done, &culprit) == RA_OK && done && got == 7);
    } else {
        ucx->key[0] ^= 1;
        if (rank == 1) {
            CHECK(ra_ucx_ops.post(ucx, &out, 1, NULL) == RA_OK);
            CHECK(ra_ucx_ops.poll(ucx, 30, &done, &culprit) == RA_OK && done);
            ra_ucx_tell(ucx, "of another job");
            CHECK(ra_ucx_ops.poll(ucx, 0.05, &done, &culprit) == RA_OK);
        }
        barrier(meeting);
        ucx->key[0] ^= 1;
        barrier(meeting);
        mine = 7;
        if (rank == 1) {
            CHECK(ra_ucx_ops.post(ucx, &out, 1, NULL) == RA_OK);
            CHECK(ra_ucx_ops.poll(ucx, 30, &done, &culprit) == RA_OK && done);
        }
    }
    barrier(meeting);
    ra_ucx_ops.destroy(ucx);
    barrier(meeting);
}

/* The last rank is killed while it owes everyone a message; every other names it long before its deadline. */
static void a_peer_that_dies(int rank, int ranks) {
    ra_ucx *ucx = open_transport();
    int done = 0, culprit = -1, last = ranks - 1;
    char *data = calloc(1, LARGE), name[64];
    ra_message group[] = {receive(last, data, LARGE)};
    barrier(meeting); /* all have connected */
    if (rank == last) {
        ra_message out = send_to(0, data, LARGE);
        CHECK(ra_ucx_ops.post(ucx, &out, 1, NULL) == RA_OK); /* rank 0 may be copying from it */
        raise(SIGKILL);
    }
    double start = test_clock();
    CHECK(ra_ucx_ops.post(ucx, group, 1, NULL) == RA_OK);
    ra_status status = ra_ucx_ops.poll(ucx, 30, &done, &culprit);
    snprintf(name, sizeof name, "rank %d is gone", last);
    if (rank == 0 && status == RA_OK) { /* its message came whole before it died */
        CHECK(done);
        CHECK(ra_ucx_ops.post(ucx, group, 1, NULL) == RA_OK);
        status = ra_ucx_ops.poll(ucx, 30, &done, &culprit);
    }
    CHECK(status == RA_ERR_PEER && !done && culprit == 0);
    CHECK(strstr(ra_last_error(), name) != NULL);
    CHECK(test_clock() - start < 2.5);
    ra_ucx_ops.abandon(ucx, ra_last_error());
    ra_ucx_ops.destroy(ucx);
    free(data);
}

static void run_all(int rank, int ranks) {
    for (int late = 0; late < 2; late++) {
        a_wrong_size(rank, 99, 100, late, "sent 99 bytes where 100 were expected");
        a_wrong_size(rank, 101, 100, late, "bytes where 100 were expected");
        a_wrong_size(rank, (2 << 20) + 5, (2 << 20) + 6, late, "sent 2097157 bytes where 2097158 were expected");
        a_wrong_size(rank, 1 << 20, (1 << 20) - 1, late, "bytes where 1048575 were expected");
    }
    a_deadline_and_a_notice(rank, ranks);
    signs_of_life(rank, ranks);
    a_peer_that_leaves(rank);
    a_peer_that_is_not_missed(rank, ranks);
    a_peer_that_has_sent(rank);
    a_rank_that_was_away(rank);
    an_abandoned_send(rank);
    another_key(rank);
    second_endpoints(rank, ranks);
    if (is_over_tcp()) a_stranger_at_the_port(rank, ranks);
}

int main(int argc, char **argv) {
    meeting = meet();
    int rank = ra_rendezvous_rank(meeting), ranks = ra_rendezvous_ranks(meeting);
    CHECK(ranks >= 2);
    transports = argc > 1 ? argv[1] : NULL;
    run_all(rank, ranks);
    a_peer_that_dies(rank, ranks);
    return 0;
}
