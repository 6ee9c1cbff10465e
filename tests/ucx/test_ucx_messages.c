/* Random groups of messages of odd and large sizes, over what UCX chooses and over TCP, with a second comm of the same
 * ranks that has a group in flight at the same time. Every byte is checked, and the bytes around every buffer. */
#include "transport/ucx/ucx_transport.h"
#include "ucx_test.h"

enum { MOST_MESSAGES = 256, GUARD = 16 };

typedef struct group {
    ra_message messages[MOST_MESSAGES];
    unsigned char *buffers[MOST_MESSAGES]; /* GUARD bytes before and after the data */
    uint64_t seeds[MOST_MESSAGES];         /* of the data */
    int count;
} group;

/* Around the sizes at which UCX changes how it sends. */
static size_t random_size(uint64_t *random) {
    static const size_t edges[] = {93, 8192, 8256, 20553, 65536, 262144};
    switch (next_random(random) % 8) {
    case 0:
        return 1 + next_random(random) % 8;
    case 1:
        return (1 << 20) + next_random(random) % (3 << 20);
    case 2:
    case 3:
        return edges[next_random(random) % 6] - 3 + next_random(random) % 7;
    default:
        return 1 + next_random(random) % 20000;
    }
}

static void fill(unsigned char *data, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)(next_random(&seed) >> 32);
}

static void add_message(group *g, int peer, int is_send, int tag, size_t bytes, uint64_t seed) {
    unsigned char *buffer = malloc(bytes + 2 * GUARD);
    CHECK(buffer != NULL && g->count < MOST_MESSAGES);
    memset(buffer, 0xee, bytes + 2 * GUARD);
    if (is_send) fill(buffer + GUARD, bytes, seed);
    g->messages[g->count] =
        (ra_message){.peer = peer, .is_send = is_send, .tag = tag, .data = buffer + GUARD, .bytes = bytes};
    g->buffers[g->count] = buffer;
    g->seeds[g->count] = seed;
    g->count++;
}

/* Every rank draws the whole group and keeps the messages that concern it. */
static void draw_group(group *g, const ra_ucx *ucx, uint64_t *random) {
    g->count = 0;
    for (int from = 0; from < ucx->ranks; from++) {
        for (int to = 0; to < ucx->ranks; to++) {
            int messages = from == to ? 0 : (int)(next_random(random) % 4);
            for (int i = 0; i < messages; i++) {
                int tag = next_random(random) % 2 ? 32767 - i : i;
                size_t bytes = random_size(random);
                uint64_t seed = next_random(random);
                if (from == ucx->rank) add_message(g, to, 1, tag, bytes, seed);
                if (to == ucx->rank) add_message(g, from, 0, tag, bytes, seed);
            }
        }
    }
}

static void post_group(group *g, ra_ucx *ucx) {
    CHECK(ra_ucx_ops.post(ucx, g->messages, g->count, NULL) == RA_OK);
}

static void finish_group(group *g, ra_ucx *ucx) {
    int done = 0, culprit;
    for (int i = 0; i < 3 && !done; i++) {
        CHECK(ra_ucx_ops.poll(ucx, 0, &done, &culprit) == RA_OK);
        CHECK(done ? culprit == -1 : culprit >= 0 && culprit < g->count);
    }
    if (!done) CHECK(ra_ucx_ops.poll(ucx, 60, &done, &culprit) == RA_OK && done);
    CHECK(ra_ucx_ops.poll(ucx, 0, &done, &culprit) == RA_OK && done); /* and says so again */
}

static void check_group(group *g) {
    for (int i = 0; i < g->count; i++) {
        size_t bytes = g->messages[i].bytes;
        unsigned char *expected = malloc(bytes), guard[GUARD];
        CHECK(expected != NULL);
        fill(expected, bytes, g->seeds[i]);
        memset(guard, 0xee, GUARD);
        CHECK(memcmp(g->messages[i].data, expected, bytes) == 0);
        CHECK(memcmp(g->buffers[i], guard, GUARD) == 0);
        CHECK(memcmp(g->buffers[i] + GUARD + bytes, guard, GUARD) == 0);
        free(expected);
        free(g->buffers[i]);
    }
}

static ra_ucx *open_transport(ra_rendezvous *meeting, const char *transports) {
    ra_ucx_options options = RA_UCX_OPTIONS_INIT;
    ra_ucx *ucx = NULL;
    int machine_ranks = 0;
    options.transports = transports;
    CHECK(ra_ucx_open(ra_rendezvous_rank(meeting), ra_rendezvous_ranks(meeting), ra_rendezvous_allgather, meeting,
                      &options, &ucx, &machine_ranks) == RA_OK);
    CHECK(machine_ranks == ra_rendezvous_ranks(meeting));
    return ucx;
}

static void run_rounds(ra_rendezvous *meeting, const char *transports, int rounds, uint64_t seed) {
    static group g, other;
    ra_ucx *ucx = open_transport(meeting, transports), *second = open_transport(meeting, transports);
    for (int round = 0; round < rounds; round++) {
        draw_group(&g, ucx, &seed);
        draw_group(&other, second, &seed);
        post_group(&g, ucx);
        post_group(&other, second);
        finish_group(&g, ucx);
        finish_group(&other, second);
        check_group(&g);
        check_group(&other);
    }
    ra_ucx_ops.destroy(ucx);
    ra_ucx_ops.destroy(second);
}

int main(void) {
    const uint64_t seed = 20240611;
    ra_rendezvous *meeting = meet();
    if (ra_rendezvous_rank(meeting) == 0)
        printf("seed %llu, %d ranks\n", (unsigned long long)seed, ra_rendezvous_ranks(meeting));
    run_rounds(meeting, NULL, 6, seed);
    run_rounds(meeting, "tcp", 6, seed + 1);
    ra_rendezvous_destroy(meeting);
    return 0;
}
