/* Random groups of messages over a transport, every byte of which is checked, and the bytes around every buffer.
 * Included behind the transport's own test header. */
#ifndef RA_TESTS_PROCESSES_MESSAGES_H
#define RA_TESTS_PROCESSES_MESSAGES_H

#include "processes/check.h"

enum { MOST_MESSAGES = 256, GUARD = 16 };

typedef struct group {
    ra_message messages[MOST_MESSAGES];
    unsigned char *buffers[MOST_MESSAGES]; /* GUARD bytes before and after the data */
    uint64_t seeds[MOST_MESSAGES];         /* of the data */
    int count;
} group;

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

/* A transport, and the sizes of messages that are worth trying on it. */
typedef struct group_target {
    const ra_transport_ops *ops;
    void *self;
    int rank, ranks;
    size_t (*random_size)(void *self, uint64_t *random);
} group_target;

/* Every rank draws the whole group and keeps the messages that concern it. */
static void draw_group(group *g, const group_target *on, uint64_t *random) {
    g->count = 0;
    for (int from = 0; from < on->ranks; from++) {
        for (int to = 0; to < on->ranks; to++) {
            int messages = from == to ? 0 : (int)(next_random(random) % 4);
            for (int i = 0; i < messages; i++) {
                int tag = next_random(random) % 2 ? 32767 - i : i;
                size_t bytes = on->random_size(on->self, random);
                uint64_t seed = next_random(random);
                if (from == on->rank) add_message(g, to, 1, tag, bytes, seed);
                if (to == on->rank) add_message(g, from, 0, tag, bytes, seed);
            }
        }
    }
}

static void post_group(group *g, const group_target *on) {
    CHECK(on->ops->post(on->self, g->messages, g->count, NULL) == RA_OK);
}

static void finish_group(group *g, const group_target *on) {
    int done = 0, culprit;
    for (int i = 0; i < 3 && !done; i++) {
        CHECK(on->ops->poll(on->self, 0, &done, &culprit) == RA_OK);
        CHECK(done ? culprit == -1 : culprit >= 0 && culprit < g->count);
    }
    if (!done) CHECK(on->ops->poll(on->self, 60, &done, &culprit) == RA_OK && done);
    CHECK(on->ops->poll(on->self, 0, &done, &culprit) == RA_OK && done); /* and says so again */
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

#endif
