/* Making a comm over UCX when one rank has no memory at any point of it: the others hear of it at once, with the
 * reason, but for the two points at which it has none for what allgather brings. */
#include "processes/failing_memory.h"
#include "ucx_test.h"

enum { MOST_RANKS = 8, BLOCK_BYTES = 4096 };

typedef struct gathering {
    ra_rendezvous *meeting;
    int calls;
} gathering;

/* What goes round in a block of one size, by whose first byte a rank says whether it takes part. */
static ra_status gather_blocks(ra_rendezvous *meeting, int takes_part, const void *mine, size_t bytes, void *all_out) {
    static char block[BLOCK_BYTES], all[MOST_RANKS][BLOCK_BYTES];
    long fails_at = memory_fails_at, calls = memory_calls;
    CHECK(bytes < sizeof block);
    block[0] = (char)takes_part;
    if (takes_part) memcpy(block + 1, mine, bytes);
    memory_fails_at = -1; /* the meeting's own memory is not what this is about */
    CHECK(ra_rendezvous_allgather(meeting, block, sizeof block, all) == RA_OK);
    memory_fails_at = fails_at, memory_calls = calls;
    for (int r = 0; r < ra_rendezvous_ranks(meeting); r++) {
        if (!all[r][0]) return ra_fail(RA_ERR_PEER, "rank %d did not come to the allgather", r);
        if (takes_part) memcpy((char *)all_out + (size_t)r * bytes, all[r] + 1, bytes);
    }
    return RA_OK;
}

static ra_status gather(void *user, const void *mine, size_t bytes, void *all_out) {
    gathering *g = user;
    g->calls++;
    return gather_blocks(g->meeting, 1, mine, bytes, all_out);
}

/* Whether a rank without memory has left the others waiting in their allgather: in the first, for their cards, or in
 * the third, for their addresses. */
static int left_them_waiting(const gathering *g) {
    return g->calls == 0 || (g->calls == 2 && strstr(ra_last_error(), "addresses of"));
}

/* One rank's call fails. Returns whether there was such a call; *silent: how often it said nothing of it. */
static int fail_at(ra_rendezvous *meeting, long index, int culprit, int *silent) {
    gathering g = {.meeting = meeting};
    ra_comm *comm = NULL;
    int rank = ra_rendezvous_rank(meeting), all[MOST_RANKS];
    double start = test_clock();
    if (rank == culprit) fail_memory(index);
    ra_status status = ra_comm_create_ucx(rank, ra_rendezvous_ranks(meeting), gather, &g, NULL, &comm);
    int news[] = {rank == culprit && memory_calls > index, 0}, heard[MOST_RANKS][2];
    if (rank == culprit) {
        fail_memory(-1);
        CHECK(status == (news[0] ? RA_ERR_MEMORY : RA_OK));
        CHECK(!news[0] || strstr(ra_last_error(), "no memory") != NULL);
        news[1] = news[0] && left_them_waiting(&g);
        if (news[1]) CHECK(gather_blocks(meeting, 0, NULL, 0, NULL) == RA_ERR_PEER);
    }
    char why[1024];
    snprintf(why, sizeof why, "%s", ra_last_error());
    CHECK(test_clock() - start < 3);
    CHECK(ra_rendezvous_allgather(meeting, news, sizeof news, heard) == RA_OK);
    int met = heard[culprit][0], was_silent = heard[culprit][1];
    if (status == RA_OK) { /* a rank that has all it needs of the culprit finds out when it first needs it again */
        status = ra_comm_allgather(comm, &rank, sizeof rank, all, 20);
        snprintf(why, sizeof why, "%s", ra_last_error());
    }
    CHECK(met || status == RA_OK);
    CHECK(!met || status != RA_OK);
    if (met && rank != culprit) CHECK(strstr(why, was_silent ? "did not come" : "no memory") != NULL);
    CHECK(test_clock() - start < 6);
    barrier(meeting);
    ra_comm_destroy(comm);
    *silent += was_silent;
    return met;
}

int main(void) {
    ra_rendezvous *meeting = meet();
    int ranks = ra_rendezvous_ranks(meeting);
    CHECK(ranks >= 2 && ranks <= MOST_RANKS);
    for (int culprit = 0; culprit < ranks; culprit += ranks - 1) {
        long index = 0;
        int silent = 0;
        while (fail_at(meeting, index, culprit, &silent)) index++;
        CHECK(index >= 8); /* the transport and its arrays, cards, lengths, addresses, hellos, the comm */
        CHECK(silent == 2);
    }
    ra_rendezvous_destroy(meeting);
    return 0;
}
