/* For test programs of several processes: checks that end the whole job, and numbers that all ranks draw alike. Whoever
 * includes it says how a job is ended. */
#ifndef RA_TESTS_PROCESSES_CHECK_H
#define RA_TESTS_PROCESSES_CHECK_H

#include <ringattn/transport.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Says what is not true, on which rank, and ends all ranks, which would wait for ever. */
static void check_failed(const char *file, int line, const char *what);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) check_failed(__FILE__, __LINE__, #condition);                                                \
    } while (0)

/* The status, and a word that the error text must have. */
#define CHECK_FAILS(expr, status, word)                                                                                \
    do {                                                                                                               \
        CHECK((expr) == (status));                                                                                     \
        CHECK(strstr(ra_last_error(), word) != NULL);                                                                  \
    } while (0)

/* splitmix64: the same numbers on every rank from the same seed. */
static inline uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#endif
